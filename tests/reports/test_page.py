"""The page: self-contained, safe, accessible, and correct in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from browser import CHROMIUM, browse, probed
from mlcl.cli.main import main
from mlcl.reports import sections, table_lines
from mlcl.reports.drawing import to_file, to_inline
from mlcl.reports.figures import table_figure
from mlcl.reports.page import render_page, write_files

pytestmark = pytest.mark.slow  # pages of whole runs


class Page(HTMLParser):
    """Counts elements and collects what the tests ask for."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.images = Counter(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags[tag] += 1
        self.ids += [found["id"]] if "id" in found else []
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag == "svg":
            self.images.append(found)


@pytest.fixture(scope="session")
def page(sweep, runs):
    return render_page(sections([sweep, runs]))


def test_one_page_has_everything_and_fetches_nothing(page):
    found = Page(page)
    assert found.tags["script"] == 0
    assert all(link.startswith(("#", "data:")) for link in found.links)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    for words in (
        *("The core methods", "Ours is best.", "mlcl reproduce core", "Data fingerprint", "Commit"),
        *("Macro-AUC by row", "Forgetting by task", "Result matrices", "Head, medium and tail"),
        *("AUC per class against its frequency", "Content of the memory", "Training loss", "Time per task"),
        *("Settings and environment", "79.17", "(published)", "prefers-color-scheme:dark", "@media print"),
    ):
        assert words in page, words


def test_an_environment_that_all_runs_share_is_shown_once(page):
    assert page.count("platform:") == page.count("<summary>Environment</summary>") == 2


def test_every_figure_has_an_alternative_text_with_numbers(page):
    found = Page(page)
    # Two sections. The sweep: AUC, forgetting, thirds, four over tasks, and a matrix, a scatter and a memory for
    # each of two rows. The runs: the same, with four rows, of which two have a memory.
    assert len(found.images) == (7 + 2 + 2 + 2) + (7 + 4 + 4 + 2)
    for image in found.images:
        assert image["role"] == "img"
        title, text = image["aria-labelledby"].split()
        words = re.search(rf'<desc id="{text}">(.*?)</desc>', page).group(1)
        assert re.search(rf'<title id="{title}">.+?</title>', page)
        assert re.search(r"\d", words)
        assert "nan" not in words
    assert max(Counter(found.ids).values()) == 1


def test_figures_take_the_colour_of_the_page(page):
    assert "currentColor" in page
    assert "#23262b" not in page.split("</style>", 1)[1].split("<main>", 1)[1]


def test_names_from_outside_cannot_become_markup(runs, tmp_path):
    evil = "</title><script>alert(1)</script>$x_{$ & \x07"
    shutil.copytree(runs / "rldam-wru-0", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    result = json.loads(path.read_text())
    result["classes"] = [f"{evil}{k}" for k in range(6)]
    config = result["config"] | {"benchmark": evil}
    path.write_text(json.dumps(result | {"method": evil, "benchmark": evil, "config": config}))
    (tmp_path / "run" / "environment.json").write_text(
        json.dumps({"commit": evil, "platform": evil, "data": 3})
    )
    text = render_page(sections([tmp_path / "run"]))
    found = Page(text)
    assert found.tags["script"] == 0
    assert html.escape("<script>") in text


def test_a_page_of_one_run(runs, tmp_path, capsys):
    out = tmp_path / "one.html"
    assert main(["report", str(runs / "joint-0"), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert "joint on c-digits" in out.read_text()
    assert main(["report", str(runs / "joint-0"), "--out", str(out)]) == 2
    assert "exists; choose another name, or add --overwrite" in capsys.readouterr().err
    assert main(["report", str(runs / "er-0"), "--out", str(out), "--overwrite"]) == 0
    assert "er on c-digits" in out.read_text()
    assert main(["report", str(runs / "er-0"), "--out", str(tmp_path / "no" / "x.html")]) == 2
    assert main(["report", str(runs / "er-0"), "--out", str(tmp_path), "--overwrite"]) == 2


def test_the_page_of_one_run_compares_nothing_and_names_its_classes(runs):
    text = render_page(sections([runs / "er-0"]))
    assert "Comparison" not in text
    assert "Settings that differ between rows" not in text
    assert "1 rows" not in text
    result = json.loads((runs / "er-0" / "result.json").read_text())
    for name, auc, count in zip(result["classes"], result["per_class"][-1], result["positive"], strict=True):
        row = re.search(rf'<th scope="row">{name}</th>(.*?)</tr>', text).group(1)
        cells = re.findall(r"<td>(.*?)</td>", row)
        assert (cells[1], cells[3]) == (str(count), f"{auc:.2f}")
    curves = re.search(r"<svg(?:(?!</svg>).)*AUC per class over the tasks.*?</svg>", text, re.DOTALL).group(0)
    assert all(name in curves for name in result["classes"])
    assert f"<dd>{result['macro_auc']:.2f}</dd>" in text
    several = render_page(sections([runs / "er-0", runs / "er-1"]))
    assert "Comparison" in several
    assert "2: 1 row, seeds 0, 1" in several


@pytest.mark.parametrize(
    ("seconds", "time", "cell"),
    [
        (0.0213, "0.02 s", "0.02"),
        (0.31, "0.3 s", "0.3"),
        (8.04, "8.0 s", "8.0"),
        (5730.0, "1 h 35 min", "5,730"),
    ],
)
def test_a_short_run_did_not_take_zero_seconds(runs, tmp_path, seconds, time, cell):
    shutil.copytree(runs / "er-0", tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"task_seconds": [seconds, 0, 0]}))
    text = render_page(sections([tmp_path / "run"]))
    facts = dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", text, re.DOTALL))
    assert facts["Computing time"].startswith(f"{time};")
    assert facts["Seconds"] == cell


@pytest.mark.parametrize("kind", ["points", "lines", "curves", "imbalance"])
def test_each_kind_of_figure_is_drawn_for_paper_and_page(sweep, kind):
    (section,) = sections([sweep])
    groups = [
        replace(group, row=replace(group.row, x=x, series=group.label, published={"macro_auc": 70.0}))
        for group, x in zip(section.groups, ("none", "official"), strict=True)
    ]
    section = replace(section, groups=tuple(groups), figure=kind, axis="imbalance")
    figure = table_figure(section, table_lines(section))
    svg = to_file(figure, "svg")
    assert svg == to_file(figure, "svg")
    assert b"<dc:date>" not in svg
    assert to_file(figure, "pdf").startswith(b"%PDF")
    inline = to_inline(figure, "f1")
    assert "imbalance" in inline or kind in ("points", "curves")
    assert inline.count("<svg") == inline.count("</svg>") == 1
    if kind in ("points", "lines"):
        assert "70.00" in figure.alt or kind == "lines"


@pytest.mark.parametrize(
    ("values", "scale"), [((0.01, 1.0), "log"), ((200, 2000), "linear"), ((0, 5), "linear")]
)
def test_lines_show_both_measures_over_the_rate(sweep, values, scale):
    (section,) = sections([sweep])
    groups = [
        replace(group, row=replace(group.row, x=x, series="one", published={"macro_auc": 70.0}))
        for group, x in zip(section.groups, values, strict=True)
    ]
    section = replace(section, groups=tuple(groups), figure="lines", axis="lr")
    drawn = Figure()
    table_figure(section, table_lines(section)).draw(drawn)
    axes = [axes for part in drawn.subfigs for axes in part.axes]
    assert [(one.get_ylabel(), one.get_xscale()) for one in axes] == [
        ("Macro-AUC", scale),
        ("Pooled Macro-AUC", scale),
    ]
    names = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert sorted(names) == ["one", "one (published)"]


def test_a_style_of_the_user_changes_nothing(sweep):
    (section,) = sections([sweep])
    figure = table_figure(section, table_lines(section))
    before = to_file(figure, "svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert to_file(figure, "svg") == before
        assert mpl.rcParams["font.size"] == 30


def test_the_files_of_a_sweep_are_rewritten_whole(sweep):
    names = write_files(sweep)
    assert len(names) == 8
    assert all((sweep / name).stat().st_size > 100 for name in names)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_in_a_browser_nothing_is_missing_and_nothing_overflows(page, tmp_path, width, dark):
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)  # it forbids the probe
    theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    seen, console = probed(open_page, tmp_path, width, *theme)
    assert seen["inner"] == width
    assert seen["scroll"] <= width
    assert seen["wide"] == []
    assert seen["charts"] == seen["drawn"] == 30
    assert seen["background"] == ("rgb(20, 22, 26)" if dark else "rgb(251, 251, 250)")
    assert "CONSOLE" not in console, console


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_probe_sees_what_it_looks_for(tmp_path):
    bad = "<!doctype html><body><p style='width:700px'>wide</p><script>missing()</script></body>"
    seen, console = probed(bad, tmp_path, 390)
    assert seen["scroll"] == 708
    assert seen["wide"] == ["P."]
    assert "CONSOLE" in console


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_page_itself_has_no_console_message(page, tmp_path):
    (tmp_path / "page.html").write_text(page)
    done = browse([f"--screenshot={tmp_path / 'shot.png'}", "--window-size=1280,900"], tmp_path, "page.html")
    assert (tmp_path / "shot.png").stat().st_size > 10_000
    assert "CONSOLE" not in done.stderr, done.stderr
