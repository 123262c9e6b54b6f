"""The page of one run: complete, safe, small, and right in a browser on a phone."""

from __future__ import annotations

import base64
import html
import io
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from markupsafe import Markup
from PIL import Image

from browser import CHROMIUM, browse, probed
from examining import examined
from helpers import label_settings, label_store
from mlcl.cli.main import main
from mlcl.reports import look
from mlcl.reports.look import Album, context, data_uri, render_look
from mlcl.runs.run import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of a run on images and of one on vectors."""
    place = tmp_path_factory.mktemp("pages")
    found = {}
    for kind in ("images", "features"):
        store = label_store(place, kind, [0, 1, 2, 3], images=kind == "images")
        run(label_settings(store, "er", images=kind == "images"), out=place / f"{kind}-run")
        assert main(["report", str(place / f"{kind}-run"), "--out", str(place / f"{kind}.html")]) == 0
        found[kind] = (place / f"{kind}.html").read_text()
    return place, found


@pytest.mark.parametrize("kind", ["images", "features"])
def test_the_page_shows_labels_mistakes_confusions_and_suspects(pages, kind):
    text = pages[1][kind]
    for words in (
        "Surest false positives",
        "Surest misses",
        "Most doubtful",
        "Brier score of a constant",
        "Log-loss",
        "Reliability of all labels",
        "Labels confused with each other",
    ):
        assert words in text
    for words in (
        "Labels that may be missing",
        "Labels that may be wrong",
        "Calibration error",
        "95% interval",
    ):
        assert words in text
    for name in ("ant", "bee", "cat", "dog"):
        assert re.search(rf'<th scope="row"><a href="#s1-l\d">{name}</a></th>', text)
    anchors, places = re.findall(r'href="#(s1-l\d)"', text), re.findall(r'id="(s1-l\d)"', text)
    assert sorted(anchors) == sorted(places)
    assert "<script" not in text
    assert ('src="data:image/' in text) == (kind == "images")
    assert ("<code>test-" in text) == (kind == "features")


def test_an_image_on_the_page_is_the_row(pages):
    uri = re.search(r'src="(data:image/[^"]+)" alt="test-(\d+),', pages[1]["images"])
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri[1].split(",")[1]))))
    stored = np.load(pages[0] / "images" / "inputs.npy")
    train = len(np.load(pages[0] / "images.npz")["x_train"])
    assert np.array_equal(pixels.transpose(2, 0, 1), stored[train + int(uri[2])])


def test_names_from_outside_cannot_become_markup():
    evil = '"><script>alert(1)</script>'
    names = (evil, "b", "c", "d")
    found = replace(examined(), ids=[f"{evil}{i}" for i in range(60)], where=evil, classes=names)
    text = str(render_look(found, Markup))
    assert "<script" not in text
    assert html.escape("<script>") in text


def test_of_many_labels_the_worst_are_shown(monkeypatch):
    monkeypatch.setattr(look, "MOST_LABELS", 2)
    found = context(examined(), count=3)
    values = [float(cells[3]) for cells in found["labels"].rows]
    assert values == sorted(values)
    assert [bool(cells[0].anchor) for cells in found["labels"].rows] == [True, True, False, False]
    assert (len(found["details"]), found["left_out"]) == (2, 2)
    assert all(len(rows) <= 3 for label in found["details"] for _, _, rows in label["lists"])


def test_images_stay_within_their_bound():
    rng = np.random.default_rng(0)
    album = Album(limit=5000)
    added = [album.add(rng.integers(0, 256, (3, 48, 48), dtype=np.uint8)) for _ in range(10)]
    kept = [uri for uri in added if uri is not None]
    assert 0 < sum(map(len, kept)) <= 5000
    assert album.omitted == 10 - len(kept) > 0


@pytest.mark.parametrize(
    ("shape", "kind"), [((1, 8, 8), "png"), ((3, 16, 16), "png"), ((3, 300, 200), "jpeg")]
)
def test_an_image_as_a_uri(shape, kind):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    head, _, body = data_uri(pixels).partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(body)))
    assert head == f"data:image/{kind};base64"
    assert max(image.size) <= 96
    assert image.mode == ("L" if shape[0] == 1 else "RGB")


def test_where_the_data_are_gone_the_rest_of_the_page_is_there(pages, tmp_path, capsys):
    shutil.copytree(pages[0] / "features-run", tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(
        config.replace(str(pages[0] / "features"), str(tmp_path / "gone"))
    )
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "a.html")]) == 0
    text = (tmp_path / "a.html").read_text()
    assert "The test rows of this run are not at hand" in text
    assert "the test rows are left out" in capsys.readouterr().err
    assert "Surest misses" not in text
    again = ["report", str(tmp_path / "run"), "--out", str(tmp_path / "b.html")]
    assert main([*again, "--on", str(pages[0] / "features")]) == 0
    assert "Surest misses" in (tmp_path / "b.html").read_text()
    assert main([*again, "--overwrite", "--on", str(tmp_path / "gone")]) == 2
    assert main([*again, "--overwrite", "--mistakes", "-1"]) == 2
    assert main([*again, "--overwrite", "--mistakes", "0"]) == 0
    text = (tmp_path / "b.html").read_text()
    assert "Surest misses" not in text
    assert "not at hand" not in text
    both = ["report", str(tmp_path / "run"), str(pages[0] / "images-run"), "--out", str(tmp_path / "c.html")]
    assert main([*both, "--on", str(pages[0] / "features")]) == 2
    assert "expected the folder of one run" in capsys.readouterr().err


@pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: the page is not looked at in a browser"
)
@pytest.mark.parametrize("kind", ["images", "features"])
def test_on_a_phone_nothing_overflows_and_the_console_is_quiet(pages, tmp_path, kind):
    text = re.sub(
        r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", pages[1][kind]
    )  # it forbids the probe
    opened = text.replace("<details", "<details open")
    seen, console = probed(opened, tmp_path, 390, "--hide-scrollbars")
    assert seen["inner"] == seen["scroll"] == 390
    assert seen["wide"] == []
    assert "CONSOLE" not in console, console
    (tmp_path / "page.html").write_text(pages[1][kind])
    done = browse([f"--screenshot={tmp_path / 'shot.png'}", "--window-size=1280,900"], tmp_path, "page.html")
    assert "CONSOLE" not in done.stderr, done.stderr
