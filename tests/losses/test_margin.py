"""The margin family against explicit loops over pairs (Eq. 4, first line) and over cells."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses.margin import MarginLoss, margin_loss, margins

REWEIGHTS = ("dataset", "batch", "mixed", "none")
BASES = ("logistic", "hinge", "squared-hinge", "exponential")


def base_loss(base: str, z: float) -> float:
    if base == "logistic":
        return math.log1p(math.exp(-abs(z))) + max(-z, 0.0)
    if base == "exponential":
        return math.exp(-z)
    return max(0.0, 1.0 - z) ** (2 if base == "squared-hinge" else 1)


def loop_margin(positive, negative, k, margin, power, margin_count) -> float:
    count = positive[k] if margin_count == "positive" else min(positive[k], negative[k])
    return 0.0 if margin == 0 else margin / count**power


def loop_loss(
    logits,
    labels,
    positive,
    negative,
    *,
    margin,
    reweight,
    base,
    power=0.25,
    margin_count="positive",
    scale=1.0,
    mask=None,
    groups=None,
    group_weights=None,
):
    """Compute specification.md#margin-loss with a loop over groups, classes and rows, in Python floats."""
    rows, classes = logits.shape
    mask = np.ones((rows, classes), dtype=bool) if mask is None else mask
    groups = np.zeros(rows, dtype=int) if groups is None else groups
    group_weights = np.ones(groups.max() + 1) if group_weights is None else group_weights
    total, asked = 0.0, reweight
    for g in range(len(group_weights)):
        if asked == "mixed":
            reweight = "batch" if g == len(group_weights) - 1 else "dataset"
        terms, cells, contributing_classes, defined = 0.0, 0, 0, 0
        for k in range(classes):
            contributing = [r for r in range(rows) if groups[r] == g and mask[r, k]]
            contributing_classes += bool(contributing)
            cells += len(contributing)
            up = [r for r in contributing if labels[r, k] == 1]
            down = [r for r in contributing if labels[r, k] == 0]
            defined += bool(up) and bool(down)
            degenerate = positive[k] == 0 or negative[k] == 0
            if degenerate and (margin > 0 or asked in ("dataset", "mixed")):
                continue
            width = loop_margin(positive, negative, k, margin, power, margin_count)
            ups = [base_loss(base, logits[r, k] - width) for r in up]
            downs = [base_loss(base, -logits[r, k] - width) for r in down]
            if reweight == "dataset" and contributing:
                n = positive[k] + negative[k]
                terms += n / len(contributing) * (sum(ups) / positive[k] + sum(downs) / negative[k])
            elif reweight == "batch" and up and down:
                terms += sum(ups) / len(up) + sum(downs) / len(down)
            elif reweight == "none":
                terms += sum(ups) + sum(downs)
        over = {"dataset": contributing_classes, "batch": defined, "none": cells}[reweight]
        total += group_weights[g] * terms / over if over else 0.0
    return scale * total


def sample(seed, rows=9, classes=5, prevalence=0.4):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 2
    labels = (rng.random((rows, classes)) < prevalence).astype(np.uint8)
    return rng, logits, labels


def tensors(*arrays):
    return tuple(torch.tensor(a) for a in arrays)


def full_data(seed=0, rows=30, classes=4):
    rng, logits, labels = sample(seed, rows, classes)
    labels[0], labels[1] = 1, 0  # every class has positives and negatives
    return rng, logits, labels


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("margin", [0.0, 1.0, 3.5])
@pytest.mark.parametrize("margin_count", ["positive", "minority"])
def test_full_data_set_is_the_sum_over_all_pairs(base, margin, margin_count):
    """Eq. 4, first line: (1/K) sum_k 1/(P N) sum over D+ x D- of l(f_p - D) + l(-f_q - D)."""
    _, logits, labels = full_data()
    counts = LabelCounts.of(labels)
    expected = 0.0
    for k in range(labels.shape[1]):
        width = loop_margin(counts.positive, counts.negative, k, margin, 0.25, margin_count)
        up, down = np.flatnonzero(labels[:, k] == 1), np.flatnonzero(labels[:, k] == 0)
        pairs = [
            base_loss(base, logits[p, k] - width) + base_loss(base, -logits[q, k] - width)
            for p, q in itertools.product(up, down)
        ]
        expected += sum(pairs) / (len(up) * len(down)) / labels.shape[1]
    for reweight in ("dataset", "batch"):  # the same thing when the batch is the whole data set
        loss = MarginLoss(counts, margin=margin, reweight=reweight, base=base, margin_count=margin_count)
        assert loss(*tensors(logits, labels)).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("reweight", REWEIGHTS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("margin", [0.0, 2.0])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_batches_equal_the_loop(reweight, base, margin, grouped, masked):
    for seed in range(3):
        rng, logits, labels = sample(seed)
        positive, negative = (
            rng.integers(0, 6, 5),
            rng.integers(0, 9, 5),
        )  # zeros: undefined classes
        options = {"margin": margin, "reweight": reweight, "base": base, "scale": 0.5, "power": 0.3}
        mask = rng.random(logits.shape) < 0.6 if masked else None
        groups = np.array([3, 0, 0, 1, 3, 3, 1, 0, 3]) if grouped else None  # group 2 is absent
        for weights in (None, rng.random(5) if grouped else rng.random(1)):
            given_ = {"mask": mask, "groups": groups, "group_weights": weights}
            expected = loop_loss(logits, labels, positive, negative, **options, **given_)
            as_tensors = {key: None if a is None else torch.from_numpy(a) for key, a in given_.items()}
            found = margin_loss(*tensors(logits, labels, positive, negative), **options, **as_tensors)
            assert found.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(0, 7),
    st.integers(1, 4),
    st.sampled_from(REWEIGHTS),
    st.sampled_from([0.0, 1.0]),
    st.floats(0, 1),
)
def test_any_shape_mask_and_grouping_equals_the_loop(seed, rows, classes, reweight, margin, contributing):
    rng, logits, labels = sample(seed, rows, classes)
    positive, negative = rng.integers(0, 4, classes), rng.integers(0, 4, classes)
    mask, groups, weights = rng.random(logits.shape) < contributing, rng.integers(0, 3, rows), rng.random(3)
    options = {"margin": margin, "reweight": reweight, "base": "logistic"}
    expected = loop_loss(
        logits,
        labels,
        positive,
        negative,
        **options,
        mask=mask,
        groups=groups,
        group_weights=weights,
    )
    f = torch.from_numpy(logits).requires_grad_()
    found = margin_loss(
        f,
        *tensors(labels, positive, negative),
        **options,
        mask=torch.from_numpy(mask),
        groups=torch.from_numpy(groups),
        group_weights=torch.from_numpy(weights),
    )
    assert found.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)
    found.backward()
    assert torch.isfinite(f.grad).all()
    assert (f.grad[~torch.from_numpy(mask)] == 0).all()


@pytest.mark.parametrize("reweight", REWEIGHTS)
def test_groups_add_up_to_the_losses_of_their_rows(reweight):
    rng, logits, labels = full_data(3)
    counts = LabelCounts.of(labels)
    groups, weights = rng.integers(0, 3, len(labels)), np.array([1.0, 0.25, 2.0])
    loss = MarginLoss(counts, reweight=reweight)
    whole = loss(
        *tensors(logits, labels), groups=torch.from_numpy(groups), group_weights=torch.from_numpy(weights)
    )
    alone = [reweight] * 3 if reweight != "mixed" else ["dataset", "dataset", "batch"]
    parts = [
        MarginLoss(counts, reweight=how)(*tensors(logits[groups == g], labels[groups == g])).item()
        for g, how in enumerate(alone)
    ]
    assert whole.item() == pytest.approx(float(weights @ parts), rel=1e-12)


def test_dataset_weights_are_unbiased_over_a_partition_into_batches():
    rng, logits, labels = full_data(1)
    loss = MarginLoss(LabelCounts.of(labels), margin=1.0)
    whole = loss(*tensors(logits, labels)).item()
    order = rng.permutation(len(labels)).reshape(6, 5)
    batches = [loss(*tensors(logits[rows], labels[rows])).item() for rows in order]
    assert np.std(batches) > 0.01
    assert np.mean(batches) == pytest.approx(whole, rel=1e-12)


def test_batch_weights_are_not_unbiased():
    """The paper's text and the released code differ, as specification.md#released-code says."""
    rng, logits, labels = full_data(1)
    loss = MarginLoss(LabelCounts.of(labels), margin=1.0, reweight="batch")
    order = rng.permutation(len(labels)).reshape(6, 5)
    batches = [loss(*tensors(logits[rows], labels[rows])).item() for rows in order]
    assert abs(np.mean(batches) - loss(*tensors(logits, labels)).item()) > 0.01


def test_no_weights_and_no_margin_is_bce():
    _, logits, labels = sample(4)
    labels[:, 2] = 0
    f, y = torch.from_numpy(logits).float(), torch.from_numpy(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a class without positives is no matter here
        loss = MarginLoss(LabelCounts.of(labels), margin=0, reweight="none")
    torch.testing.assert_close(loss(f, y), F.binary_cross_entropy_with_logits(f, y.float()), rtol=0, atol=0)
    everything = torch.ones_like(y, dtype=torch.bool)
    torch.testing.assert_close(loss(f, y, mask=everything), F.binary_cross_entropy_with_logits(f, y.float()))


@pytest.mark.parametrize("reweight", REWEIGHTS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients(reweight, base, masked):
    rng, logits, labels = sample(7, rows=5, classes=3)
    positive, negative = torch.tensor([3, 0, 2]), torch.tensor([4, 7, 5])
    given_ = {}
    if masked:
        given_ = {
            "mask": torch.from_numpy(rng.random(logits.shape) < 0.7),
            "groups": torch.tensor([0, 1, 1, 0, 0]),
            "group_weights": torch.tensor([0.5, 2.0]),
        }
    y = torch.from_numpy(labels)
    f = torch.from_numpy(logits).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: margin_loss(x, y, positive, negative, reweight=reweight, base=base, **given_), (f,)
    )


@pytest.mark.parametrize("reweight", REWEIGHTS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("masked", [False, True])
def test_huge_logits_stay_finite(reweight, base, masked):
    _, _, labels = full_data()
    sign = torch.from_numpy(np.random.default_rng(0).choice([-1.0, 1.0], labels.shape)).float()
    f = (sign * 1e4).requires_grad_()
    mask = torch.from_numpy(np.random.default_rng(1).random(labels.shape) < 0.5) if masked else None
    loss = MarginLoss(LabelCounts.of(labels), reweight=reweight, base=base)(
        f, torch.from_numpy(labels), mask=mask
    )
    loss.backward()
    assert loss.isfinite()
    assert loss > 1
    assert f.grad.isfinite().all()
    assert f.grad.abs().sum() > 0


def test_masked_cells_cannot_reach_the_loss():
    _, logits, labels = full_data()
    f = torch.from_numpy(logits)
    f[3, 1], f[4, 2] = math.nan, math.inf
    mask = f.isfinite()
    f.requires_grad_()
    loss = MarginLoss(LabelCounts.of(labels))(f, torch.from_numpy(labels), mask=mask)
    loss.backward()
    assert loss.isfinite()
    assert f.grad[3, 1] == 0
    assert f.grad[4, 2] == 0


def nothing_valid():
    y = torch.tensor([[1, 0], [1, 0]])
    yield "batch", y, None  # no class has positives and negatives
    for reweight in REWEIGHTS:
        yield reweight, y, torch.zeros(2, 2, dtype=torch.bool)  # nothing contributes
        yield reweight, y[:0], None  # no rows


@pytest.mark.parametrize(("reweight", "labels", "mask"), list(nothing_valid()))
@pytest.mark.parametrize("base", BASES)
def test_nothing_to_judge_is_a_zero_with_a_zero_gradient(reweight, labels, mask, base):
    f = torch.full(labels.shape, -1e4, requires_grad=True)
    loss = MarginLoss(LabelCounts.of([[1, 0], [0, 1]]), reweight=reweight, base=base)(f, labels, mask=mask)
    assert loss.item() == 0
    loss.backward()
    assert (f.grad == 0).all()


def test_classes_without_a_sign_give_no_loss_and_one_warning():
    data = np.array([[1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 1, 0]])
    _, logits, labels = sample(2, rows=6, classes=4)
    labels[0], labels[1] = 1, 0
    f = torch.from_numpy(logits).requires_grad_()
    for reweight, margin in (
        ("dataset", 0.0),
        ("mixed", 0.0),
        ("dataset", 1.0),
        ("batch", 1.0),
        ("none", 1.0),
    ):
        with pytest.warns(UserWarning, match=r"columns \[1, 2\]") as caught:
            loss = MarginLoss(LabelCounts.of(data), reweight=reweight, margin=margin)
        assert len(caught) == 1
        f.grad = None
        loss(f, torch.from_numpy(labels)).backward()
        assert (f.grad[:, [1, 2]] == 0).all()
        assert (f.grad[:, [0, 3]] != 0).all()


def test_only_counts_that_are_used_are_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MarginLoss(LabelCounts.of([[1, 0], [0, 0]]), margin=0, reweight="batch")
        # classes of tasks to come are not counted yet, and are no fault of the data
        MarginLoss(LabelCounts.of([[1], [0]]).place([1], 3))


def test_margins_of_the_paper():
    positive, negative = torch.tensor([1, 16, 81, 0]), torch.tensor([80, 65, 1, 81])
    torch.testing.assert_close(margins(positive, negative, margin=3), torch.tensor([3.0, 1.5, 1.0, 3.0]))
    found = margins(positive, negative, margin=3, margin_count="minority", power=0.5)
    torch.testing.assert_close(found, torch.tensor([3.0, 0.75, 3.0, 3.0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("label_dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64])
def test_dtypes(dtype, label_dtype):
    _, logits, labels = full_data()
    f = torch.from_numpy(logits).to(dtype).requires_grad_()
    loss = MarginLoss(LabelCounts.of(labels))(f, torch.from_numpy(labels).to(label_dtype))
    expected = loop_loss(
        f.detach().double().numpy(),
        labels,
        *(LabelCounts.of(labels).positive, LabelCounts.of(labels).negative),
        margin=1.0,
        reweight="dataset",
        base="logistic",
    )
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.backward()
    assert f.grad.dtype == dtype
    assert f.grad.isfinite().all()


def test_a_module_cast_to_half_keeps_its_counts():
    _, logits, labels = full_data(rows=3000)
    f, y = tensors(logits, labels)
    loss = MarginLoss(LabelCounts.of(labels))
    expected = loss(f, y)
    torch.testing.assert_close(loss.to(torch.bfloat16)(f, y), expected, rtol=0, atol=0)
    assert loss.state_dict() == {}  # the counts live with the data, not with the weights


def test_one_module_serves_several_dtypes_in_turn():
    _, logits, labels = full_data()
    f, y = tensors(logits, labels)
    loss = MarginLoss(LabelCounts.of(labels))
    first, single, again = loss(f, y), loss(f.float(), y), loss(f, y)
    assert first == again
    assert (single.dtype, again.dtype) == (torch.float32, torch.float64)


def test_one_module_serves_several_devices_in_turn():
    _, logits, labels = full_data()
    f, y = tensors(logits, labels)
    loss = MarginLoss(LabelCounts.of(labels))
    assert loss(f.to("meta"), y.to("meta")).device.type == "meta"
    assert loss(f, y).device.type == "cpu"


def test_the_module_equals_the_function():
    rng, logits, labels = full_data(5)
    counts = LabelCounts.of(labels)
    options = {"margin": 2.0, "reweight": "batch", "base": "hinge", "power": 0.5, "margin_count": "minority"}
    given_ = {"groups": torch.from_numpy(rng.integers(0, 2, len(labels)))}
    module = MarginLoss(counts, **options, scale=3.0)(*tensors(logits, labels), **given_)
    function = margin_loss(
        *tensors(logits, labels, counts.positive, counts.negative), **options, scale=3.0, **given_
    )
    assert module == function


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": -1}, "margin is -1; expected a number of at least 0"),
        ({"margin": math.nan}, "margin is nan"),
        ({"margin": "1"}, "margin is '1'"),
        ({"power": -0.25}, "power is -0.25"),
        ({"scale": math.inf}, "scale is inf"),
        ({"reweight": "data-set"}, r"reweight is 'data-set'; expected one of: dataset, batch, mixed, none"),
        ({"base": "logistc"}, "base is 'logistc'.* Did you mean 'logistic'"),
        ({"margin_count": "negative"}, "margin_count is 'negative'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        MarginLoss(LabelCounts.of([[1], [0]]), **options)
    with pytest.raises(InputError, match=message):
        margin_loss(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([1]), torch.tensor([1]), **options)


def test_counts_of_different_length_are_refused():
    with pytest.raises(InputError, match=r"positive has shape \(2,\) and negative \(1,\)"):
        margin_loss(torch.zeros(2, 2), torch.zeros(2, 2), torch.tensor([1, 1]), torch.tensor([1]))
