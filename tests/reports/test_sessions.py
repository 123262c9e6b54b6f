"""Sessions in the report: the table of one run, and curves where rows are compared by their measures."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from mlcl.errors import InputError
from mlcl.reports.figures import HEADS, over_sessions, session_rows
from mlcl.reports.gather import sections
from mlcl.reports.page import render_page
from mlcl.runs.folder import read_result


def test_the_page_of_one_run_has_each_session_and_their_mean(runs):
    text = render_page(sections([runs / "er-0"]))
    saved = json.loads((runs / "er-0" / "result.json").read_text())["sessions"]
    table = re.search(r"<h3>Sessions</h3>(.*?)</table>", text, re.DOTALL).group(1)
    rows = [
        re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    ]
    assert tuple(rows[0]) == HEADS
    names = ["map", "cf1", "of1", "cp", "cr", "op", "or", "fpr", "mf1"]
    for number, session in enumerate(saved["each"]):
        assert rows[1 + number] == [
            str(number + 1),
            str(2 * number + 2),
            *(f"{session[n]:.2f}" for n in names),
        ]
    assert rows[-1] == ["avg", "", *(f"{saved['mean'][n]:.2f}" for n in names)]
    assert "mAP over the sessions" in text
    assert "False-positive rate over the sessions" in text
    joint = render_page(sections([runs / "joint-0"]))
    assert "<h3>Sessions</h3>" not in joint
    assert "over the sessions" not in joint


@pytest.mark.slow
def test_curves_are_drawn_where_rows_are_compared_by_sessions(sweep, runs):
    (section,) = sections([sweep])
    assert "over the sessions" not in render_page([section])
    page = render_page([replace(section, metric="map_avg")])
    assert "False-positive rate over the sessions" in page
    (several,) = sections([runs / "er-0", runs / "joint-0"])
    figure = over_sessions(several, "fpr")
    last = read_result(runs / "er-0").sessions[-1]["fpr"]
    assert f"{last:.2f}" in figure.alt  # the numbers of the alternative text
    (joint,) = sections([runs / "joint-0"])
    assert over_sessions(joint, "map") is None


def test_results_of_an_earlier_version_have_none_and_wrong_ones_are_refused(runs, tmp_path):
    content = json.loads((runs / "er-0" / "result.json").read_text())
    content.pop("sessions")
    (tmp_path / "result.json").write_text(json.dumps(content))
    (section,) = sections([tmp_path])
    assert section.runs[0].sessions == ()
    assert session_rows(section.runs[0]) == []
    (tmp_path / "result.json").write_text(json.dumps({**content, "sessions": {"each": [3]}}))
    with pytest.raises(InputError, match="sessions hold '3'"):
        read_result(tmp_path)
