"""Labels that look like markup, control characters or formulas go through every command, and stay text."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import yaml

from helpers import label_settings
from mlcl.cli.main import main
from mlcl.cli.progress import PlainConsole
from mlcl.datasets import prepare_source
from mlcl.reports.rendering import PrintedTable
from mlcl.runs.run import run
from mlcl.taggers.predict import predict
from mlcl.texts import visible
from mlcl.training.callbacks import Callback, Interrupted

LABELS = (
    "[/]",
    "[bold]",
    "cat [unsure]",
    "</script><img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202eevil",
    "two\nlines",
    "back\rspace\x00.",
    "a|b",
    "`c` *d* _e_ [f](g)",
    "$\\foo$ %x &amp; #1 ~~s~~",
    "n" * 300,
    "\u2800",
    "id",
    "a;b",
    "Cat",
    "cat",
    "cafe\u0301",
    "caf\u00e9",
    ":smile:",
    "{x} {{ 7*7 }}",
    "*",
    "\\",
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TRAINED = (
    "--stream.tasks",
    "2",
    "--method",
    "exact",
    "--model",
    "fixed",
    "--memory.size",
    "0",
    "--held_out",
    "0.2",
)
COMMANDS = (
    "data info {p}/store --classes --figure {p}/figure.svg",
    "run --benchmark {p}/store --out {p}/run " + " ".join(TRAINED),
    "resume {p}/stopped",
    "validate {p}/run",
    "thresholds {p}/run --precision 0.999",
    "thresholds {p}/run --cost 50",
    "predict {p}/run {p}/more --tags",
    "predict {p}/run {p}/more --tags --out {p}/tags.csv",
    "predict {p}/run {p}/more --out {p}/scores.csv",
    "predict {p}/run {p}/more --out {p}/sheet.csv --for-spreadsheet",
    "drift {p}/run {p}/more --out {p}/drift.json",
    "update {p}/run --data {p}/more --gate {p}/store --allow 100",
    "forget {p}/run --label *",
    "versions {p}/run",
    "rollback {p}/run",
    "labels {p}/run",
    "compare {p}/run --on {p}/store",
    "compare {p}/stopped",
    "report {p}/run --out {p}/page.html --mistakes 1",
    "card {p}/run --out {p}/card.md",
    "theory {p}/stopped --classes --out {p}/theory",
    "check {p}/run",
    "learn --data {p}/shard.parquet --out {p}/learnt --jobs 1",
    "labels {p}/run --rename [/]=\x1b[1m[b]",
    "merge {p}/run {p}/run --out {p}/merged",
)
NAMING = [
    command
    for command in COMMANDS
    if command.startswith(
        ("data info", "thresholds", "predict {p}/run {p}/more --tags", "compare {p}/run", "theory")
    )
    and "tags.csv" not in command
]
"""Commands that show all labels."""


def write_store(folder, name, seed):
    rng = np.random.default_rng(seed)
    direction = np.random.default_rng(9).normal(size=(len(LABELS), 48))
    arrays = {}
    for split, n in (("train", 120), ("test", 80)):
        labels = (rng.random((n, len(LABELS))) < 0.25).astype(np.uint8)
        arrays[f"x_{split}"] = (labels @ direction + rng.normal(size=(n, 48))).astype(np.float32)
        arrays[f"y_{split}"] = labels
    np.savez(folder / f"{name}.npz", **arrays, classes=np.array(LABELS))
    prepare_source("arrays", folder / f"{name}.npz", out=folder / name, jobs=1)
    return arrays


class Stop(Callback):
    """Interrupts a run after its first task."""

    def on_task_end(self, learner):
        raise Interrupted


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The folder, and what each command wrote: exit code, stdout, stderr."""
    place = tmp_path_factory.mktemp("hostile")
    write_store(place, "store", 0)
    arrays = write_store(place, "more", 1)
    tags = [[LABELS[k] for k in np.flatnonzero(row)] for row in arrays["y_train"]]
    rows = {"features": arrays["x_train"].tolist(), "labels": tags}
    pyarrow.parquet.write_table(pyarrow.table(rows), place / "shard.parquet")
    settings = label_settings(place / "store", "er", train={"epochs": 1, "batch_size": 64, "lr": 0.1})
    with pytest.raises(Interrupted):
        run(settings, out=place / "stopped", callback=Stop())
    ends = {}
    for command in COMMANDS:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([word.format(p=place) for word in command.split()])
        ends[command] = (code, out.getvalue(), err.getvalue())
    return place, ends


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_labels_as_text(command, walked):
    code, out, err = walked[1][command]
    assert code == 0, err
    assert not CONTROL.search(out + err)
    assert "\nlines" not in out + err
    if command in NAMING:
        for label in ("[/]", "cat [unsure]", "\u202eevil", "two\nlines", ":smile:", "</script><img src=x"):
            assert visible(label) in out + err


def test_tags_on_stdout_are_a_line_per_input(walked):
    out = walked[1]["predict {p}/run {p}/more --tags"][1]
    assert len(out.splitlines()) == 200
    assert all(line.count("\t") == 1 for line in out.splitlines())


def test_csv_files_read_back(walked):
    place, ends = walked
    found = predict(place / "run" / "versions" / "2", place / "more")
    heads, *rows = csv.reader((place / "scores.csv").open(newline=""))
    assert heads == ["input_id", *LABELS]
    assert (
        "the column of ids is called 'input_id'" in ends["predict {p}/run {p}/more --out {p}/scores.csv"][2]
    )
    assert [row[0] for row in rows] == list(found.ids)
    heads, *rows = csv.reader((place / "tags.csv").open(newline=""))
    read = [next(csv.reader(io.StringIO(cell, newline=""), delimiter=";"), []) for _, cell in rows]
    assert heads == ["id", "tags"]
    assert {tag for tags in read for tag in tags} <= set(LABELS)
    assert any("a;b" in tags for tags in read)


def test_no_cell_for_a_spreadsheet_is_a_formula(walked):
    place = walked[0]
    for name in ("sheet.csv", "theory/theory-classes.csv"):
        text = (place / name).read_text()
        cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
        assert "'=cmd|' /C calc'!A0" in cells
        assert not [c for c in cells if c.startswith(("=", "+", "@")) or re.match(r"-[^\d.]", c)]


class Tags(HTMLParser):
    """The elements of a page, and its handlers of events."""

    def __init__(self):
        super().__init__()
        self.found, self.handlers, self.sources = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.sources += [value for name, value in attrs if name == "src"]


def test_the_page_has_no_element_from_a_label(walked):
    text = (walked[0] / "page.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert "script" not in tags.found
    assert not tags.handlers
    assert not tags.sources
    assert "&lt;/script&gt;&lt;img src=x" in text
    assert "\\u202eevil" in text
    assert not CONTROL.search(text)
    assert "{{ 7*7 }}" in text


def test_the_card_has_no_markup_from_a_label(walked):
    text = (walked[0] / "card.md").read_text()
    assert not CONTROL.search(text)
    _, header, body = re.split(r"^---$", text, maxsplit=2, flags=re.MULTILINE)
    assert yaml.safe_load(header)["library_name"] == "mlcl"
    assert not re.search(r"(?<!\\)<", body)
    rows = [line for line in body.splitlines() if line.startswith("|")]
    (table,) = (rows[n : n + len(LABELS) + 1] for n, row in enumerate(rows) if row.startswith("| Label |"))
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table}) == 1


@pytest.mark.parametrize("name", ["figure.svg", "theory/theory.svg"])
def test_figures_are_valid(name, walked):
    ElementTree.fromstring((walked[0] / name).read_text())


def test_a_terminal_gets_no_sequence_from_a_label():
    screen = io.StringIO()
    console = PlainConsole(file=screen, force_terminal=True, width=200)
    console.print(
        PrintedTable(
            "[bold]" + LABELS[5], ["label", LABELS[6]], [[label, "1"] for label in LABELS], left=["label"]
        )
    )
    for label in LABELS:
        console.print(f"lost: {label}")
    shown = re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue())  # the styles of the table are ours
    assert not CONTROL.search(shown)
    for label in LABELS:
        assert visible(label)[:100] in shown


def test_a_status_line_is_not_the_title_of_a_window(capsys, tmp_path):
    (tmp_path / "evil.yaml").write_text('benchmark: "\\e]0;x\\a\\u202e"\nmethod: "\\n[/]"\n')
    assert main(["validate", str(tmp_path / "evil.yaml")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert not CONTROL.search(err)


def test_a_tagger_of_texts_shows_labels_and_texts_as_text(tmp_path, capsys):
    """Also one whose table has a name that is no Unicode; names of files are bytes."""
    rng = np.random.default_rng(0)
    names = ["[/]", "=1+1", LABELS[5], LABELS[6]]
    with (tmp_path / "t[x]\udcff.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "tags"])
        for row in range(60):
            has = rng.random(len(names)) < 0.3
            words = [f"w{k} [/] \x1b[2J =1+1 \u202e" for k in np.flatnonzero(has)] or ["none"]
            table.writerow([f"=r{row}[/]\x1b", " ".join(words), "|".join(np.array(names)[has])])
    (data,), out = tmp_path.glob("t*.csv"), str(tmp_path / "tagger\udcff")
    text = "w0 w2 [/] \x1b[2J \x1b]0;title\x07 =1+1 [red]x[/red] \u202eabc"
    commands = [
        ["learn", str(data), "--out", out, "--separator", "|", "--quiet"],
        ["why", out, "--text", text],
        *(["why", out, "--text", text, "--label", label] for label in names[1:3]),
        ["predict", out, str(data), "--tags"],
        ["predict", out, str(data), "--tags", "--out", str(tmp_path / "tags.csv"), "--for-spreadsheet"],
        ["update", out, "--data", str(data), "--quiet", "--even-unlike"],
        ["report", out, "--out", str(tmp_path / "page.html"), "--mistakes", "1"],
        ["card", out, "--out", str(tmp_path / "card.md")],
    ]
    for command in commands:
        assert main(command) == 0, capsys.readouterr().err
        shown = capsys.readouterr()
        assert not CONTROL.search(shown.out + shown.err)
        if command[0] == "why" and "--label" in command:
            assert shown.out.startswith(f"{visible(command[-1])}: probability ")
            assert re.search(r"^ +[+-]\d+\.\d+  w0$", shown.out, re.MULTILINE)
    assert main(["why", out, "--text", text, "--label", "no\x1b[2J[/]"]) == 2
    assert "has no label 'no\\x1b[2J[/]'" in capsys.readouterr().err
    page, card = (tmp_path / name for name in ("page.html", "card.md"))
    assert not CONTROL.search(page.read_text() + card.read_text())
    cells = [cell for row in csv.reader((tmp_path / "tags.csv").open(newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith("=")]
