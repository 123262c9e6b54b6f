"""A learner: network, memory and parts of a method, and its position in the stream of tasks (`loop` trains it)."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.config.parts import build_memory, build_parts
from mlcl.config.schema import Config
from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.memories import Memory, TaskSamples
from mlcl.methods.step import Step, TaskContext
from mlcl.metrics import macro_auc
from mlcl.models import AvailableRows, Backbone, Network, frozen_copy
from mlcl.models.provenance import mark_leak
from mlcl.seeds import numpy_generator, torch_generator
from mlcl.streams import Benchmark, Task
from mlcl.training.batches import EpochPlan, RowInputs, as_stored, gather, plan_epoch, slices, stored_inputs
from mlcl.training.evaluation import Evaluations
from mlcl.training.heads import build_head
from mlcl.training.optimisation import Optimisation, TrainingError
from mlcl.training.portable import require_portable
from mlcl.training.setup import Setup
from mlcl.training.state import State, with_prefix

NEAR_CHANCE, NEAR_CHANCE_ROWS = 0.55, 1000
"""Below this Macro-AUC on (about so many of) a task's own training rows a run warns that it hardly learns."""


class Learner:
    """A network with its memory, somewhere in a stream of tasks.

    Attributes:
        setup: what stays: config, benchmark, tasks, network, normaliser, labels, processes.
        head: how the scores come about: by training, solved, or as a committee.
        task_index: index of the task being learnt, or of the next one between tasks.
        epoch: number of finished epochs of the task.
        step: number of finished steps of the epoch.
        in_task: whether a task is being learnt, or the next one is yet to start.
        steps: number of steps made so far, over all tasks.
        rows: number of rows that went through the network in them, rows of the memory included.
        counts: P_k and N_k of every class over the rows annotated for it; zero for classes not seen yet.
        optimisation: of the task: loss, weights of the tasks, optimiser, running average.
    """

    plan: EpochPlan
    context: TaskContext
    optimisation: Optimisation
    lr: float

    def __init__(self, config: Config, benchmark: Benchmark, *, pretrained: bool = True) -> None:
        """Build all parts; without ``pretrained`` such weights are not loaded, because a state will be right after."""
        require_portable(config.train)
        self.parts = build_parts(config, suits=benchmark.dataset.augmentation)
        self.memory: Memory = build_memory(config)
        self.setup = setup = Setup.of(config, benchmark)
        self.config, self.benchmark, self.data = config, benchmark, benchmark.dataset
        self.tasks, self.processes, self.network = setup.tasks, setup.processes, setup.network
        self.normaliser = setup.normaliser
        self.head = build_head(setup)
        # Joint training gets the epochs of all tasks together.
        self.epochs = config.train.epochs * (len(benchmark.tasks) if config.joint else 1)
        if not self.head.trains:
            self.epochs = 0
        self.task_index = self.epoch = self.step = self.steps = self.rows = 0
        self.in_task, self.epoch_loss, self.spent = False, 0.0, 0.0
        self.evaluations = Evaluations()
        self.tested: NDArray[np.float32] | None = None
        classes = len(self.data.classes)
        self.task_of_class = torch.full((classes,), -1, device=setup.device)
        self.counts = LabelCounts.of(np.zeros((0, classes), np.uint8))
        if pretrained:
            self.load_pretrained()

    def load_pretrained(self) -> None:
        """Load pre-trained weights, if the config names any; warn if they were trained on the data."""
        names = (self.data.name, self.config.benchmark)
        for backbone in self._backbones():
            backbone.load_pretrained()
            mark_leak(backbone.provenance, data=names, classes=len(self.data.classes))

    @property
    def encoder_provenance(self) -> dict[str, Any] | None:
        """Where the weights of the committee's encoder come from; None without one, or where they are its own."""
        return None if self.head.encoder is None else self.head.encoder.provenance

    def _backbones(self) -> list[Backbone]:
        """Return the network's backbone and the committee's encoder, if there is one."""
        return [self.network.backbone] + ([] if self.head.encoder is None else [self.head.encoder])

    def start_task(self, task: Task) -> None:
        """Add the classes and constants of a task; optimiser and learning-rate schedule start anew."""
        begun = time.perf_counter()
        self.network.eval()
        if task.index == 0:
            self._fit_backbones(task)
        compares = self.parts.needs_teacher or self.head.needs_teacher
        self._enter(task, frozen_copy(self.network) if compares and task.index > 0 else None)
        self.started = begun
        self.parts.labels.start_task(self.context)
        self.parts.regulariser.start_task(self.context)
        self.start_epoch(task)

    def _fit_backbones(self, task: Task) -> None:
        """Show the first task's inputs to backbones that learn from them; warn of fixed ones with random weights."""
        names = [self.config.model.kind, self.config.committee.encoder]
        normalisers = [self.normaliser, self.head.encoder_inputs]
        trained = self.network.backbone if self.head.trains else None
        for backbone, name, normaliser in zip(self._backbones(), names, normalisers, strict=False):
            own = backbone.fits or backbone.provenance or not [*backbone.parameters()]
            if backbone is not trained and not own:
                warnings.warn(
                    f"model {name!r} has random weights, which the exact learner does not train: its "
                    "features are a random map.",
                    UserWarning,
                    stacklevel=3,
                )
            if backbone.fits:
                backbone.fit(
                    RowInputs(self.data.train.inputs, task.train, normaliser),
                    generator=torch_generator(self.config.seed, "fit"),
                    mirror="flip" in self.data.augmentation,
                )

    def _enter(self, task: Task, teacher: Network | None) -> None:
        """Set up everything of a task that follows from the task alone."""
        self.task_index, self.epoch, self.step, self.in_task = task.index, 0, 0, True
        self.epoch_loss, self.spent, self.started = 0.0, 0.0, time.perf_counter()
        old = self.task_of_class >= 0
        self._add_classes(task)
        self.context = TaskContext(
            index=task.index,
            classes=self.setup.tensor(task.classes),
            seen=self.task_of_class >= 0,
            old=old,
            model=self.network,
            teacher=teacher,
            batches=lambda: self._task_batches(task),
            generator=torch_generator(self.config.seed, "parts", task.index),
            lr=self.config.train.lr,
        )
        self.optimisation = Optimisation(self.setup, task, self.counts, self.memory)
        self.stored = self._stored_logits() if self.parts.regulariser.needs_stored else None

    def _add_classes(self, task: Task) -> None:
        """Add a task's classes and constants; a head of sessions grows by one."""
        self.task_of_class[self.setup.tensor(task.classes)] = task.index
        self.counts = self.counts + task.counts.place(task.classes, len(self.counts))
        self.network.head.add_session(task.classes)

    def start_epoch(self, task: Task) -> None:
        """Draw the batches of an epoch and set its learning rate."""
        self.head.start_task(
            task, memory=self.memory, counts=self.counts, balanced=self.optimisation.balanced
        )
        self.lr = self.optimisation.start_epoch(self.epoch, self.epochs)
        settings, memory = self.config.train, self.config.memory
        self.plan = plan_epoch(
            task.train,
            (self.memory.rows, self.memory.task_of_row),
            numpy_generator(self.config.seed, "batches", task.index, self.epoch),
            task=task.index,
            batch_size=settings.batch_size,
            memory_batch=memory.batch_size or settings.batch_size,
            sampling=memory.sampling,
            join=True,
        )

    def learn(self, rows: NDArray[np.int64], tags: NDArray[np.int64], slots: NDArray[np.int64]) -> float:
        """Make one step and return the loss.

        With several processes each sends its share of the rows through the network, and has the logits of all.

        Args:
            rows: row numbers in the training split, [B].
            tags: the index of each row's task.
            slots: its place in the memory, -1 for rows of the current task.
        """
        step = self._forward(rows, tags, slots)
        loss = step.loss()
        for penalty in (self.parts.regulariser.penalty(step), self.head.penalty(step)):
            loss = loss if penalty is None else loss + penalty
        value: float = loss.item()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss became {value} in task {self.task_index + 1}, epoch {self.epoch + 1}, step {self.step + 1}; "
                f"a lower train.lr (now {self.config.train.lr:g}) may help."
            )
        self.optimisation.step(loss, lambda: self.parts.regulariser.after_backward(step))
        self.step += 1
        self.steps, self.rows = self.steps + 1, self.rows + len(rows)
        self.epoch_loss += value
        return value

    def _forward(self, rows: NDArray[np.int64], tags: NDArray[np.int64], slots: NDArray[np.int64]) -> Step:
        """Send rows through the network, and settle which cells contribute to the loss with which targets."""
        inputs = self._inputs(rows, slots)
        groups = self.setup.tensor(tags)
        known, own = self.setup.known.of_rows(self.setup.tensor(rows), groups)
        of_all = partial(self.processes.gather_outputs, total=len(rows))
        logits, embeddings = of_all(*self.optimisation.outputs(inputs))
        known = known.to(logits.dtype)
        stored = None
        if self.stored is not None and (slots >= 0).any():
            stored = self.stored[self.setup.tensor(slots)]  # -1: the last line, which is all nan
        step = Step(
            self.context, inputs, logits, embeddings, stored, of_all, rows, slots, known=known, own=own
        )
        step.labels, step.mask = self.parts.labels.targets(known, own, step)
        # A class to which rows of all tasks contribute belongs to its own task.
        step.groups = self.task_of_class.clamp_min(0)[None] if self.parts.labels.across_tasks else groups
        step.criterion, step.weights = self.optimisation.criterion, self.optimisation.weights
        return step

    def _inputs(self, rows: NDArray[np.int64], slots: NDArray[np.int64]) -> Tensor:
        """Return the inputs of this process's share of some rows, as stored where they are the memory's, augmented."""
        share = self.processes.share(len(rows))
        raw = gather(self.data.train.inputs, rows[share.rows])
        raw = as_stored(raw, slots[share.rows] >= 0, self.config.memory.downscale)
        if self.parts.augment is not None:
            position = (self.task_index, self.epoch, self.step)
            raw = self.parts.augment(raw, torch_generator(self.config.seed, "augment", *position), share)
        return self.normaliser(raw.to(self.setup.device))

    def finish_epoch(self) -> None:
        """Move on to the next epoch."""
        self.epoch, self.step, self.epoch_loss = self.epoch + 1, 0, 0.0

    def finish_task(self, task: Task) -> None:
        """Update the memory, let head and regulariser look back, and evaluate all tasks."""
        self.optimisation.finish()
        self._check_finite()
        self.network.eval()
        if not self.head.trains:
            self.rows += len(task.train)
        labels, known = self.setup.known.of_task(task)
        extra = {} if self.data.train.known is None or known is None else {"known": known}
        samples = TaskSamples(task.index, task.classes, task.counts, task.train, labels, extra)
        apply = partial(self._of_available, task)
        teacher = self.context.teacher
        self.head.finish_task(task, AvailableRows(samples, known, self.memory, self.network, teacher, apply))
        self._update_memory(samples)
        self.parts.regulariser.end_task(self.context)
        self._warn_near_chance(task)
        learnt = len(self.benchmark.tasks) if self.config.joint else task.index + 1
        self.tested = self.head.scores("test", np.arange(len(self.data.test)))
        threshold = self.config.decision_threshold
        self.evaluations.add(self.tested, self.benchmark, learnt=learnt, threshold=threshold)
        self.evaluations.task_seconds.append(self.spent + time.perf_counter() - self.started)
        self.task_index, self.epoch, self.step, self.in_task = task.index + 1, 0, 0, False

    def _update_memory(self, samples: TaskSamples) -> None:
        """Let the memory choose among a task's rows, with what it asks for and what the regulariser stores."""
        of_task, wanted = partial(self.setup.of_train, rows=samples.rows), {}
        if self.parts.regulariser.needs_stored:
            logits = of_task(self.network)
            logits[:, ~self.context.seen.cpu().numpy()] = np.nan  # the network knows nothing of later classes
            samples = replace(samples, extra={**samples.extra, "logits": logits})
        if "features" in self.memory.needs:
            wanted["features"] = of_task(self.network.features)
        if {"logits", "losses"} & set(self.memory.needs):
            logits = of_task(self.network)[:, samples.classes]
            losses = np.logaddexp(0, logits) - samples.labels * logits
            wanted |= {
                name: each
                for name, each in (("logits", logits), ("losses", losses))
                if name in self.memory.needs
            }
        self.memory.update(samples, **wanted)

    def _check_finite(self) -> None:
        """Refuse to evaluate a network that diverged in its last step, whose loss was still a number."""
        for name, value in self.network.state_dict().items():
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise TrainingError(
                    f"the network diverged: {name} is no longer finite after task {self.task_index + 1}, epoch "
                    f"{self.epoch}; a lower train.lr (now {self.config.train.lr:g}) may help."
                )

    def _warn_near_chance(self, task: Task) -> None:
        """Warn if the network does not even rank the rows that it was trained on."""
        rows = task.train[:: max(1, len(task.train) // NEAR_CHANCE_ROWS)]
        scores = self.head.scores("train", rows)[:, task.classes]
        found = macro_auc(scores, **self.data.train.cells(rows, task.classes))
        if found < NEAR_CHANCE:
            warnings.warn(
                f"after task {task.index + 1} the Macro-AUC on its training rows is {100 * found:.1f}, where chance is "
                "50: the network has hardly learnt; more epochs, another train.lr or a larger loss.scale may help.",
                UserWarning,
                stacklevel=2,
            )

    def predict(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the scores of all K classes, [n, K]."""
        return self.setup.scorer(self.head.module, inputs)

    def test_scores(self) -> NDArray[np.float32]:
        """Return the logits of all test rows after the last task that was learnt, [n, K]."""
        if self.tested is None:  # resumed after the last task
            self.tested = self.head.scores("test", np.arange(len(self.data.test)))
        return self.tested

    def held_out_scores(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the logits of training rows that are in no task, [len(rows), K]."""
        return self.setup.of_train(self.head.module, rows)

    def _of_available(self, task: Task, function: Callable[[Tensor], Tensor]) -> NDArray[np.float32]:
        """Apply a function of the network to a task's training data, and then to the memory's, as it is stored."""
        found = self.setup.of_train(function, task.train)
        if not len(self.memory):
            return found
        factor = self.config.memory.downscale
        stored = stored_inputs(self.data.train.inputs, self.memory.rows, factor)
        return np.concatenate([found, self.setup.scorer(function, stored)])

    def _stored_logits(self) -> Tensor:
        """Return the logits of all rows of the memory, and a last line of nan for rows that are not in it."""
        table = np.full((len(self.memory) + 1, len(self.data.classes)), np.nan, np.float32)
        if len(self.memory):
            stored = np.concatenate([samples.extra["logits"] for samples in self.memory.tasks])
            table[:-1, : stored.shape[1]] = stored  # an extended run has more classes than those before it
        return self.setup.tensor(table)

    def _task_batches(self, task: Task) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over a task's training data in order, without augmentation; see `TaskContext`."""
        for piece in slices(len(task.train), self.config.train.eval_batch_size):
            rows = task.train[piece]
            inputs = self.normaliser(gather(self.data.train.inputs, rows).to(self.setup.device))
            tags = torch.full((len(rows),), task.index, device=self.setup.device)
            labels, known = self.setup.known.of_rows(self.setup.tensor(rows), tags)
            unknown = self.setup.known.of_tasks[tags] & ~known
            yield inputs, labels.float().masked_fill(unknown, torch.nan)

    def state(self) -> State:
        """Return all that is needed to resume from here; random numbers follow from seed and position."""
        tensors = with_prefix("network", self.network.state_dict())
        tensors |= {f"memory.{name}": torch.from_numpy(value) for name, value in self.memory.state().items()}
        tensors |= with_prefix("regulariser", self.parts.regulariser.state())
        tensors |= with_prefix("exact", self.head.state()) | with_prefix(
            "committee", self.head.members.state_dict()
        )
        tables = self.evaluations.tables().items()
        tensors |= {f"measured.{name}": torch.from_numpy(value) for name, value in tables}
        tensors |= {"normaliser.scale": self.normaliser.scale, "normaliser.shift": self.normaliser.shift}
        values: dict[str, Any] = {
            "position": [self.task_index, self.epoch, self.step, self.in_task],
            "epoch_loss": self.epoch_loss,
            "spent": self.spent + time.perf_counter() - self.started if self.in_task else 0.0,
            "pooled": self.evaluations.pooled,
            "task_seconds": self.evaluations.task_seconds,
            "labels": self.parts.labels.state(),
            "updates": 0,
            "compute": [self.steps, self.rows],
            "weights": self.network.backbone.provenance,
            "encoder_weights": self.encoder_provenance,
        }
        if self.in_task:
            if self.context.teacher is not None:
                tensors |= with_prefix("teacher", self.context.teacher.state_dict())
            found, values["updates"] = self.optimisation.state()
            tensors |= found
        if (scaler := self._scaler()) is not None:
            values["scaler"] = scaler.state_dict()
        return State(tensors, values)

    def load_state(self, state: State) -> None:
        """Move to where ``state`` was taken; the learner must be new, of the same config and benchmark.

        A state that does not fit is an `InputError`, or whatever PyTorch raises; the learner is of no use then.
        """
        task_index, epoch, step, in_task = state.values["position"]
        if not 0 <= task_index <= len(self.tasks) - bool(in_task):
            raise InputError(
                f"the state stands after {task_index} tasks, but there are {len(self.tasks)} tasks."
            )
        tables = {name: table.numpy() for name, table in state.section("measured").items()}
        shape = (len(self.benchmark.tasks), len(self.data.classes))
        self.evaluations = Evaluations.restore(tables, state.values, tasks=task_index, shape=shape)
        stored = {name: value.cpu().numpy() for name, value in state.section("memory").items()}
        state = State(
            {name: value.to(self.setup.device, copy=True) for name, value in state.tensors.items()},
            state.values,
        )
        self.normaliser.load(**state.section("normaliser"))
        self.memory = Memory.from_state(stored)
        self._check_memory(task_index)
        for task in self.tasks[:task_index]:
            self._add_classes(task)
        self.parts.regulariser.load_state(state.section("regulariser"))
        self.head.load_state(state.section("exact"))
        self.head.members.load_state_dict(state.section("committee"))
        self.parts.labels.load_state(state.values["labels"])
        for name, backbone in zip(("weights", "encoder_weights"), self._backbones(), strict=False):
            backbone.provenance = state.values.get(name)
        self.task_index = task_index
        self.steps, self.rows = state.values.get("compute", [0, 0])
        if in_task:
            taught = state.section("teacher")
            teacher = frozen_copy(self.network) if taught else None
            if teacher is not None:
                teacher.load_state_dict(taught)
            self._enter(self.tasks[task_index], teacher)
        self.network.load_state_dict(state.section("network"))
        if in_task:
            self._load_position(state, epoch, step)
        if (scaler := self._scaler()) is not None and "scaler" in state.values:
            scaler.load_state_dict(state.values["scaler"])

    def _load_position(self, state: State, epoch: int, step: int) -> None:
        """Move to an epoch and step of the task that was entered."""
        self.epoch, self.step = epoch, step
        self.epoch_loss, self.spent = state.values["epoch_loss"], state.values["spent"]
        self.optimisation.load_state(state)
        self.start_epoch(self.tasks[self.task_index])
        if not (0 <= epoch <= self.epochs and 0 <= step <= len(self.plan)):
            raise InputError(
                f"the state stands at epoch {epoch}, step {step}, but a task has {self.epochs} epochs of "
                f"{len(self.plan)} steps."
            )

    def _check_memory(self, tasks: int) -> None:
        """Refuse a memory that is not one of the first ``tasks`` tasks of this benchmark."""
        rows, found = self.memory.rows, [samples.task for samples in self.memory.tasks]
        fits = found == [task.index for task in self.tasks[:tasks]] and all(
            np.array_equal(samples.classes, task.classes)
            for samples, task in zip(self.memory.tasks, self.tasks, strict=False)
        )
        if not fits or (len(rows) and not 0 <= rows.min() <= rows.max() < len(self.data.train)):
            raise InputError(
                f"the memory holds {len(rows)} rows of tasks {found}; they are not of this stream."
            )

    def _scaler(self) -> Any:
        """Return what scales the loss in half precision, or None."""
        return getattr(self.processes.fabric.strategy.precision, "scaler", None)
