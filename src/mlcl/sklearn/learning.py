"""What a tagger knows, and how it learns from one more call: the paper's method on feature vectors.

A call brings rows that were annotated for some classes, its *label set*. Rows with the same label set are one task,
whenever they come; what is not in the label set is unknown, not negative.
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
from mlcl.memories import Memory, TaskSamples, joined_task, own_rows
from mlcl.models import Network, build_model
from mlcl.models.network import grown
from mlcl.seeds import derive_seed, numpy_generator
from mlcl.training.batches import Normaliser, gather, plan_epoch, slices
from mlcl.training.optimisation import TrainingError, learning_rate, make_optimiser

Ids = NDArray[np.int64]
Inputs = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """How to learn.

    Attributes:
        model: options of the network, with its name as ``kind``.
        memory_size: rows that may be stored.
        margin: lambda of the margins.
        train: optimiser and schedule of a call.
    """

    model: dict[str, Any]
    memory_size: int
    margin: float
    train: TrainConfig


@dataclass(frozen=True, eq=False)
class Learnt:
    """All that a tagger knows. A call makes a new one; this one stays as it is.

    Attributes:
        network: from normalised inputs to the logits of all K classes.
        normaliser: fitted to the rows of the first call.
        memory: what is stored of each label set, whose number is the task; its rows number ``inputs``.
        inputs: the stored rows, raw, ``[M, D]``.
        label_sets: class numbers of each label set, ascending.
        counts: of all K classes, over the rows that were annotated for them.
        model: what the network was built from: its name as ``kind``, and its options.
        seed: of everything that is drawn.
        calls: how many calls there were.
    """

    network: Network
    normaliser: Normaliser
    memory: Memory
    inputs: Inputs
    label_sets: tuple[Ids, ...]
    counts: LabelCounts
    model: dict[str, Any]
    seed: int
    calls: int

    @property
    def annotated(self) -> NDArray[np.bool_]:
        """Return for each label set which of the K classes are in it, bool ``[sets, K]``."""
        marks = np.zeros((len(self.label_sets), len(self.counts)), np.bool_)
        for row, ids in zip(marks, self.label_sets, strict=True):
            row[ids] = True
        return marks


def begin(x: Inputs, settings: Settings, *, seed: int) -> Learnt:
    """Return a tagger that knows no class yet; ``x`` says how inputs are normalised."""
    normaliser = Normaliser.fit(Split(x, np.zeros((len(x), 0), np.uint8)), normalise=True)
    nothing = np.zeros(0, np.int64)
    return Learnt(
        network=new_network(settings.model, x.shape[1], 1, seed),
        normaliser=normaliser,
        memory=Memory("wru", settings.memory_size),
        inputs=np.zeros((0, x.shape[1]), np.float32),
        label_sets=(),
        counts=LabelCounts(nothing, nothing, 0),
        model=settings.model,
        seed=seed,
        calls=0,
    )


def learn(before: Learnt, x: Inputs, labels: Labels, ids: Ids, *, classes: int, settings: Settings) -> Learnt:
    """Learn from one more call and return what is known then.

    Args:
        before: what was known.
        x: raw rows, ``[n, D]``.
        labels: 0 or 1, ``[n, len(ids)]``.
        ids: the class number of each column; new classes have numbers from K on.
        classes: the number of classes from now on.
        settings: how to learn.
    """
    if settings.model != before.model:
        raise InputError(
            f"the network is {settings.model}, but partial_fit began with {before.model}; expected the same, or a call "
            f"of fit"
        )
    ids, labels = np.sort(ids), labels[:, np.argsort(ids)]
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
    _train(now, samples, settings)
    memory = _remember(before.memory, samples, settings.memory_size, before.seed, before.calls)
    kept = inputs[memory.rows]
    memory.tasks = tuple(own_rows(memory))
    return replace(now, memory=memory, inputs=kept)


def new_network(model: dict[str, Any], width: int, classes: int, seed: int) -> Network:
    """Return a network that has learnt nothing yet."""
    options = {name: value for name, value in model.items() if name != "kind"}
    return build_model(model["kind"], (width,), classes, seed=seed, **options)


def _train(now: Learnt, samples: TaskSamples, settings: Settings) -> None:
    """Train the network on a call's rows, with rows of the memory beside them (Algorithm 1 of the paper)."""
    train, network, call = settings.train, now.network, now.calls - 1
    labels = _wide_labels(now.memory, samples, len(now.counts))
    annotated = torch.from_numpy(now.annotated)
    past = {int(task) for task in now.memory.task_of_row} - {samples.task}
    weights = torch.ones(len(now.label_sets))
    weights[list(past)] = 1 / max(len(past), 1)  # Eq. 19: one term for the call, one for the memory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes without a sign are told by name, by the tagger
        criterion = build_loss("rldam", now.counts, margin=settings.margin)
    optimiser = make_optimiser(train, list(network.parameters()))
    network.train()
    for epoch in range(train.epochs):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(train, epoch, train.epochs)
        plan = plan_epoch(
            samples.rows,
            now.memory,
            numpy_generator(now.seed, "batches", call, epoch),
            task=samples.task,
            batch_size=train.batch_size,
            memory_batch=train.batch_size,
            sampling="uniform",
        )
        for step in range(len(plan)):
            rows, tasks, _ = plan.step(step)
            groups = torch.from_numpy(tasks)
            mask = annotated[groups]
            logits = network(now.normaliser(gather(now.inputs, rows)))
            loss: Tensor = criterion(
                logits, labels[torch.from_numpy(rows)], mask=mask, groups=groups, group_weights=weights
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


def _wide_labels(memory: Memory, samples: TaskSamples, classes: int) -> Tensor:
    """Return the labels of stored rows, then of new ones, in the columns of all classes; unknown ones are 0."""
    wide = np.zeros((len(memory) + len(samples), classes), np.uint8)
    for part in (*memory.tasks, samples):
        wide[np.ix_(part.rows, part.classes)] = part.labels
    return torch.from_numpy(wide)


def _remember(memory: Memory, samples: TaskSamples, size: int, seed: int, call: int) -> Memory:
    """Choose what to keep by WRU; a label set that comes again goes on, its new and stored rows weighed alike."""
    rest = tuple(part for part in memory.tasks if part.task != samples.task)
    for part in memory.tasks:
        if part.task == samples.task:
            samples = joined_task(part, samples)
    fresh = Memory("wru", size, seed=derive_seed(seed, "memory", call))
    fresh.tasks = rest
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # as above
        fresh.update(samples)
    return fresh


def scores(learnt: Learnt, x: Inputs, *, rows: int = 4096) -> NDArray[np.float64]:
    """Return the log-odds of each class for raw rows, ``[n, K]``; rows go through the network in pieces.

    RLDAM weighs positives and negatives of a class alike, so a logit is the log of the likelihood ratio alone (Eq. 4
    as if half of all rows were positive). The class's own odds, counted over the rows that were annotated for it, are
    added; the order of rows within a class, and so its AUC, stays the same.
    """
    network = (
        copy.deepcopy(learnt.network).double().eval()
    )  # so that a row's score does not hang on its neighbours
    with torch.inference_mode():
        found = [
            network(learnt.normaliser(gather(x, np.arange(piece.start, piece.stop))).double())
            for piece in slices(len(x), rows)
        ]
    odds = (learnt.counts.positive + 1) / (learnt.counts.negative + 1)  # finite where a sign is missing yet
    return torch.cat(found).numpy() + np.log(odds)
