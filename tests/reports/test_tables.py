"""The numbers of a table against numpy and scipy, and their printed forms."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from mlcl.reports import Run, RunGroup, Section, table_lines
from mlcl.reports.rendering import interval
from mlcl.reports.tables import (
    NAMES,
    fitted,
    footnotes,
    grid,
    runs_csv,
    table_csv,
    table_latex,
    table_markdown,
)
from mlcl.sweeps import TableRow


def made(value, seed, *, forgetting=1.0, label="er"):
    """A run with the values that a table reads."""
    values = dict.fromkeys(NAMES, float(value)) | {"forgetting": forgetting, "seconds": 12.0}
    run = Run(
        folder=Path("runs") / f"{label}-seed{seed}",
        benchmark="c-digits",
        method="er",
        seed=seed,
        settings={"seed": seed},
        data={"fingerprint": "f00"},
        environment={"commit": "abc"},
        matrix=np.array([[50.0]]),
        per_class=np.zeros((1, 1)),
        classes=("a",),
        positive=np.ones(1, np.int64),
        tasks=((0,),),
        pooled={},
        thirds={},
        task_seconds=np.ones(1),
    )
    vars(run)["values"] = values
    return run


def group(label, values, *, reference="er", seeds=None, x=None, series=None, published=None, **options):
    row = TableRow(label, {}, series or label, x, reference, published or {})
    seeds = seeds or range(len(values))
    return RunGroup(
        row, tuple(made(v, s, label=label, **options) for v, s in zip(values, seeds, strict=True))
    )


OURS = [71.0, 75.5, 74.0]
ER = [70.0, 72.0, 71.0]


def section(*groups, **options):
    return Section("Table", "c-digits", groups, **options)


def test_means_standard_deviations_and_paired_differences():
    lines = table_lines(section(group("er", ER), group("ours", OURS)))
    assert lines[1].mean["macro_auc"] == pytest.approx(np.mean(OURS))
    assert lines[1].std["macro_auc"] == pytest.approx(np.std(OURS, ddof=1))
    assert lines[0].difference is None
    oracle = stats.ttest_rel(OURS, ER).confidence_interval(0.95)
    assert lines[1].difference.estimate == pytest.approx(np.mean(OURS) - np.mean(ER))
    assert (lines[1].difference.low, lines[1].difference.high) == pytest.approx((oracle.low, oracle.high))
    assert lines[1].best >= {"macro_auc", "tail"}
    assert "forgetting" in lines[0].best & lines[1].best  # in a tie both are best


def test_only_seeds_that_both_rows_have_are_compared():
    lines = table_lines(section(group("er", ER), group("ours", OURS[1:], seeds=[1, 2])))
    oracle = stats.ttest_rel(OURS[1:], ER[1:]).confidence_interval(0.95)
    assert (lines[1].difference.low, lines[1].difference.high) == pytest.approx((oracle.low, oracle.high))
    one = table_lines(section(group("er", ER), group("ours", [80.0], seeds=[2])))[1].difference
    assert one.estimate == 9.0
    assert math.isnan(one.low)
    none = table_lines(section(group("er", ER), group("ours", [80.0], seeds=[7])))[1]
    assert none.difference is None
    assert table_lines(section(group("ours", OURS)))[0].difference is None


def test_the_best_is_sought_at_each_value_of_the_axis():
    groups = [
        group("er, M 5", [60.0], x=5, series="er"),
        group("ours, M 5", [65.0], x=5, series="ours"),
        group("er, M 9", [80.0], x=9, series="er"),
        group("ours, M 9", [70.0], x=9, series="ours"),
    ]
    assert ["macro_auc" in line.best for line in table_lines(section(*groups))] == [False, True, True, False]
    alone = [group("a 1", [60.0], x=1), group("a 2", [65.0], x=2)]
    assert ["macro_auc" in line.best for line in table_lines(section(*alone))] == [False, True]
    assert not table_lines(section(group("er", ER)))[0].best


def test_an_undefined_value_is_never_best_and_shown_as_a_dash():
    lines = table_lines(section(group("er", ER), group("joint", OURS, forgetting=math.nan)))
    assert "forgetting" not in lines[0].best | lines[1].best
    table = grid(section(group("er", ER), group("joint", OURS, forgetting=math.nan)), lines)
    assert table.rows[1][table.heads.index("Forgetting")].text == "-"


def test_the_metric_of_the_table_comes_first_and_decides():
    groups = (group("er", ER), group("ours", OURS))
    table = section(*groups, metric="pooled_map")
    assert grid(table, table_lines(table)).heads[2] == "Pooled mAP"


def test_published_numbers_have_columns_of_their_own():
    table = section(group("er", ER, published={"macro_auc": 79.17}), group("ours", OURS))
    lines = table_lines(table)
    found = grid(table, lines)
    assert found.heads[-1] == "Macro-AUC (published)"
    assert [cells[-1].text for cells in found.rows] == ["79.17", "-"]
    assert found.rows[0][-1].pale
    assert "context, not a target" in table_markdown(table, lines)
    row = next(csv.DictReader(io.StringIO(table_csv(table, lines))))
    assert row["published_macro_auc"] == "79.17"


def test_csv_has_full_numbers():
    table = section(group("er, odd", ER, reference="er, odd"), group("ours", OURS, reference="er, odd"))
    lines = table_lines(table)
    rows = list(csv.DictReader(io.StringIO(table_csv(table, lines))))
    assert rows[0]["label"] == "er, odd"
    assert float(rows[1]["macro_auc_mean"]) == pytest.approx(np.mean(OURS), abs=1e-6)
    assert rows[0]["difference"] == ""
    assert float(rows[1]["low"]) == pytest.approx(lines[1].difference.low, abs=1e-6)
    runs = list(csv.DictReader(io.StringIO(runs_csv(table))))
    assert [(run["label"], run["seed"], run["macro_auc"]) for run in runs][:2] == [
        ("er, odd", "0", "70.0"),
        ("er, odd", "1", "72.0"),
    ]
    assert (runs[0]["commit"], runs[0]["fingerprint"]) == ("abc", "f00")


def test_markdown_and_latex_escape_what_would_break_them():
    table = section(group("a|b_50%", ER, reference="a|b_50%"), group("ours", OURS, reference="a|b_50%"))
    lines = table_lines(table)
    markdown = table_markdown(table, lines).splitlines()
    assert "a\\|b\\_50%" in markdown[2]
    assert "**73.50 ± 2.29**" in markdown[3]
    assert markdown[0].replace("\\|", "").count("|") == markdown[1].count("|")
    latex = table_latex(table, lines)
    assert "a|b\\_50\\%" in latex
    assert "\\textbf{73.50 $\\pm$ 2.29}" in latex
    rows = [line for line in latex.splitlines() if line.endswith("\\\\")]
    assert len({row.count("&") for row in rows}) == 1


def test_the_terminal_shows_every_row_whole():
    table = section(group("er", ER), group("ours [bold]", OURS))
    screen = io.StringIO()
    Console(file=screen, width=150).print(fitted(grid(table, table_lines(table)), 160))
    assert "ours [bold]" in screen.getvalue()
    assert interval(table_lines(table)[1].difference) in screen.getvalue()


@pytest.mark.parametrize("width", [160, 100, 80, 60])
def test_a_narrow_terminal_loses_columns_but_no_digit(width):
    table = section(group("er", ER), group("rldam-wru", OURS))
    lines = table_lines(table)
    screen = io.StringIO()
    Console(file=screen, width=width).print(fitted(grid(table, lines), width))
    text = screen.getvalue()
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    assert ("Steps" in text) == ("Tail" in text) == (width >= 160)
    assert ("Pooled" in text) == (width >= 100)
    for value in ("rldam-wru", "73.50 ± 2.29", "+2.50"):
        assert value in text


def test_runs_of_several_commits_have_a_footnote():
    table = section(group("er", ER), group("ours", OURS))
    assert not any("commits" in note for note in footnotes(table, table_lines(table)))
    newer = replace(made(70, 3), environment={"commit": "def"})
    mixed = section(group("er", ER), RunGroup(group("ours", [1]).row, (newer,)))
    assert any("2 commits (abc, def)" in note for note in footnotes(mixed, table_lines(mixed)))


def test_a_label_is_no_markup_in_any_format():
    evil = "[x] 50% $y$ <b> `c` [l](u)\n\x1b[2J\\"
    table = section(group(evil, ER, reference="ours"), group("ours", OURS, reference="ours"))
    lines = table_lines(table)
    row = next(line for line in table_markdown(table, lines).splitlines() if "50%" in line)
    assert "[x] 50% \\$y\\$ \\<b> \\`c\\` [l\\](u)\\\\n\\\\x1b[2J\\\\" in row
    row = next(line for line in table_latex(table, lines).splitlines() if "50" in line)
    assert row.startswith("{}[x] 50\\% \\$y\\$ <b>")
    assert "\\textbackslash{}n\\textbackslash{}x1b[2J\\textbackslash{} &" in row
    assert next(csv.DictReader(io.StringIO(table_csv(table, lines), newline="")))["label"] == evil
