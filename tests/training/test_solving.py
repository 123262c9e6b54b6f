"""The exact head inside a run: features, sums, weights; against an explicit solution on the rows themselves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from helpers import SMALL, small_benchmark
from mlcl.config.resolve import config_from, merge
from mlcl.config.schema import Config, ExactConfig, ModelConfig, TrainConfig, to_dict
from mlcl.errors import InputError
from mlcl.runs.run import run
from mlcl.streams import Benchmark, joint_mask
from mlcl.training.learner import Learner
from mlcl.training.loop import train
from mlcl.training.solving import ExactSums


def exact_config(**changes):
    return config_from(
        merge({"method": "exact", "exact": {"ridge": 0.3, "exponent": 0.0, "spread": 1.0}}, changes)
    )


def learnt(benchmark, **changes):
    return train(Learner(exact_config(**changes), benchmark))


def explicit(rows, positive, annotated, unlabelled, *, ridge):
    """The direction of one class, from the rows: positives against annotated and unlabelled negatives."""
    weight = np.where(annotated, 1.0, unlabelled) * ~positive
    plus, minus = rows[positive], rows[weight > 0]
    spread = np.cov(plus.T, bias=True) + np.cov(minus.T, aweights=weight[weight > 0], bias=True)
    # More ridge for a class with few positives for the number of features.
    ridge = ridge * (1 + len(spread) / len(plus)) * np.trace(spread) / len(spread) * np.eye(len(spread))
    gap = plus.mean(0) - np.average(minus, axis=0, weights=weight[weight > 0])
    return np.linalg.solve(spread + ridge, gap)


def stream_rows(learner, benchmark):
    """All rows as the stream shows them, a row once per task that has it, with labels and what is annotated."""
    rows = np.concatenate([task.train for task in benchmark.tasks])
    inputs = learner.normaliser(torch.from_numpy(benchmark.dataset.train.inputs[rows])).double().numpy()
    annotated = np.zeros((len(rows), len(benchmark.dataset.classes)), np.bool_)
    start = 0
    for task in benchmark.tasks:
        annotated[start : start + len(task.train), task.classes] = True
        start += len(task.train)
    return inputs, benchmark.dataset.train.labels[rows].astype(np.bool_) & annotated, annotated


@pytest.mark.parametrize("unlabelled", [0.0, 0.1, 1.0])
def test_the_weights_are_those_of_the_explicit_solution_on_all_rows(unlabelled):
    benchmark = small_benchmark()
    learner = learnt(benchmark, exact={"unlabelled": unlabelled})
    inputs, positive, annotated = stream_rows(learner, benchmark)
    weights = learner.network.head.linear.weight.detach().double().numpy()
    for k, found in enumerate(weights):
        expected = explicit(inputs, positive[:, k], annotated[:, k], unlabelled, ridge=0.3)
        cosine = found @ expected / np.linalg.norm(found) / np.linalg.norm(expected)
        assert cosine > 1 - 1e-6


def test_the_order_of_the_tasks_does_not_matter_but_for_the_first():
    """The first task's rows fix the normaliser; all that follows is a sum."""
    benchmark = small_benchmark(tasks=3)
    first, second, third = benchmark.tasks
    swapped = dataclasses.replace(
        benchmark,
        tasks=(first, dataclasses.replace(third, index=1), dataclasses.replace(second, index=2)),
    )
    one, two = (learnt(tasks, exact={"ridge": "auto"}).network for tasks in (benchmark, swapped))
    torch.testing.assert_close(one.head.linear.weight, two.head.linear.weight, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(one.head.linear.bias, two.head.linear.bias, atol=1e-6, rtol=1e-5)


def test_with_joint_protocols_rows_are_annotated_for_all_classes_or_for_their_tasks():
    benchmark = small_benchmark()
    rows = np.unique(np.concatenate([task.train for task in benchmark.tasks]))
    labels = benchmark.dataset.train.labels[rows].astype(np.bool_)
    for protocol, annotated in (
        ("joint", np.ones_like(labels)),
        ("joint-masked", joint_mask(benchmark)[rows]),
    ):
        learner = learnt(benchmark, protocol=protocol)
        inputs = learner.normaliser(torch.from_numpy(benchmark.dataset.train.inputs[rows])).double().numpy()
        weights = learner.network.head.linear.weight.detach().double().numpy()
        for k, found in enumerate(weights):
            expected = explicit(inputs, labels[:, k] & annotated[:, k], annotated[:, k], 0.1, ridge=0.3)
            assert found @ expected / np.linalg.norm(found) / np.linalg.norm(expected) > 1 - 1e-6
        assert learner.evaluations.matrix[0][0] > 0.8


def test_classes_of_later_tasks_score_zero_and_old_classes_learn_from_later_rows():
    benchmark = small_benchmark()
    learner = Learner(exact_config(exact={"unlabelled": 1.0}), benchmark)
    linear = learner.network.head.linear
    learner.start_task(benchmark.tasks[0])
    learner.finish_task(benchmark.tasks[0])
    own = benchmark.tasks[0].classes
    later = np.setdiff1d(np.arange(6), own)
    assert not linear.weight[later].any()
    assert linear.weight[own].any(1).all()
    before = linear.weight[own].clone()
    learner.start_task(benchmark.tasks[1])
    learner.finish_task(benchmark.tasks[1])
    assert (linear.weight[own] != before).any(1).all()


def test_scores_are_log_odds_of_the_class():
    """Sigmoids of the scores are near the share of positives, unlike those of a raw discriminant."""
    benchmark = small_benchmark(tasks=1, n=2000)
    learner = learnt(benchmark)
    probability = 1 / (1 + np.exp(-learner.predict(benchmark.dataset.test.inputs)))
    labels = benchmark.dataset.test.labels
    np.testing.assert_allclose(probability.mean(0), labels.mean(0), atol=0.08)
    assert ((probability - labels) ** 2).mean() < 0.7 * (labels.mean(0) * (1 - labels.mean(0))).mean()


def test_a_class_without_positives_keeps_the_others_finite():
    x, y = small_benchmark().dataset.train.inputs, small_benchmark().dataset.train.labels.copy()
    y[:, 3] = 0
    with pytest.warns(UserWarning, match="cannot be learnt"):
        benchmark = Benchmark.from_arrays(x, y, x, y, tasks=3)
    learner = learnt(benchmark)
    assert not learner.network.head.linear.weight[3].any()
    assert learner.network.head.linear.weight.isfinite().all()
    assert np.isfinite(learner.predict(x)).all()


def test_nothing_is_trained_whatever_the_epochs():
    config = exact_config(train={"epochs": 5})
    assert config.train.epochs == 0
    result = run(config, benchmark=small_benchmark())
    assert result.steps == 0
    assert result.rows == sum(len(task.train) for task in small_benchmark().tasks)


def test_no_epochs_are_refused_with_any_other_head():
    with pytest.raises(InputError, match=r"train.epochs is 0; expected a number of at least 1"):
        config_from({"method": "er", "train": {"epochs": 0}})
    assert Config(train=TrainConfig(epochs=0), model=ModelConfig(head="exact")).train.epochs == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"unlabelled": 1.5},
            "exact.unlabelled is 1.5; expected a number from 0 to 1, or 'in-task' or 'pooled'",
        ),
        ({"unlabelled": float("nan")}, "exact.unlabelled is nan"),
        ({"ridge": -1.0}, "exact.ridge is -1.0; expected a number of at least 0, or 'auto'"),
        ({"exponent": 2.0}, "exact.exponent is 2.0; expected a number from 0 to 1"),
        ({"dimensions": 0}, "exact.dimensions is 0; expected a number of at least 1"),
        ({"unlabelled": "most"}, "exact.unlabelled is 'most'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        exact_config(exact=settings)


def test_settings_of_the_exact_head_are_refused_and_not_recorded_with_another_head():
    with pytest.raises(
        InputError, match=r"exact.unlabelled is 0.5, but model.head is not 'exact' and there is no"
    ):
        config_from({"method": "er", "exact": {"unlabelled": 0.5}})
    assert "exact" not in to_dict(config_from({"method": "er"}))
    assert to_dict(exact_config())["exact"]["ridge"] == 0.3


def test_the_method_chooses_what_suits_the_data_unless_the_user_does():
    assert config_from({"method": "exact", "benchmark": "c-voc-small"}).model.kind == "fixed"
    assert config_from({"method": "exact", "benchmark": "c-digits"}).model.options == {}
    assert (
        config_from({"method": "exact", "model": {"kind": "patches", "centres": 50}}).model.kind == "patches"
    )


def test_dimensions_project_features_and_patches_keep_theirs():
    benchmark = small_benchmark(images=True)
    settings = {"model": {"kind": "patches", "centres": 80, "dimensions": 300}}
    assert learnt(benchmark, **settings).head.sums["head"].learner.features.dimension == 300
    settings = {"model": {"kind": "patches", "centres": 20}, "exact": {"dimensions": 7}}
    learner = learnt(benchmark, **settings)
    assert learner.head.sums["head"].learner.features.dimension == 7
    assert learner.network.head.linear.weight.shape == (6, 100)  # folded back
    assert learner.evaluations.matrix[-1][0] > 0.7


def test_patches_are_mirrored_where_the_dataset_allows_it():
    benchmark = small_benchmark(images=True)
    for augmentation, expected in (("flip-crop", True), ("none", False)):
        data = dataclasses.replace(benchmark.dataset, augmentation=augmentation)
        tasks = dataclasses.replace(benchmark, dataset=data)
        learner = learnt(tasks, model={"kind": "patches", "centres": 10})
        assert learner.network.backbone.mirrors is expected


def test_patches_serve_a_trained_head_too():
    settings = {**SMALL, "method": "er", "model": {"kind": "patches", "centres": 30}}
    result = run(config_from(settings), benchmark=small_benchmark(images=True))
    assert result.macro_auc > 65


def test_features_are_computed_once_and_scores_are_the_networks():
    benchmark = small_benchmark(images=True)
    learner = Learner(exact_config(model={"kind": "patches", "centres": 20}), benchmark)
    seen = []
    compute = learner.head.caches["train"].compute

    def recorded(batches):
        seen.extend(np.concatenate(batches))
        return compute(batches)

    learner.head.caches["train"].compute = recorded
    train(learner)
    assert sorted(seen) == np.unique(np.concatenate([task.train for task in benchmark.tasks])).tolist()
    inputs = benchmark.dataset.test.inputs
    cached = learner.head.scores("test", np.arange(len(inputs)))
    np.testing.assert_allclose(cached, learner.predict(inputs), atol=1e-4)


def test_a_state_that_is_no_sums_is_refused():
    learner = learnt(small_benchmark())
    state = learner.head.state()
    with pytest.raises(InputError, match=r"have no 'sums.counts'"):
        learner.head.load_state({name: value for name, value in state.items() if name != "sums.counts"})
    state["sums.sums"] = state["sums.sums"][:, :2]
    with pytest.raises(InputError):
        learner.head.load_state(state)


def test_defaults_say_what_the_validation_part_chose():
    assert ExactConfig().unlabelled == 0.1
    assert ExactConfig().dimensions is None


@pytest.mark.parametrize(
    ("width", "settings", "flags", "expected"),
    [
        (300, {}, {}, (300, 48)),
        (100, {}, {"projects": True}, (100, 48)),
        (64, {}, {}, (64, None)),
        (300, {"form": "full"}, {}, (256, None)),
        (300, {}, {"drifts": True}, (256, None)),
        (300, {"form": "shared"}, {"drifts": True}, (300, 48)),
        (300, {"dimensions": 80}, {"projects": True}, (80, 48)),
    ],
)
def test_the_form_follows_from_the_features(width, settings, flags, expected):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(400, width)).astype(np.float32), rng.integers(0, 2, (400, 2), np.uint8)
    own = ExactSums(ExactConfig(**settings), torch.nn.Linear(width, 2), **flags)
    found = own.after(rows, labels, np.arange(2)).sums
    assert (found.dimension, None if found.lead is None else found.lead.shape[1]) == expected
