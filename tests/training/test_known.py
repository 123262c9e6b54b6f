"""Networks and exact heads that learn from rows of which some labels are not known: those have no say."""

import numpy as np
import pytest
import torch

import mlcl
from helpers import SMALL, small_arrays
from mlcl.config.resolve import config_from, merge
from mlcl.exact import ExactLearner
from mlcl.runs.continuing import load_base
from mlcl.runs.folder import read_memory, read_result, read_weights
from mlcl.runs.run import run
from mlcl.training.setup import KnownLabels

ROWS, CLASSES = 120, 6


def stream(known, **options):
    test = small_arrays(seed=1)
    settings = {"tasks": 2, "order": "sorted", "negatives": "all"} | options
    return mlcl.Benchmark.from_arrays(*small_arrays(), *test, known_train=known, known_test=known, **settings)


@pytest.fixture(scope="module")
def known():
    return np.random.default_rng(0).random((ROWS, CLASSES)) < 0.7


@pytest.fixture(scope="module")
def folder(tmp_path_factory, known):
    out = tmp_path_factory.mktemp("runs") / "er"
    run(config_from(merge(SMALL, {"method": "er"})), benchmark=stream(known), out=out)
    return out


def test_of_rows_knows_the_cells_of_the_task_that_the_data_know(known):
    benchmark = stream(known)
    labels = KnownLabels(benchmark.tasks, benchmark.dataset.train.labels, known, torch.device("cpu"))
    rows, tags = np.array([3, 50, 7]), np.array([0, 1, 1])
    found, own = (part.numpy() for part in labels.of_rows(torch.from_numpy(rows), torch.from_numpy(tags)))
    for place, (row, tag) in enumerate(zip(rows, tags, strict=True)):
        expected = np.zeros(CLASSES, bool)
        expected[benchmark.tasks[tag].classes] = known[row, benchmark.tasks[tag].classes]
        assert np.array_equal(own[place], expected)
        assert np.array_equal(found[place], benchmark.dataset.train.labels[row] * expected)


@pytest.mark.parametrize("method", ["er", "rldam-wru", "ewc"])
def test_a_class_of_which_nothing_is_known_moves_no_weight_of_its_own(method, known, tmp_path):
    without = known.copy()
    without[:, 0] = False
    rows = []
    for epochs in (1, 3):
        changes = {"method": method, "train": {**SMALL["train"], "epochs": epochs, "weight_decay": 0.0}}
        out = tmp_path / f"{method}-{epochs}"
        run(config_from(merge(SMALL, changes)), benchmark=stream(without), out=out)
        rows.append(read_weights(out, read_result(out))["head.linear.weight"])
    assert torch.equal(rows[0][0], rows[1][0])
    assert not torch.equal(rows[0][1], rows[1][1])


def test_the_memory_remembers_what_is_known_and_an_update_goes_on_from_it(folder, known):
    memory = read_memory(folder, read_result(folder)).memory
    benchmark = stream(known)
    for samples, task in zip(memory.tasks, benchmark.tasks, strict=True):
        own = np.ix_(samples.rows, task.classes)
        assert np.array_equal(samples.extra["known"], known[own])
        assert np.array_equal(samples.labels, benchmark.dataset.train.labels[own])
        assert samples.counts == task.counts
    stored = load_base(folder).stored
    for samples in memory.tasks:
        places = np.flatnonzero(np.isin(np.concatenate([one.rows for one in memory.tasks]), samples.rows))
        assert (~stored.known[places]).any()


def test_sums_are_those_of_the_known_labels(known, tmp_path):
    settings = {"method": "exact", "model": {"kind": "fixed", "head": "exact"}, "memory": {"size": 0}}
    run(config_from(settings), benchmark=stream(known, tasks=1), out=tmp_path / "exact")
    kept = read_memory(tmp_path / "exact", read_result(tmp_path / "exact"))
    found = ExactLearner.from_arrays({name: value.numpy() for name, value in kept.exact.items()})
    x, y = small_arrays()
    expected = ExactLearner.begin(x).learn(x, y, list(range(CLASSES)), annotated=known)
    np.testing.assert_array_equal(found.sums.counts(0.0), expected.sums.counts(0.0))
