"""The training loop (Algorithm 1 of the paper), from top to bottom.

`train` is the loop; `Learner` is what it works on: network, memory, parts, and the position in the stream. For each
task the current batch and a memory batch go through the network together; every row is judged on the classes that
the label policy gives it; the losses of the tasks are added with the memory weights; at the end of the task the memory
is updated and every task is tested.
"""

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
from torch import Tensor, nn

from mlcl.batches import EpochPlan, Normaliser, enlarged, gather, plan_epoch, reduced, slices
from mlcl.config import Config, TrainConfig, options
from mlcl.errors import InputError
from mlcl.evaluation import Measured
from mlcl.labels import LabelCounts
from mlcl.learner_state import State, load_state, take_state
from mlcl.losses import LOSSES
from mlcl.memories import Memory, TaskSamples
from mlcl.methods.joint import joint_task
from mlcl.methods.parts import build_memory, build_parts
from mlcl.methods.step import Step, TaskContext
from mlcl.models import (
    IncrementalAttentionHead,
    Network,
    Outputs,
    RunningAverage,
    build_model,
    fast_layout,
    frozen_copy,
    share_statistics,
)
from mlcl.observers import Observer
from mlcl.processes import join
from mlcl.provenance import mark_leak
from mlcl.seeds import derive_seed, numpy_generator, torch_generator
from mlcl.streams import Benchmark, Task


class TrainingError(RuntimeError):
    """Training cannot go on: the loss is no longer a finite number."""


def train(learner: Learner, *, observer: Observer | None = None) -> Learner:
    """Learn the tasks one after the other, from where the learner stands, and test all of them after each.

    Two learners with equal arguments give identical numbers on a CPU, also if one was saved and loaded on its way.
    """
    observer = learner.processes.together(observer or Observer())
    for stage in learner.stages[learner.task :]:
        if not learner.in_task:
            learner.start_task(stage)
        observer.on_task_start(learner, stage, len(learner.plan))
        while learner.epoch < learner.epochs:
            started = time.perf_counter()
            learner.start_epoch(stage)
            while learner.step < len(learner.plan):
                loss = learner.learn(*learner.plan.step(learner.step))
                observer.on_step(learner, loss)
            observer.on_epoch(learner, learner.epoch_loss / len(learner.plan), time.perf_counter() - started)
            learner.finish_epoch()
        learner.finish_task(stage)
        observer.on_task_end(learner)
    return learner


class Learner:
    """A network with its memory on its way through a stream of tasks.

    Attributes:
        stages: the tasks to learn; one with all classes for joint training.
        epochs: epochs of a stage.
        task: number of the task being learnt, or of the next one between tasks.
        epoch: number of epochs done in the task.
        step: number of steps done in the epoch.
        in_task: whether a task is being learnt, or the next one is still to start.
        network: the network.
        memory: samples of earlier tasks.
        measured: what was measured so far.
        counts: P_k and N_k of every class in its own task; zero where not met yet.
    """

    plan: EpochPlan
    context: TaskContext

    def __init__(self, config: Config, benchmark: Benchmark, *, pretrained: bool = True) -> None:
        """Build all parts; without ``pretrained`` such weights are not loaded, as a state will be right after."""
        data, seed = benchmark.dataset, config.seed
        classes = len(data.classes)
        self.config, self.benchmark, self.data = config, benchmark, data
        self.joint = config.protocol == "joint"
        self.stages = [joint_task(benchmark)] if self.joint else list(benchmark.tasks)
        # Joint training gets the epochs of all tasks together, so that it is a ceiling at equal compute.
        self.epochs = config.train.epochs * (len(benchmark.tasks) if self.joint else 1)
        self.task = self.epoch = self.step = 0
        self.in_task = False
        self.epoch_loss = self.spent = 0.0
        self.measured = Measured()
        self.parts = build_parts(config, suits=data.augmentation)
        self.memory: Memory = build_memory(config)
        check_downscale(config.memory.downscale, data.train.inputs.shape[1:])
        self.processes = join(config.train)
        self.fabric, self.device = self.processes.fabric, self.processes.fabric.device
        if config.train.threads is not None:
            torch.set_num_threads(config.train.threads)
        self.network: Network = build_model(
            config.model.kind,
            data.train.inputs.shape[1:],
            classes,
            seed=derive_seed(seed, "model"),
            load=False,
            **options(config.model),
        ).to(self.device)
        if pretrained:
            self.load_pretrained()
        self.layout = fast_layout(self.network)
        self.network.to(memory_format=self.layout)  # type: ignore[call-overload]
        if self.processes.size > 1:
            self.network = share_statistics(self.network, self.device)
        self.outputs = Outputs(self.network, compile=config.train.compile)
        normalise = config.train.normalise and not self.network.backbone.normalises
        normaliser = Normaliser.fit(data.train, normalise=normalise)
        self.normaliser = replace(normaliser, layout=self.layout).to(self.device)
        self.labels = torch.from_numpy(np.array(data.train.labels)).to(self.device)
        self.task_of_class = torch.full((classes,), -1, device=self.device)
        self.counts = LabelCounts.of(np.zeros((0, classes), np.uint8))

    def load_pretrained(self) -> None:
        """Load the backbone's pre-trained weights, if the config names any; warn if they know the benchmark."""
        backbone = self.network.backbone
        backbone.load_pretrained()
        names = (self.data.name, self.config.benchmark)
        mark_leak(backbone.provenance, data=names, classes=len(self.data.classes))

    def start_task(self, stage: Task) -> None:
        """Take in the classes and constants of a task; optimiser and schedule start anew (SPEC 3)."""
        self.network.eval()
        teacher = frozen_copy(self.network) if self.parts.needs_teacher and stage.index > 0 else None
        self.enter(stage, teacher)
        self.parts.labels.start_task(self.context)
        self.parts.regulariser.start_task(self.context)
        self.start_epoch(stage)

    def enter(self, stage: Task, teacher: Network | None) -> None:
        """Set up everything of a task that follows from the task alone."""
        config, settings = self.config, self.config.train
        self.task, self.epoch, self.step, self.in_task = stage.index, 0, 0, True
        self.epoch_loss, self.spent, self.started = 0.0, 0.0, time.perf_counter()
        old = self.task_of_class >= 0
        self.add_classes(stage)
        with warnings.catch_warnings():
            # Classes of later tasks have no counts yet; classes without a sign were told when the stream was made.
            warnings.simplefilter("ignore", UserWarning)
            self.criterion = LOSSES.build(config.loss.kind, self.counts, **options(config.loss)).to(
                self.device
            )
        self.context = TaskContext(
            index=stage.index,
            classes=self._tensor(stage.classes),
            seen=self.task_of_class >= 0,
            old=old,
            model=self.network,
            teacher=teacher,
            batches=lambda: self._task_batches(stage),
            generator=torch_generator(config.seed, "parts", stage.index),
            lr=settings.lr,
        )
        optimiser = make_optimiser(settings, [p for p in self.network.parameters() if p.requires_grad])
        self.model, self.optimiser = self.fabric.setup(self.outputs, optimiser)
        self.weights = self._memory_weights(stage)
        self.stored = self._stored_logits() if self.parts.regulariser.needs_stored else None
        decay = settings.average
        self.average = None if decay is None else RunningAverage(self.network, decay=decay)

    def add_classes(self, stage: Task) -> None:
        """Take note of a task's classes and constants; an attention head grows by a session."""
        self.task_of_class[self._tensor(stage.classes)] = stage.index
        self.counts = self.counts + stage.counts.place(stage.classes, len(self.counts))
        if isinstance(self.network.head, IncrementalAttentionHead):
            self.network.head.add_session(stage.classes)

    def start_epoch(self, stage: Task) -> None:
        """Draw the batches of an epoch and set its learning rate."""
        settings = self.config.train
        self.lr = learning_rate(settings, self.epoch, self.epochs)
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr
        self.plan = plan_epoch(
            stage.train,
            self.memory,
            numpy_generator(self.config.seed, "batches", stage.index, self.epoch),
            task=stage.index,
            batch_size=settings.batch_size,
            memory_batch=self.config.memory.batch_size or settings.batch_size,
            sampling=self.config.memory.sampling,
            join=True,
        )
        self.network.train()

    def learn(self, rows: NDArray[np.int64], tags: NDArray[np.int64], slots: NDArray[np.int64]) -> float:
        """Make one step and return the loss.

        Of several processes each sends its share of the rows through the network, and has the logits of all.

        Args:
            rows: row numbers in the training split, [B].
            tags: the number of each row's task.
            slots: its place in the memory, -1 for rows of the current task.
        """
        share = self.processes.share(len(rows))
        raw = self._stored(gather(self.data.train.inputs, rows[share.rows]), slots[share.rows] >= 0)
        if self.parts.augment is not None:
            position = (self.task, self.epoch, self.step)
            raw = self.parts.augment(raw, torch_generator(self.config.seed, "augment", *position), share)
        inputs = self.normaliser(raw.to(self.device))
        groups = self._tensor(tags)
        own = self.task_of_class == groups[:, None]
        known = self.labels[self._tensor(rows)] * own  # labels of other tasks are not known
        of_all = partial(self.processes.gather_outputs, total=len(rows))
        logits, embeddings = of_all(*self._forward(inputs))
        stored = None
        if self.stored is not None and (slots >= 0).any():
            stored = self.stored[self._tensor(slots)]  # -1: the last line, which says nothing
        step = Step(self.context, inputs, logits, embeddings, stored, of_all)
        targets, mask = self.parts.labels.targets(known.to(logits.dtype), own, step)
        # A class that rows of all tasks are judged on belongs to its own task.
        groups = self.task_of_class.clamp_min(0)[None] if self.parts.labels.across_tasks else groups
        loss = self.criterion(logits, targets, mask=mask, groups=groups, group_weights=self.weights)
        penalty = self.parts.regulariser.penalty(step)
        if penalty is not None:
            loss = loss + penalty
        value: float = loss.item()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss became {value} in task {self.task}, epoch {self.epoch}, step {self.step}; "
                f"a lower train.lr (now {self.config.train.lr:g}) may help."
            )
        self.optimiser.zero_grad()
        self.fabric.backward(loss)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        self.step += 1
        self.epoch_loss += value
        return value

    def _stored(self, raw: Tensor, in_memory: NDArray[np.bool_]) -> Tensor:
        """Return inputs with those in memory as they are stored there."""
        factor = self.config.memory.downscale
        if factor > 1 and in_memory.any():
            raw[in_memory] = enlarged(reduced(raw[in_memory], factor), factor)
        return raw

    def _forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        try:
            outputs: tuple[Tensor, Tensor] = self.model(inputs)
        except ValueError as error:  # of batch normalisation: one row and a map of one pixel have no spread
            if len(inputs) > 1:
                raise
            raise TrainingError(
                f"task {self.task} has a step of one row, from which {self.config.model.kind} cannot learn ({error}); "
                f"larger images, or a train.batch_size (now {self.config.train.batch_size}) above 1, may help."
            ) from None
        return outputs

    def finish_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.step, self.epoch_loss = self.epoch + 1, 0, 0.0

    def finish_task(self, stage: Task) -> None:
        """Update the memory, let the regulariser look back, and test all tasks."""
        if self.average is not None:
            self.average.give()
        self.network.eval()
        labels = self.data.train.labels[stage.train][:, stage.classes]
        samples = TaskSamples.of(stage.index, stage.classes, stage.train, labels)
        if self.parts.regulariser.needs_stored:
            logits = self._of_task(self.network, stage)
            logits[:, ~self.context.seen.cpu().numpy()] = np.nan  # the network knows nothing of later classes
            samples = replace(samples, extra={"logits": logits})
        features = self._of_task(self.network.features, stage) if self.memory.needs_features else None
        self.memory.update(samples, features=features)
        self.parts.regulariser.end_task(self.context)
        learnt = len(self.benchmark.tasks) if self.joint else stage.index + 1
        self.measured.add(self.predict(self.data.test.inputs), self.benchmark, learnt=learnt)
        self.measured.task_seconds.append(self.spent + time.perf_counter() - self.started)
        self.task, self.epoch, self.step, self.in_task = stage.index + 1, 0, 0, False

    def state(self) -> State:
        """Return all that is needed to go on from here; random numbers follow from seed and position."""
        return take_state(self)

    def load_state(self, state: State) -> None:
        """Go to where ``state`` was taken; the learner must be new, of the same config and benchmark."""
        load_state(self, state)

    def predict(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits of all K classes, [n, K]."""
        return self._evaluate(self.network, inputs, np.arange(len(inputs)))

    def _evaluate(
        self, function: Callable[[Tensor], Tensor], inputs: NDArray[Any], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Apply a function of the network to rows of an array; the processes take turns with the batches."""
        self.network.eval()
        found = []
        with torch.inference_mode():
            for piece, counts in self.processes.pieces(slices(len(rows), self.config.train.eval_batch_size)):
                own = function(self.normaliser(gather(inputs, rows[piece]).to(self.device)))
                found.append(self.processes.gather(own, counts).float().cpu())
        return torch.cat(found).numpy()

    def _of_task(self, function: Callable[[Tensor], Tensor], stage: Task) -> NDArray[np.float32]:
        """Apply a function of the network to a task's training data."""
        return self._evaluate(function, self.data.train.inputs, stage.train)

    def _stored_logits(self) -> Tensor:
        """Return the logits of all rows of the memory, and a last line of nan for rows that are in none."""
        table = np.full((len(self.memory) + 1, len(self.data.classes)), np.nan, np.float32)
        if len(self.memory):
            stored = np.concatenate([samples.extra["logits"] for samples in self.memory.tasks])
            table[:-1, : stored.shape[1]] = stored  # an extended run has more classes than those before it
        return torch.from_numpy(table).to(self.device)

    def _task_batches(self, stage: Task) -> Iterator[tuple[Tensor, Tensor]]:
        """Go through a task's training data in order, without augmentation; labels of other tasks are zero."""
        own = self.task_of_class == stage.index
        for piece in slices(len(stage.train), self.config.train.eval_batch_size):
            rows = stage.train[piece]
            inputs = self.normaliser(gather(self.data.train.inputs, rows).to(self.device))
            yield inputs, self.labels[self._tensor(rows)].float() * own

    def _memory_weights(self, stage: Task) -> Tensor:
        """Return w_i for all tasks up to the current one (SPEC 3); the current task has weight 1."""
        weights = torch.ones(stage.index + 1)
        kind, scale = self.config.memory.weight, self.config.memory.weight_scale
        if kind == "mean" and stage.index > 0:
            weights[:-1] = 1 / stage.index  # Eq. 19: one term for the batch, one for the memory
        elif kind == "size":
            stored = torch.tensor([len(samples.rows) for samples in self.memory.tasks])
            weights[:-1] = (1.0 if scale is None else scale) * stored / len(stage.train)
        return weights.to(self.device)

    def _tensor(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def check_downscale(factor: int, shape: tuple[int, ...]) -> None:
    """Refuse to store inputs smaller than they can be.

    >>> check_downscale(3, (3, 32, 32))
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: memory.downscale is 3, but the inputs are 3 x 32 x 32; expected images with sides it divides
    """
    if factor > 1 and (len(shape) != 3 or shape[1] % factor or shape[2] % factor):
        raise InputError(
            f"memory.downscale is {factor}, but the inputs are {' x '.join(map(str, shape))}; "
            "expected images with sides it divides"
        )


def learning_rate(settings: TrainConfig, epoch: int, epochs: int) -> float:
    """Return the rate of an epoch of a task.

    >>> [round(learning_rate(TrainConfig(lr=1, schedule="cosine"), epoch, 4), 2) for epoch in range(4)]
    [1.0, 0.85, 0.5, 0.15]
    """
    if settings.schedule == "cosine":
        return settings.lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
    drops = [math.ceil(share * epochs) for share in settings.lr_drops]
    return settings.lr * settings.lr_factor ** sum(drop <= epoch for drop in drops)


def make_optimiser(settings: TrainConfig, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser of a task."""
    if settings.optimiser == "adam":
        betas = (settings.momentum, 0.999)
        return torch.optim.Adam(parameters, lr=settings.lr, betas=betas, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        parameters,
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        # One kernel: a half to a quarter of the time, and on a CPU the same bits.
        fused=parameters[0].device.type in ("cpu", "cuda"),
    )
