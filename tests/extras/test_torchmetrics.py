"""mlcl.metrics.MacroAUC against `macro_auc`, in one process and in two."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from children import child
from ddp_worker import CASES, data
from mlcl import macro_auc
from mlcl.errors import InputError

pytest.importorskip("torchmetrics", reason="the extra torchmetrics is not installed: make test-extras")

from torchmetrics import MetricCollection
from torchmetrics.functional.classification import multilabel_auroc

from mlcl.metrics import MacroAUC

WORKER = Path(__file__).parents[1] / "support/ddp_worker.py"


def drawn(rng, n, classes):
    scores = torch.from_numpy(rng.integers(-5, 6, (n, classes)) / 3).float()
    return scores, torch.from_numpy(rng.random((n, classes)) < 0.3)


def equal(found, expected):
    """Equal to the last bit of float32; torchmetrics makes one value of a vector of one."""
    expected = torch.as_tensor(expected, dtype=torch.float32)
    torch.testing.assert_close(found, expected.squeeze(), rtol=0, atol=0, equal_nan=True)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    classes=st.integers(1, 5),
    ties=st.sampled_from(["half", "strict", "lenient"]),
    average=st.sampled_from(["macro", None]),
    masked=st.booleans(),
    seed=st.integers(0, 999),
)
def test_any_batches_give_the_value_of_all_rows_at_once(sizes, classes, ties, average, masked, seed):
    rng = np.random.default_rng(seed)
    parts = [drawn(rng, n, classes) for n in sizes]
    masks = [torch.from_numpy(rng.random((n, classes)) < 0.7) if masked else None for n in sizes]
    metric, halves = (
        MacroAUC(average=average, ties=ties),
        [MacroAUC(average=average, ties=ties) for _ in "ab"],
    )
    for i, ((scores, labels), mask) in enumerate(zip(parts, masks, strict=True)):
        batch = metric(scores, labels, mask)  # forward: the value of the batch alone
        if len(scores):
            equal(batch, macro_auc(scores, labels, average=average, ties=ties, mask=mask))
        halves[i % 2].update(scores, labels, mask)
    scores, labels = (torch.cat([part[i] for part in parts]) for i in (0, 1))
    mask = torch.cat(masks) if masked else None
    if not len(scores):
        assert metric.compute().isnan().all()
        return
    expected = macro_auc(scores, labels, average=average, ties=ties, mask=mask)
    equal(metric.compute(), expected)
    equal(pickle.loads(pickle.dumps(metric)).compute(), expected)
    equal(copy.deepcopy(metric).compute(), expected)
    if len(sizes) > 1:
        halves[0].merge_state(halves[1])
        equal(halves[0].compute(), expected)
    metric.reset()
    equal(metric(*parts[0], masks[0]), batch if len(sizes) == 1 else metric.compute())


def test_it_agrees_with_torchmetrics_without_undefined_classes():
    """Theirs takes probabilities and has no undefined class here; ours needs no sigmoid."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(300, 6, generator=generator)
    labels = (torch.rand(300, 6, generator=generator) < 0.2).int()
    metric = MacroAUC()
    metric.update(scores, labels)
    theirs = multilabel_auroc(scores.sigmoid(), labels, num_labels=6)
    torch.testing.assert_close(metric.compute(), theirs, rtol=1e-6, atol=1e-6)


def test_in_a_collection_and_among_other_metrics():
    both = MetricCollection({"mean": MacroAUC(), "classes": MacroAUC(average=None)})
    scores, labels = drawn(np.random.default_rng(0), 50, 4)
    both.update(scores, labels)
    found = both.compute()
    equal(found["mean"], macro_auc(scores, labels))
    equal(found["classes"], macro_auc(scores, labels, average=None))
    twice = MacroAUC() + MacroAUC()
    twice.update(scores, labels)
    assert float(twice.compute()) == pytest.approx(2 * macro_auc(scores, labels))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_scores_keep_their_order_in_any_type(dtype):
    scores, labels = drawn(np.random.default_rng(1), 60, 3)
    scores = (scores * 100).to(dtype) if dtype != torch.float64 else 1 + scores.double() * 1e-12
    metric = MacroAUC()
    metric.update(scores, labels)
    equal(metric.compute(), macro_auc(scores, labels))
    assert float(metric.compute()) != 0.5


def test_gradients_are_left_behind():
    scores, labels = drawn(np.random.default_rng(1), 60, 3)
    metric = MacroAUC()
    metric.update(scores.requires_grad_(), labels)
    assert not metric.scores[0].requires_grad


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """What each of two processes has computed, case by case."""
    meet = str(tmp_path_factory.mktemp("ddp") / "meet")
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                child([sys.executable, str(WORKER), str(rank), "2", meet], stdout=subprocess.PIPE, text=True)
            )
            for rank in range(2)
        ]
        return [json.loads(process.communicate()[0]) for process in running]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_have_the_value_of_all_rows(case, two_processes):
    """Unequal numbers of rows, a process without rows, other types, unknown labels; and then more rows."""
    scores, labels, mask, shares = data(case)
    used = sum(shares)
    expected = macro_auc(scores[:used], labels[:used], average=None, mask=mask[:used]) if used else []
    added = [torch.cat([part[:used], part[:9]]) for part in (scores, labels, mask)]
    more = macro_auc(*added[:2], average=None, mask=added[2])
    for found, share in zip(two_processes, shares, strict=True):
        equal(torch.tensor(found[case]["first"]), expected)
        equal(torch.tensor(found[case]["second"]), more)
        assert found[case]["local"] == 5 * share
    if used:
        assert np.isnan(expected).tolist() == [False] * 4 + [True]  # without positives: left out, not scored


@pytest.mark.parametrize(
    ("scores", "labels", "mask", "sentence"),
    [
        (torch.zeros(3), torch.zeros(3), None, r"scores is torch.float32 of shape \(3,\)"),
        (torch.zeros(3, 0), torch.zeros(3, 0), None, r"of shape \(3, 0\)"),
        (
            torch.zeros(3, 2),
            torch.zeros(2, 3),
            None,
            r"labels has shape \(2, 3\), but that of scores, \(3, 2\)",
        ),
        (torch.zeros(3, 2), torch.full((3, 2), 0.5), None, "labels has the value 0.5 at row 0, column 0"),
        (torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(3, 2), "mask is torch.float32"),
    ],
)
def test_bad_input_raises_one_sentence(scores, labels, mask, sentence):
    with pytest.raises(InputError, match=sentence):
        MacroAUC().update(scores, labels, mask)


def test_other_bad_input():
    metric = MacroAUC()
    metric.update(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(InputError, match="scores has 2 columns in one batch or process and 3 in another"):
        metric.update(torch.zeros(2, 2), torch.zeros(2, 2))
    with pytest.raises(InputError, match="average is 'micro'"):
        MacroAUC(average="micro")
    with pytest.raises(InputError, match="ties is 'no'"):
        MacroAUC(ties="no")
    metric.reset()
    metric.update(torch.full((2, 3), torch.nan), torch.zeros(2, 3))
    with pytest.raises(InputError, match="scores has the value nan at row 0, column 0"):
        metric.compute()


def test_an_unknown_label_may_hold_anything():
    metric = MacroAUC(average=None)
    labels, mask = torch.tensor([[1.0], [0.0], [torch.nan]]), torch.tensor([[True], [True], [False]])
    metric.update(torch.tensor([[2.0], [1.0], [torch.nan]]), labels, mask)
    assert metric.compute().tolist() == 1.0  # torchmetrics makes one value of a vector of one
