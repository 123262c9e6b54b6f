"""The pages of results say what the committed files say, and verdicts follow from paired differences."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import ledger  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        *("evidence.py", "rates.py", "mlcil_page.py", "summary.py", "calibration.py"),
        "exact_sets.py",
    ],
)
def test_the_pages_are_up_to_date(script, monkeypatch, capsys):
    """Here, and not in a process of its own, which would load torch first."""
    monkeypatch.setattr(sys, "argv", [script, "--check"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "tools" / script), run_name="__main__")
    assert not end.value.code, "".join(capsys.readouterr())


def values(**rows):
    return {label: dict(enumerate(found)) for label, found in rows.items()}


def test_a_verdict_needs_an_interval_on_one_side_of_zero():
    found = values(new=[3.0, 3.1, 2.9], old=[1.0, 1.0, 1.0], wild=[-5.0, 9.0, 2.0], one=[4.0])
    assert ledger.compare(found, "new", "old", lower=False)[0] == "holds"
    assert ledger.compare(found, "old", "new", lower=False)[0] == "does not hold"
    assert ledger.compare(found, "old", "new", lower=True)[0] == "holds"
    assert ledger.compare(found, "new", "wild", lower=False)[0] == "undecided"
    assert ledger.compare(found, "one", "old", lower=False) == ("one seed", "against old: +3.00")
    assert ledger.compare(found, "new", "nobody", lower=False)[0] == "not tested"
    assert ledger.compare(found, "new", "old", lower=True)[1] == "against old: +2.00 [+1.75, +2.25]"


def test_a_claim_of_several_parts_is_as_good_as_its_worst_part(tmp_path):
    runs = [
        {"label": label, "seed": str(seed), "macro_auc": str(value)}
        for label, found in {"a": [3.0, 3.1, 2.9], "b": [1.0, 1.0, 1.1], "c": [9.0, 9.1, 9.0]}.items()
        for seed, value in enumerate(found)
    ]
    sweep = ledger.Sweep(tmp_path, {"rows": []}, "", runs)
    assert ledger.verdict({"above": "a", "below": ["b"]}, sweep)[0] == "holds"
    assert ledger.verdict({"above": "a", "below": ["b", "c"]}, sweep)[0] == "does not hold"
    assert ledger.verdict({"above": "a", "below": ["d"]}, sweep)[0] == "not tested"
    assert ledger.verdict({"above": "a", "below": ["b"]}, None)[0] == "not tested"
    word, evidence = ledger.verdict({"spread": 5.0}, sweep)
    assert (word, evidence) == ("does not hold", "8.00 points between c (9.03) and b (1.03)")


def test_the_command_is_shown_as_it_makes_the_whole_table():
    told = "mlcl reproduce table2 --benchmark c-digits --jobs 2 --out /tmp/x --reuse /tmp/a /tmp/b --rows er --seeds 1"
    rows = [{"label": "er"}, {"label": "ft"}]
    record = {"command": f"{told} --done", "seeds": 3, "rows": rows, "runs": [{"label": "er", "seed": 2}]}
    shown = "mlcl reproduce table2 --benchmark c-digits"
    assert ledger.command(record) == f"{shown} --rows er --seeds 3"
    assert (
        ledger.command({**record, "runs": [*record["runs"], {"label": "ft", "seed": 0}]})
        == f"{shown} --seeds 3"
    )


def test_recorded_text_is_shown_in_todays_words():
    assert ledger.words("mean ± sample deviation over data-set seeds") == (
        "mean ± sample standard deviation over dataset seeds"
    )
    assert ledger.words("sample standard deviation, dataset") == "sample standard deviation, dataset"
