"""Run folders read back: complete, corrupt, and malicious."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.memories.wru import wru_gap
from mlcl.reports import read_run, sections
from mlcl.reports.figures import memory_gap, memory_shares
from mlcl.runs.result import Result


@pytest.fixture
def copy(runs, tmp_path):
    shutil.copytree(runs / "rldam-wru-0", tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_read_as_it_was_written(runs):
    run = read_run(runs / "er-1")
    result = json.loads((runs / "er-1" / "result.json").read_text())
    assert (run.method, run.seed, run.summary.tasks, run.joint) == ("er", 1, 3, False)
    assert run.matrix.tolist() == result["matrix"]
    assert run.values["pooled_map"] == result["pooled"]["map"]
    assert run.values["tail"] == result["thirds"]["tail"]
    assert len(run.losses) == 3 * 3  # three tasks of three epochs
    first = json.loads((runs / "er-1" / "metrics.jsonl").read_text().splitlines()[0])
    assert run.losses[0] == first["value"]
    assert run.fingerprint
    joint = read_run(runs / "joint-0")
    assert joint.joint
    assert np.isnan(joint.values["forgetting"])
    assert joint.memory is None


@pytest.mark.parametrize("name", ["rldam-wru-0", "joint-0"])
def test_a_result_is_written_as_it_was_read(runs, name):
    content = json.loads((runs / name / "result.json").read_text())
    again = Result.from_json(content, source=runs / name).to_json()
    assert again == {key: value for key, value in content.items() if key != "sha256"}


def test_memory_shares_and_gap_against_explicit_loops(runs):
    group = next(g for g in sections([runs])[0].groups if g.label == "rldam-wru")
    gaps = []
    for run in group.runs:
        data, kept = memory_shares(run)
        expected, position = [], 0
        for samples in run.memory.tasks:
            total = 0.0
            n = samples.counts.positive[0] + samples.counts.negative[0]
            for k in range(len(samples.classes)):
                inside = int(samples.labels[:, k].sum())
                assert data[position] == pytest.approx(samples.counts.positive[k] / n)
                assert kept[position] == pytest.approx(inside / len(samples.rows))
                position += 1
                ratio = samples.counts.positive[k] / samples.counts.negative[k]
                total += abs(ratio - inside / (len(samples.rows) - inside + 0.01))
            assert wru_gap(samples.counts, samples.labels) == pytest.approx(total)
            expected.append(total)
        gaps.append(np.mean(expected))
    mean, std = memory_gap(group)
    assert mean == pytest.approx(np.mean(gaps))
    assert std == pytest.approx(np.std(gaps, ddof=1))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("matrix", [[1, 2], [3]], "matrix is not a matrix"),
        ("matrix", [[1, 2, 3], [3, 4, 5]], "expected"),
        ("matrix", [[900, 2, 3]] * 3, "900"),
        ("matrix", 5, "matrix is '5'; expected the result of a run"),
        ("per_class", [[1, 2]], "per_class is not a matrix of the expected width"),
        ("tasks", [[0], [1]], "tasks has 2 entries and matrix has 3 columns"),
        ("tasks", [[0], [1], [99]], "tasks names classes outside 0 to 5"),
        ("tasks", [[0], [1], [True]], "tasks holds 'True'"),
        ("positive", [1], "positive has 1 values; expected one for each of 6 classes"),
        ("positive", [-1, 1, 1, 1, 1, 1], "positive holds '-1'"),
        ("task_seconds", [1.0], "does not have the 3 rows of matrix"),
        ("pooled", None, "pooled is 'None'; expected a mapping"),
        ("thirds", {"tail": "low"}, "holds 'low' where a number was expected"),
        ("seed", "zero", "seed is 'zero'"),
        ("benchmark", None, "benchmark is 'None'"),
    ],
)
def test_a_wrong_field_is_one_sentence(copy, field, value, words):
    path = copy / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(InputError, match=words) as error:
        read_run(copy)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_can_be_read_without_its_optional_files(copy):
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"name": "train/lo')  # a line cut off by a kill
    assert len(read_run(copy).losses) == 9
    for name in ("environment.json", "metrics.jsonl", "memory.safetensors"):
        (copy / name).unlink()
    run = read_run(copy)
    assert (run.commit, len(run.losses), run.memory) == ("", 0, None)
    assert run.fingerprint == json.loads((copy / "result.json").read_text())["data"]["fingerprint"]


@pytest.mark.parametrize(
    "content", [b"", b"not tensors at all", b"\xff" * 64, (10**18).to_bytes(8, "little") + b"{}"]
)
def test_a_corrupt_memory_is_left_out_with_a_warning(copy, content):
    (copy / "memory.safetensors").write_bytes(content)
    run = read_run(copy)
    with pytest.warns(UserWarning, match="the memory is left out"):
        assert run.memory is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_result_is_read_or_refused_in_one_sentence(copy, runs, data):
    result = json.loads((runs / "rldam-wru-0" / "result.json").read_text())
    for field in data.draw(st.lists(st.sampled_from(sorted(result)), min_size=1, max_size=3)):
        result[field] = data.draw(json_values)
    (copy / "result.json").write_text(json.dumps(result))
    message = ""
    try:
        read_run(copy)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
