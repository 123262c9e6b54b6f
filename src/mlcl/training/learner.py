"""A learner: network, memory and parts of a method, and its position in the stream of tasks (`loop` trains it)."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.config.parts import build_memory, build_parts
from mlcl.config.schema import Config
from mlcl.errors import InputError
from mlcl.exact.features import unusual
from mlcl.labels import LabelCounts, Labels
from mlcl.losses import LOSSES
from mlcl.memories import Memory, TaskSamples
from mlcl.methods.joint import joint_mask, joint_task
from mlcl.methods.step import Step, TaskContext
from mlcl.metrics import macro_auc
from mlcl.models import (
    Backbone,
    LinearHead,
    Network,
    Outputs,
    RunningAverage,
    build_model,
    fast_layout,
    frozen_copy,
    share_statistics,
)
from mlcl.models.committee import ENCODER
from mlcl.models.provenance import mark_leak
from mlcl.seeds import derive_seed, numpy_generator, torch_generator
from mlcl.streams import Benchmark, Task
from mlcl.training.analytic import AnalyticHead
from mlcl.training.batches import (
    EpochPlan,
    Normaliser,
    RowInputs,
    as_stored,
    check_downscale,
    enlarged,
    gather,
    plan_epoch,
    reduced,
    slices,
)
from mlcl.training.caching import FeatureCache, feature_caches
from mlcl.training.committee import AtHand, CommitteeSolver, Lesson, row_weights
from mlcl.training.evaluation import Evaluations
from mlcl.training.freezing import freeze, frozen_layers, training_mode
from mlcl.training.optimisation import (
    TrainingError,
    class_factors,
    learning_rate,
    load_optimiser_state,
    make_optimiser,
    memory_weights,
    optimiser_state,
    set_learning_rate,
)
from mlcl.training.portable import require_portable
from mlcl.training.processes import join
from mlcl.training.solving import ExactHead
from mlcl.training.state import State, with_prefix

NEAR_CHANCE, NEAR_CHANCE_ROWS = 0.55, 1000
"""Below this Macro-AUC on (about so many of) a task's own training rows a run warns that it hardly learns."""


class Learner:
    """A network with its memory, somewhere in a stream of tasks.

    Attributes:
        tasks: the tasks to learn; a single one with all classes for joint training.
        epochs: epochs per task.
        task_index: index of the task being learnt, or of the next one between tasks.
        epoch: number of finished epochs of the task.
        step: number of finished steps of the epoch.
        in_task: whether a task is being learnt, or the next one is yet to start.
        network: the network.
        scorer: what scores inputs: the network, or the committee that it is part of.
        exact: the sums behind an exact head.
        committee: the sums behind the members of a committee.
        lesson: what the committee's member on a fixed encoder teaches the network in this task; None: nothing.
        memory: samples of earlier tasks.
        evaluations: what was measured so far.
        steps: number of steps made so far, over all tasks.
        rows: number of rows that went through the network in them, rows of the memory included.
        counts: P_k and N_k of every class over the rows annotated for it; zero for classes not seen yet.
        lr: learning rate of the epoch.
    """

    plan: EpochPlan
    context: TaskContext
    lr: float

    def __init__(self, config: Config, benchmark: Benchmark, *, pretrained: bool = True) -> None:
        """Build all parts; without ``pretrained`` such weights are not loaded, because a state will be right after."""
        require_portable(config.train)
        data, seed = benchmark.dataset, config.seed
        classes = len(data.classes)
        self.config, self.benchmark, self.data = config, benchmark, data
        self.joint, masked = config.joint, config.protocol == "joint-masked"
        self.tasks = [joint_task(benchmark, masked=masked)] if self.joint else list(benchmark.tasks)
        # Joint training gets the epochs of all tasks together.
        self.epochs = config.train.epochs * (len(benchmark.tasks) if self.joint else 1)
        if config.model.head == "exact":
            self.epochs = 0
        self.task_index = self.epoch = self.step = 0
        self.in_task = False
        self.epoch_loss = self.spent = 0.0
        self.steps = self.rows = 0
        self.evaluations = Evaluations()
        self.tested: NDArray[np.float32] | None = None
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
            head=config.model.head,
            **config.model.options,
        ).to(self.device)
        self.layout = fast_layout(self.network)
        self.network.to(memory_format=self.layout)  # type: ignore[call-overload]
        if self.processes.size > 1:
            self.network = share_statistics(self.network, self.device)
        self.frozen = frozen_layers(self.network, config.train.freeze, model=config.model.kind)
        freeze(self.frozen)
        self.outputs = Outputs(self.network, compile=config.train.compile)
        normalise = config.train.normalise and not self.network.backbone.normalises
        # On the first task's rows: a run does not know those of later tasks yet.
        normaliser = Normaliser.fit(data.train, normalise=normalise, rows=benchmark.tasks[0].train)
        self.normaliser = replace(normaliser, layout=self.layout).to(self.device)
        self.labels = torch.from_numpy(np.array(data.train.labels)).to(self.device)
        self._build_solved()
        if pretrained:
            self.load_pretrained()
        self.row_mask = torch.from_numpy(joint_mask(benchmark)).to(self.device) if masked else None
        self.task_of_class = torch.full((classes,), -1, device=self.device)
        # A class may belong to several tasks: an update brings more rows of known classes.
        self.annotated = torch.zeros((len(self.tasks), classes), dtype=torch.bool, device=self.device)
        self.counts = LabelCounts.of(np.zeros((0, classes), np.uint8))

    def _build_solved(self) -> None:
        """Build what is solved instead of trained, with caches of the features that never change."""
        config = self.config
        self.exact: ExactHead | AnalyticHead | None = None
        self.committee: CommitteeSolver | None = None
        self.caches: dict[str, FeatureCache] = {}
        self.scorer: nn.Module = self.network
        backbone, features = self.network.backbone, self.network.features
        if config.model.head == "exact":
            linear = cast(LinearHead, self.network.head).linear
            solver = AnalyticHead if config.exact.solver == "l3a" else ExactHead
            self.exact = solver(
                config.exact, linear, projects=backbone.projects, seed=derive_seed(config.seed, "exact")
            )
        elif config.committee:
            self.committee = CommitteeSolver(config, self.network, self.data.train, self.normaliser)
            self.scorer = self.committee.committee
            if self.committee.encoder is None:
                return
            backbone, features = self.committee.encoder, self.committee.committee.member(ENCODER).features
        else:
            return
        compute = partial(self._of_batches, features)
        size = config.train.eval_batch_size
        self.caches = feature_caches(compute, self.data, self.tasks, size=size, width=backbone.width)

    def load_pretrained(self) -> None:
        """Load pre-trained weights, if the config names any; warn if they were trained on the data."""
        names = (self.data.name, self.config.benchmark)
        for backbone in self._backbones():
            backbone.load_pretrained()
            mark_leak(backbone.provenance, data=names, classes=len(self.data.classes))

    @property
    def encoder_provenance(self) -> dict[str, Any] | None:
        """Where the weights of the committee's encoder come from; None without one, or where they are its own."""
        encoder = None if self.committee is None else self.committee.encoder
        return None if encoder is None else encoder.provenance

    def _backbones(self) -> list[Backbone]:
        """Return the network's backbone and the committee's encoder, if there is one."""
        encoder = None if self.committee is None else self.committee.encoder
        return [self.network.backbone] + ([] if encoder is None else [encoder])

    def start_task(self, task: Task) -> None:
        """Add the classes and constants of a task; optimiser and learning-rate schedule start anew."""
        begun = time.perf_counter()
        self.network.eval()
        if task.index == 0:
            self._fit_backbones(task)
        compares = self.parts.needs_teacher or (self.committee is not None and self.committee.needs_teacher)
        teacher = frozen_copy(self.network) if compares and task.index > 0 else None
        self.enter(task, teacher)
        self.started = begun
        self.parts.labels.start_task(self.context)
        self.parts.regulariser.start_task(self.context)
        self.begin_committee()
        self.start_epoch(task)

    def _fit_backbones(self, task: Task) -> None:
        """Show the first task's inputs to backbones that learn from them; warn of fixed ones with random weights."""
        names = [self.config.model.kind, self.config.committee.encoder]
        normalisers = [self.normaliser, self.normaliser if self.committee is None else self.committee.inputs]
        trained = self.network.backbone if self.exact is None else None
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

    def enter(self, task: Task, teacher: Network | None) -> None:
        """Set up everything of a task that follows from the task alone."""
        config, settings = self.config, self.config.train
        self.task_index, self.epoch, self.step, self.in_task = task.index, 0, 0, True
        self.epoch_loss, self.spent, self.started = 0.0, 0.0, time.perf_counter()
        old = self.task_of_class >= 0
        self.add_classes(task)
        with warnings.catch_warnings():
            # Classes of later tasks have no counts yet; of classes that lack positives or negatives the stream warned.
            warnings.simplefilter("ignore", UserWarning)
            self.criterion = LOSSES.build(config.loss.kind, self.counts, **config.loss.options).to(
                self.device
            )
        self.context = TaskContext(
            index=task.index,
            classes=self._tensor(task.classes),
            seen=self.task_of_class >= 0,
            old=old,
            model=self.network,
            teacher=teacher,
            batches=lambda: self._task_batches(task),
            generator=torch_generator(config.seed, "parts", task.index),
            lr=settings.lr,
        )
        optimiser = make_optimiser(settings, self.network)
        self.model, self.optimiser = self.fabric.setup(self.outputs, optimiser)
        stored = [0] * task.index
        for samples in self.memory.tasks:
            stored[samples.task] = len(samples)
        self.weights = memory_weights(
            config.memory.weight, stored, len(task.train), scale=config.memory.weight_scale
        )
        self.weights *= class_factors(
            [len(each.classes) for each in self.tasks[: task.index + 1]], power=settings.class_power
        )
        self.weights = self.weights.to(self.device)
        self.stored = self._stored_logits() if self.parts.regulariser.needs_stored else None
        decay = settings.average
        self.average = None if decay is None else RunningAverage(self.network, decay=decay)
        self.lesson: Lesson | None = None
        if self.committee is not None:
            self.committee.begun = None

    def add_classes(self, task: Task) -> None:
        """Add a task's classes and constants; a head of sessions grows by one."""
        ids = self._tensor(task.classes)
        self.task_of_class[ids] = task.index
        self.annotated[task.index, ids] = True
        self.counts = self.counts + task.counts.place(task.classes, len(self.counts))
        self.network.head.add_session(task.classes)

    def start_epoch(self, task: Task) -> None:
        """Draw the batches of an epoch and set its learning rate."""
        settings = self.config.train
        self.lr = learning_rate(settings, self.epoch, max(self.epochs, 1))
        set_learning_rate(self.optimiser, self.lr)
        self.plan = plan_epoch(
            task.train,
            self.memory,
            numpy_generator(self.config.seed, "batches", task.index, self.epoch),
            task=task.index,
            batch_size=settings.batch_size,
            memory_batch=self.config.memory.batch_size or settings.batch_size,
            sampling=self.config.memory.sampling,
            join=True,
        )
        training_mode(self.network, self.frozen, statistics=settings.freeze_statistics)

    def learn(self, rows: NDArray[np.int64], tags: NDArray[np.int64], slots: NDArray[np.int64]) -> float:
        """Make one step and return the loss.

        With several processes each sends its share of the rows through the network, and has the logits of all.

        Args:
            rows: row numbers in the training split, [B].
            tags: the index of each row's task.
            slots: its place in the memory, -1 for rows of the current task.
        """
        share = self.processes.share(len(rows))
        raw = gather(self.data.train.inputs, rows[share.rows])
        raw = as_stored(raw, slots[share.rows] >= 0, self.config.memory.downscale)
        if self.parts.augment is not None:
            position = (self.task_index, self.epoch, self.step)
            raw = self.parts.augment(raw, torch_generator(self.config.seed, "augment", *position), share)
        inputs = self.normaliser(raw.to(self.device))
        groups = self._tensor(tags)
        drawn = self._tensor(rows)
        own = self.annotated[groups] if self.row_mask is None else self.row_mask[drawn]
        known = self.labels[drawn] * own  # labels of other tasks are not known
        of_all = partial(self.processes.gather_outputs, total=len(rows))
        logits, embeddings = of_all(*self._forward(inputs))
        stored = None
        if self.stored is not None and (slots >= 0).any():
            stored = self.stored[self._tensor(slots)]  # -1: the last line, which is all nan
        step = Step(self.context, inputs, logits, embeddings, stored, of_all)
        targets, mask = self.parts.labels.targets(known.to(logits.dtype), own, step)
        # A class to which rows of all tasks contribute belongs to its own task.
        groups = self.task_of_class.clamp_min(0)[None] if self.parts.labels.across_tasks else groups
        loss = self.criterion(logits, targets, mask=mask, groups=groups, group_weights=self.weights)
        penalty = self.parts.regulariser.penalty(step)
        if penalty is not None:
            loss = loss + penalty
        if self.lesson is not None:
            missing = self.context.seen & ~own
            penalty = self.lesson.penalty(logits, known, own, missing, rows, slots)
            loss = loss if penalty is None else loss + penalty
        value: float = loss.item()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss became {value} in task {self.task_index + 1}, epoch {self.epoch + 1}, step {self.step + 1}; "
                f"a lower train.lr (now {self.config.train.lr:g}) may help."
            )
        self.optimiser.zero_grad()
        self.fabric.backward(loss)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        self.step += 1
        self.steps, self.rows = self.steps + 1, self.rows + len(rows)
        self.epoch_loss += value
        return value

    def _forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        try:
            outputs: tuple[Tensor, Tensor] = self.model(inputs)
        except ValueError as error:  # of batch normalisation: one row and a map of one pixel have no spread
            if len(inputs) > 1:
                raise
            raise TrainingError(
                f"task {self.task_index + 1} has a step of one row, from which {self.config.model.kind} cannot learn "
                f"({error}); larger images, or a train.batch_size (now {self.config.train.batch_size}) above 1, may "
                "help."
            ) from None
        return outputs

    def finish_epoch(self) -> None:
        """Move on to the next epoch."""
        self.epoch, self.step, self.epoch_loss = self.epoch + 1, 0, 0.0

    def finish_task(self, task: Task) -> None:
        """Update the memory, let the regulariser look back, and evaluate all tasks."""
        if self.average is not None:
            self.average.give()
        self._check_finite()
        self.network.eval()
        labels = self._labels_of(task)
        self._solve(task, labels)
        samples = TaskSamples(task.index, task.classes, task.counts, task.train, labels)
        if self.parts.regulariser.needs_stored:
            logits = self._of_task(self.network, task)
            logits[:, ~self.context.seen.cpu().numpy()] = np.nan  # the network knows nothing of later classes
            samples = replace(samples, extra={"logits": logits})
        features = self._of_task(self.network.features, task) if self.memory.needs_features else None
        self.memory.update(samples, features=features)
        self.parts.regulariser.end_task(self.context)
        self._warn_near_chance(task)
        learnt = len(self.benchmark.tasks) if self.joint else task.index + 1
        self.tested = self._scores("test", np.arange(len(self.data.test)))
        threshold = self.config.decision_threshold
        self.evaluations.add(self.tested, self.benchmark, learnt=learnt, threshold=threshold)
        self.evaluations.task_seconds.append(self.spent + time.perf_counter() - self.started)
        self.task_index, self.epoch, self.step, self.in_task = task.index + 1, 0, 0, False

    def begin_committee(self) -> None:
        """Let the committee's member on an encoder, if there is one, take the task in, unless it has."""
        if self.committee is None or self.committee.encoder is None or self.committee.begun is not None:
            return
        task, memory = self.tasks[self.task_index], self.memory
        encoded, encoder = self.caches["train"], self.committee.committee.member(ENCODER)

        def stored() -> NDArray[np.float32]:
            if not len(memory):
                return np.zeros((0, encoder.linear.in_features), np.float32)
            whole = self.config.memory.downscale == 1
            return encoded(memory.rows) if whole else self._of_memory(encoder.features)

        self.lesson = self.committee.begin(
            task,
            self._labels_of(task),
            self._annotated_of(task),
            counts=self.counts,
            balanced=bool(getattr(self.criterion, "balanced", False)),
            encoded=encoded,
            stored=stored,
            processes=self.processes,
        )

    def _labels_of(self, task: Task) -> Labels:
        """Return the labels of a task's rows and classes."""
        return self.data.train.labels[task.train][:, task.classes]

    def _annotated_of(self, task: Task) -> NDArray[np.bool_] | None:
        """Return which of them are known; None: all."""
        return None if self.row_mask is None else self.row_mask[self._tensor(task.train)].cpu().numpy()

    def _check_vectors(self, task: Task) -> None:
        """Refuse vectors with a value that would ruin their column, before a normalisation hides it."""
        if self.data.kind != "images" and (large := unusual(self.data.train.inputs[task.train])) is not None:
            named = replace(large, row=int(task.train[large.row]))
            raise InputError(f"the training rows of {self.config.data!r} {named.sentence()}")

    def _solve(self, task: Task, labels: Labels) -> None:
        """Add a task's rows to the sums, and give what is solved the weights that follow."""
        own = self._annotated_of(task)
        if self.exact is not None:
            self._check_vectors(task)
            self.exact.learn(self.caches["train"](task.train), labels, task.classes, own)
            self.rows += len(task.train)
            self.exact.write(*self.processes.from_first(self.exact.solve))
        if self.committee is not None:
            rows = AtHand(
                task=task,
                labels=labels,
                annotated=own,
                weights=row_weights(task, self.memory),
                apply=partial(self._of_rows_at_hand, task),
                teacher=self.context.teacher,
            )
            self.committee.learn(rows, self.processes)

    def _scores(self, split: Literal["train", "test"], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of all K classes for rows of a split."""
        inputs = getattr(self.data, split).inputs
        if not self.caches or (self.committee is not None and not self.committee.committee.shares[ENCODER]):
            return self._evaluate(self.scorer, inputs, rows)
        if self.committee is not None:
            found = self._evaluate(self.committee.committee.of_network, inputs, rows)
            return self.committee.add_encoded(found, self.caches[split](rows))
        with torch.inference_mode():
            features = torch.from_numpy(self.caches[split](rows)).to(self.device)
            logits: Tensor = self.network.head(features)
            return logits.float().cpu().numpy()

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
        scores = self._scores("train", rows)[:, task.classes]
        found = macro_auc(scores, self.data.train.labels[np.ix_(rows, task.classes)])
        if found < NEAR_CHANCE:
            warnings.warn(
                f"after task {task.index + 1} the Macro-AUC on its training rows is {100 * found:.1f}, where chance is "
                "50: the network has hardly learnt; more epochs, another train.lr or a larger loss.scale may help.",
                UserWarning,
                stacklevel=2,
            )

    def predict(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the scores of all K classes, [n, K]."""
        return self._evaluate(self.scorer, inputs, np.arange(len(inputs)))

    def test_scores(self) -> NDArray[np.float32]:
        """Return the logits of all test rows after the last task that was learnt, [n, K]."""
        if self.tested is None:  # resumed after the last task
            self.tested = self._scores("test", np.arange(len(self.data.test)))
        return self.tested

    def held_out_scores(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the logits of training rows that are in no task, [len(rows), K]."""
        return self._evaluate(self.scorer, self.data.train.inputs, rows)

    def _evaluate(
        self, function: Callable[[Tensor], Tensor], inputs: NDArray[Any], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Apply a function of the network to rows of an array."""
        size = self.config.train.eval_batch_size
        return self._of_batches(function, inputs, [rows[piece] for piece in slices(len(rows), size)])

    def _of_rows_at_hand(self, task: Task, function: Callable[[Tensor], Tensor]) -> NDArray[np.float32]:
        """Apply a function of the network to a task's training data, and then to the memory's, as it is stored."""
        found = self._of_task(function, task)
        return np.concatenate([found, self._of_memory(function)]) if len(self.memory) else found

    def _of_memory(self, function: Callable[[Tensor], Tensor]) -> NDArray[np.float32]:
        """Apply a function of the network to the memory's data, as it is stored."""
        factor = self.config.memory.downscale
        stored = enlarged(reduced(gather(self.data.train.inputs, self.memory.rows), factor), factor).numpy()
        return self._evaluate(function, stored, np.arange(len(stored)))

    def _of_batches(
        self, function: Callable[[Tensor], Tensor], inputs: NDArray[Any], batches: Sequence[NDArray[np.int64]]
    ) -> NDArray[np.float32]:
        """Apply a function of the network to batches of rows; the processes take turns with them."""
        self.network.eval()
        rows, ends = np.concatenate(batches), np.cumsum([len(batch) for batch in batches]).tolist()
        cuts = [slice(end - len(batch), end) for batch, end in zip(batches, ends, strict=True)]
        found = []
        with torch.inference_mode():
            for piece, counts in self.processes.pieces(iter(cuts)):
                own = function(self.normaliser(gather(inputs, rows[piece]).to(self.device)))
                found.append(self.processes.gather(own, counts).float().cpu())
        return torch.cat(found).numpy()

    def _of_task(self, function: Callable[[Tensor], Tensor], task: Task) -> NDArray[np.float32]:
        """Apply a function of the network to a task's training data."""
        return self._evaluate(function, self.data.train.inputs, task.train)

    def _stored_logits(self) -> Tensor:
        """Return the logits of all rows of the memory, and a last line of nan for rows that are not in it."""
        table = np.full((len(self.memory) + 1, len(self.data.classes)), np.nan, np.float32)
        if len(self.memory):
            stored = np.concatenate([samples.extra["logits"] for samples in self.memory.tasks])
            table[:-1, : stored.shape[1]] = stored  # an extended run has more classes than those before it
        return torch.from_numpy(table).to(self.device)

    def _task_batches(self, task: Task) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over a task's training data in order, without augmentation; labels of other tasks are zero."""
        own = self.annotated[task.index]
        for piece in slices(len(task.train), self.config.train.eval_batch_size):
            rows = task.train[piece]
            inputs = self.normaliser(gather(self.data.train.inputs, rows).to(self.device))
            yield inputs, self.labels[self._tensor(rows)].float() * own

    def _tensor(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def state(self) -> State:
        """Return all that is needed to resume from here; random numbers follow from seed and position."""
        tensors = with_prefix("network", self.network.state_dict())
        tensors |= {f"memory.{name}": torch.from_numpy(value) for name, value in self.memory.state().items()}
        tensors |= with_prefix("regulariser", self.parts.regulariser.state())
        tensors |= with_prefix("exact", self.sums())
        if self.committee is not None:
            tensors |= with_prefix("committee", self.committee.committee.members.state_dict())
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
            if self.average is not None:
                tensors |= with_prefix("average", self.average.state())
                values["updates"] = self.average.updates
            tensors |= with_prefix("optimiser", optimiser_state(self.optimiser))
            tensors |= with_prefix("loss", self.criterion.state_dict())
        if (scaler := self._scaler()) is not None:
            values["scaler"] = scaler.state_dict()
        return State(tensors, values)

    def solved(self) -> dict[str, dict[str, float]]:
        """Return what each solved layer was solved with last, ``auto`` or not: ``head``, or the members of a committee.

        Empty where nothing is solved, and for L3A, which chooses nothing.
        """
        heads = self.committee.heads if self.committee is not None else {"head": self.exact}
        found = {name: head.choice for name, head in heads.items() if isinstance(head, ExactHead)}
        return {
            name: {"unlabelled": one.unlabelled, "ridge": one.ridge, "exponent": one.exponent}
            for name, one in found.items()
            if one is not None
        }

    def sums(self) -> dict[str, Tensor]:
        """Return all that is kept in sums, as tensors by name."""
        solved = self.exact or self.committee
        return {} if solved is None else solved.state()

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
            {name: value.to(self.device, copy=True) for name, value in state.tensors.items()}, state.values
        )
        normaliser = state.section("normaliser")
        self.normaliser = replace(self.normaliser, scale=normaliser["scale"], shift=normaliser["shift"])
        self.memory = Memory.from_state(stored)
        self._check_memory(task_index)
        for task in self.tasks[:task_index]:
            self.add_classes(task)
        self.parts.regulariser.load_state(state.section("regulariser"))
        if (solved := self.exact or self.committee) is not None:
            solved.load_state(state.section("exact"))
        if self.committee is not None:
            self.committee.committee.members.load_state_dict(state.section("committee"))
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
            self.enter(self.tasks[task_index], teacher)
        self.network.load_state_dict(state.section("network"))
        if in_task:
            self._load_position(state, epoch, step)
        if (scaler := self._scaler()) is not None and "scaler" in state.values:
            scaler.load_state_dict(state.values["scaler"])

    def _load_position(self, state: State, epoch: int, step: int) -> None:
        """Move to an epoch and step of the task that was entered."""
        self.epoch, self.step = epoch, step
        self.epoch_loss, self.spent = state.values["epoch_loss"], state.values["spent"]
        load_optimiser_state(self.optimiser, state.section("optimiser"))
        self.criterion.load_state_dict(state.section("loss"))
        if self.average is not None:
            self.average.load_state(state.section("average"), updates=state.values["updates"])
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
        return getattr(self.fabric.strategy.precision, "scaler", None)
