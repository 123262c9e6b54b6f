"""The state of a tagger, and how it learns from one more call: the paper's method on feature vectors.

The rows of a call were annotated for some classes, the *label set* of the call. Rows with the same label set form one
task, even if they come in several calls; a class outside the label set is unknown for these rows, not negative.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.config.schema import TrainConfig
from mlcl.datasets.base import ConcatRows, Split
from mlcl.errors import InputError
from mlcl.labels import LabelCounts, Labels
from mlcl.losses import build_loss
from mlcl.losses.margin import margins
from mlcl.memories import Memory, TaskSamples, joined_task, own_rows
from mlcl.metrics import LogOddsLines
from mlcl.models import Network, build_model
from mlcl.models.network import grown
from mlcl.seeds import derive_seed, numpy_generator
from mlcl.sklearn.held_out import HeldOut, choose_held_out
from mlcl.sklearn.linear import solve_linear, weigh
from mlcl.training.batches import Normaliser, gather, plan_epoch, slices
from mlcl.training.optimisation import (
    TrainingError,
    learning_rate,
    make_optimiser,
    memory_weights,
    set_learning_rate,
)

Ids = NDArray[np.int64]
Inputs = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """How to learn.

    Attributes:
        model: options of the network, with its name as ``kind``.
        memory_size: the largest number of rows to store.
        margin: lambda of the margins.
        train: optimiser and learning-rate schedule of a call; of a linear network its weight decay alone.
        held_out: share of the rows of a call that are not trained on, for probabilities and thresholds.
    """

    model: dict[str, Any]
    memory_size: int
    margin: float
    train: TrainConfig
    held_out: float = 0.0

    @property
    def is_linear(self) -> bool:
        """Return whether classes share no weight: each is then solved from the rows annotated for it."""
        return bool(self.model["kind"] == "linear")


@dataclass(frozen=True, eq=False)
class Learnt:
    """The state of a tagger. A call returns a new one and leaves this one unchanged.

    Attributes:
        network: from normalised inputs to the logits of all K classes.
        normaliser: fitted to the rows of the first call.
        memory: the samples stored of each label set, one task per label set; its rows are indices into ``inputs``.
        inputs: the stored rows, raw, ``[M, D]``.
        label_sets: class numbers of each label set, ascending.
        counts: label counts of all K classes, each over the rows that were annotated for it.
        held_out: rows that were not trained on, at most as many as the memory may store.
        lines: from the network's logits to log-odds, per class.
        model: the options that the network was built with, and its name as ``kind``.
        seed: seed of all random draws.
        calls: number of calls so far.
    """

    network: Network
    normaliser: Normaliser
    memory: Memory
    inputs: Inputs
    label_sets: tuple[Ids, ...]
    counts: LabelCounts
    held_out: HeldOut
    lines: LogOddsLines
    model: dict[str, Any]
    seed: int
    calls: int

    @property
    def annotated(self) -> NDArray[np.bool_]:
        """Return which of the K classes each label set contains, bool ``[sets, K]``."""
        marks = np.zeros((len(self.label_sets), len(self.counts)), np.bool_)
        for row, ids in zip(marks, self.label_sets, strict=True):
            row[ids] = True
        return marks


def begin(x: Inputs, settings: Settings, *, seed: int) -> Learnt:
    """Return the state of a tagger without classes, whose normaliser is fitted to ``x``."""
    normaliser = Normaliser.fit(Split(x, np.zeros((len(x), 0), np.uint8)), normalise=True)
    nothing = np.zeros(0, np.int64)
    return Learnt(
        network=new_network(settings.model, x.shape[1], 1, seed),
        normaliser=normaliser,
        memory=Memory("wru", settings.memory_size),
        inputs=np.zeros((0, x.shape[1]), np.float32),
        label_sets=(),
        counts=LabelCounts(nothing, nothing, 0),
        held_out=HeldOut.empty(x.shape[1]),
        lines=LogOddsLines.identity(0),
        model=settings.model,
        seed=seed,
        calls=0,
    )


def learn(before: Learnt, x: Inputs, labels: Labels, ids: Ids, *, classes: int, settings: Settings) -> Learnt:
    """Learn from one more call and return the new state.

    Args:
        before: the state before the call.
        x: raw rows, ``[n, D]``.
        labels: 0 or 1, ``[n, len(ids)]``.
        ids: the class number of each column; new classes have numbers from K on.
        classes: the number of classes after the call.
        settings: how to learn.
    """
    if settings.model != before.model:
        raise InputError(
            f"the network is {settings.model}, but the first partial_fit had {before.model}; expected the same, or a "
            f"call of fit"
        )
    ids, labels = np.sort(ids), labels[:, np.argsort(ids)]
    share = settings.held_out if settings.memory_size else 0.0
    rng = numpy_generator(before.seed, "held-out", before.calls)
    aside = choose_held_out(labels, share, rng)
    held_out = before.held_out.add(
        x[aside], labels[aside], ids, classes=classes, most=settings.memory_size, rng=rng
    )
    x, labels = x[~aside], labels[~aside]
    known, stored = len(before.counts), len(before.inputs)
    number = next((i for i, one in enumerate(before.label_sets) if np.array_equal(one, ids)), None)
    sets = before.label_sets if number is not None else (*before.label_sets, ids)
    task = len(before.label_sets) if number is None else number
    samples = TaskSamples.of(task, ids, stored + np.arange(len(x)), labels)
    counts = before.counts.place(np.arange(known), classes) + samples.counts.place(ids, classes)
    network = new_network(before.model, x.shape[1], classes, derive_seed(before.seed, "model", before.calls))
    if known:
        old, fresh = before.network.state_dict(), network.state_dict()
        network.load_state_dict({name: grown(value, fresh[name]) for name, value in old.items()})
    inputs: Any = ConcatRows(before.inputs, x)
    now = replace(
        before, network=network, inputs=inputs, label_sets=sets, counts=counts, calls=before.calls + 1
    )
    (_solve if settings.is_linear else _train)(now, samples, settings)
    memory = _remember(before.memory, samples, settings.memory_size, before.seed, before.calls)
    kept = inputs[memory.rows]
    memory.tasks = tuple(own_rows(memory))
    held_out = held_out.scored(logits(now, held_out.inputs))
    lines = held_out.lines(counts)
    return replace(now, memory=memory, inputs=kept, held_out=held_out, lines=lines)


def new_network(model: dict[str, Any], width: int, classes: int, seed: int) -> Network:
    """Return an untrained network."""
    options = {name: value for name, value in model.items() if name != "kind"}
    return build_model(model["kind"], (width,), classes, seed=seed, **options)


def _train(now: Learnt, samples: TaskSamples, settings: Settings) -> None:
    """Train the network on the rows of a call together with rows of the memory (Algorithm 1 of the paper)."""
    train, network, call = settings.train, now.network, now.calls - 1
    labels = _wide_labels(now.memory, samples, len(now.counts))
    annotated, memory = torch.from_numpy(now.annotated), now.memory
    stored = np.bincount(memory.task_of_row, minlength=len(now.label_sets))
    past = [int(task) for task in np.flatnonzero(stored) if task != samples.task]
    weights = torch.ones(len(now.label_sets))
    weights[[*past, samples.task]] = memory_weights("mean", stored[past].tolist(), len(samples))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # the tagger itself warns of classes without positives or negatives
        criterion = build_loss("rldam", now.counts, margin=settings.margin)
    optimiser = make_optimiser(train, network)
    network.train()
    for epoch in range(train.epochs):
        set_learning_rate(optimiser, learning_rate(train, epoch, train.epochs))
        plan = plan_epoch(
            samples.rows,
            memory,
            numpy_generator(now.seed, "batches", call, epoch),
            task=samples.task,
            batch_size=train.batch_size,
            memory_batch=train.batch_size,
            sampling="uniform",
        )
        for step in range(len(plan)):
            rows, tasks, _ = plan.step(step)
            groups = torch.from_numpy(tasks)
            found = network(now.normaliser(gather(now.inputs, rows)))
            loss: Tensor = criterion(
                found,
                labels[torch.from_numpy(rows)],
                mask=annotated[groups],
                groups=groups,
                group_weights=weights,
            )
            if not math.isfinite(loss.item()):
                raise TrainingError(
                    f"the loss became {loss.item()} in epoch {epoch}, step {step}; nothing was learnt from this call, "
                    f"and a lower lr (now {train.lr:g}) may help."
                )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    network.eval()


def _solve(now: Learnt, samples: TaskSamples, settings: Settings) -> None:
    """Solve the weights of the classes of a call, on its rows and the stored rows annotated for any of them.

    No other class changes: without a shared layer nothing is gained from training it on the few stored rows again.
    """
    classes = samples.classes
    parts = [part for part in now.memory.tasks if len(part) and np.isin(part.classes, classes).any()]
    parts.append(samples)
    rows = now.normaliser(gather(now.inputs, np.concatenate([part.rows for part in parts]))).numpy()
    positive, negative = (
        torch.from_numpy(side[classes]) for side in (now.counts.positive, now.counts.negative)
    )
    weights, biases = solve_linear(
        weigh(rows, parts, classes),
        margins=margins(positive, negative, margin=settings.margin).double().numpy(),
        penalty=settings.train.weight_decay / np.maximum(now.counts.positive[classes], 1.0),
    )
    ids = torch.from_numpy(classes)
    with torch.no_grad():
        state = now.network.state_dict()
        state["head.linear.weight"][ids] = torch.from_numpy(weights).float()
        state["head.linear.bias"][ids] = torch.from_numpy(biases).float()


def _wide_labels(memory: Memory, samples: TaskSamples, classes: int) -> Tensor:
    """Return the labels of stored rows, then of new rows, in the columns of all classes; unknown labels are 0."""
    wide = np.zeros((len(memory) + len(samples), classes), np.uint8)
    for part in (*memory.tasks, samples):
        wide[np.ix_(part.rows, part.classes)] = part.labels
    return torch.from_numpy(wide)


def _remember(memory: Memory, samples: TaskSamples, size: int, seed: int, call: int) -> Memory:
    """Select the rows to keep by WRU; rows of a known label set join those stored of it, with equal weight."""
    rest = tuple(part for part in memory.tasks if part.task != samples.task)
    for part in memory.tasks:
        if part.task == samples.task:
            samples = joined_task(part, samples)
    fresh = Memory("wru", size, seed=derive_seed(seed, "memory", call))
    fresh.tasks = rest
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # as in _train
        fresh.update(samples)
    return fresh


def logits(learnt: Learnt, x: Inputs, *, rows: int = 4096) -> NDArray[np.float64]:
    """Return what the network says of raw rows, ``[n, K]``; rows pass through the network in chunks."""
    # In double precision, so that the score of a row does not depend on the other rows of its chunk.
    network = copy.deepcopy(learnt.network).double().eval()
    found = [torch.zeros((0, len(learnt.counts)), dtype=torch.float64)]
    with torch.inference_mode():
        for piece in slices(len(x), rows):
            raw = gather(x, np.arange(piece.start, piece.stop))
            found.append(network(learnt.normaliser(raw).double()))
    return torch.cat(found).numpy()


def scores(learnt: Learnt, x: Inputs) -> NDArray[np.float64]:
    """Return the log-odds of each class for raw rows, ``[n, K]``; the order of rows is that of the network's logits."""
    return learnt.lines.log_odds(logits(learnt, x))
