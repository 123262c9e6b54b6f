"""Model cards: a header that the Hub can read, tables that are tables, names that stay names."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import yaml

from examining import examined
from helpers import label_settings, label_store, rewrite
from mlcl.cli.main import main
from mlcl.metrics import bootstrap_interval
from mlcl.reports.card import render_card
from mlcl.reports.examine import examine
from mlcl.reports.records import read_run
from mlcl.reports.rendering import escaped
from mlcl.runs.run import run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A finished run on a store, with held-out rows."""
    folder = tmp_path_factory.mktemp("card")
    store = label_store(folder, "store", [0, 1, 2, 3])
    run(label_settings(store, "er", held_out=0.25), out=folder / "run")
    return folder


def parsed(text):
    """Return header, headings and tables of a card; a table must have as many cells in every row."""
    _, header, body = re.split(r"^---$", text, maxsplit=2, flags=re.MULTILINE)
    fence = re.search(r"^(`{3,})yaml$", body, re.MULTILINE)[1]
    body, settings = body.split(f"{fence}yaml\n")
    tables = [
        [re.split(r"(?<!\\)\|", row.strip("|")) for row in block.splitlines()]
        for block in re.split(r"\n\n", body)
        if block.startswith("|")
    ]
    for table in tables:
        assert len({len(cells) for cells in table}) == 1, table
    headings = re.findall(r"^#+ (.*)$", body, re.MULTILINE)
    return yaml.safe_load(header), headings, tables, yaml.safe_load(settings.split(f"\n{fence}")[0])


def test_a_card_of_a_run(place, capsys):
    assert main(["card", str(place / "run")]) == 0
    assert capsys.readouterr().out == f"{place / 'run' / 'model-card.md'}\n"
    text = (place / "run" / "model-card.md").read_text()
    header, headings, tables, settings = parsed(text)
    result = json.loads((place / "run" / "result.json").read_text())
    assert header["library_name"] == "mlcl"
    assert header["pipeline_tag"] == "tabular-classification"
    (entry,) = header["model-index"]
    (measured,) = entry["results"]
    assert measured["dataset"]["revision"] == result["data"]["fingerprint"]
    assert {"type", "name"} <= measured["task"].keys()
    values = {metric["name"]: metric for metric in measured["metrics"]}
    assert values["Macro-AUC, mean over tasks (percent)"]["value"] == pytest.approx(
        result["macro_auc"], abs=0.01
    )
    found = examine(place / "run")
    interval = bootstrap_interval(found.probabilities, found.labels, resamples=400)
    pooled = values["Macro-AUC, all labels on all test rows (percent)"]
    assert pooled["args"]["interval_95"] == [round(100 * interval.low, 2), round(100 * interval.high, 2)]
    assert pooled["value"] == pytest.approx(result["pooled"]["macro_auc"], abs=0.01)
    assert values["Brier score"]["value"] == pytest.approx(result["calibration"]["brier"], abs=1e-4)
    for heading in (
        "Labels",
        "Evaluation",
        "Probabilities and thresholds",
        "Training data",
        "Weights",
        "Settings",
    ):
        assert heading in headings
    names = [cells[0].strip() for cells in tables[0][2:]]
    assert names == result["classes"]
    assert [int(cells[1]) for cells in tables[0][2:]] == result["positive"]
    assert result["data"]["fingerprint"] in text
    assert "held-out rows" in text
    assert "f1, on" in text
    assert settings == result["config"]


def test_a_card_is_not_overwritten(place, capsys):
    out = place / "mine.md"
    out.write_text("precious")
    assert main(["card", str(place / "run"), "--out", str(out)]) == 2
    assert "exists; choose another name, or add --overwrite" in capsys.readouterr().err
    assert out.read_text() == "precious"
    assert main(["card", str(place / "run"), "--out", str(out), "--overwrite"]) == 0
    assert out.read_text().startswith("---\n")
    assert main(["card", str(place / "run"), "--out", str(place / "mine.html")]) == 2
    assert main(["card", str(place / "nothing")]) == 2


def test_a_card_without_the_data_says_so(place, tmp_path, capsys):
    shutil.copytree(place / "run", tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(
        config.replace(str(place / "store"), str(tmp_path / "gone"))
    )
    assert main(["card", str(tmp_path / "run"), "--out", str(tmp_path / "a.md")]) == 0
    assert "the test rows are left out" in capsys.readouterr().err
    text = (tmp_path / "a.md").read_text()
    assert "without intervals. The test rows of this run are not at hand" in text
    _, _, tables, _ = parsed(text)
    assert len(tables[0][0]) == 3
    assert (
        main(["card", str(tmp_path / "run"), "--out", str(tmp_path / "b.md"), "--on", str(tmp_path / "gone")])
        == 2
    )


def test_names_from_outside_stay_names(place, tmp_path):
    evil = "a|b\n---\n# x <script> [y](z) `c` *d*"
    found = read_run(place / "run")
    names = (evil, "```", "---", ": {a}")
    settings = dict(found.settings) | {"benchmark": "``` x ````"}
    hostile = replace(found, classes=names, benchmark=evil, settings=settings)
    shutil.copytree(place / "run", tmp_path / "run")
    for name in ("calibration.json", "thresholds.json"):
        rewrite(tmp_path / "run", name, classes=list(names))
    copied = tmp_path / "run"
    hostile = replace(hostile, folder=copied, sha256=read_run(copied).sha256)
    text = render_card(hostile, examined=replace(examined(), classes=names))
    header, headings, tables, settings = parsed(text)
    assert header["model-index"][0]["results"][0]["dataset"]["name"] == evil.replace("\n", "\\n")
    assert not re.search(r"(?<!\\)<", re.split(r"^---$", text, maxsplit=2, flags=re.MULTILINE)[2])
    assert len(tables[0]) == 2 + 4
    assert [heading for heading in headings if heading.startswith("x")] == []
    assert settings["benchmark"] == "``` x ````"


def test_escaped_text_has_no_markup():
    assert escaped("a_b*c") == r"a\_b\*c"
    assert "\n" not in escaped("a\nb")
    assert escaped("x" + chr(0) + "y") == r"x\\x00y"
    assert np.char.count(escaped("|"), "|") == 1


def test_the_checksum_of_a_file_of_weights_is_in_card_and_page(place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "run")
    file = tmp_path / "run" / "result.json"
    tensors, whole = "0123" * 16, "fedc" * 16
    record = {"model": "net", "weights": "net.pth", "trained_on": [], "sha256": tensors}
    for weights in (record | {"file_sha256": whole}, record):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"weights": weights}))
        assert main(["card", str(tmp_path / "run"), "--overwrite"]) == 0
        words = ["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"), "--overwrite"]
        assert main(words) == 0
        for text in ((tmp_path / "run" / "model-card.md").read_text(), (tmp_path / "page.html").read_text()):
            assert f"sha256 {tensors[:12]}" in text
            assert (f", sha256 of the file {whole}" in text) == ("file_sha256" in weights)
