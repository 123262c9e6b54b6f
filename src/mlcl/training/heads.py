"""How the scores of a run come about: by training alone, by solving the head, or as a committee of both.

Each way is a class with the interface of `TrainedHead`; the learner calls it at the start of a task, in every step and
at the end of a task, and asks it for scores. A head of a network that computes something when a task ends needs no
class here: see `mlcl.models.Head.finish_task`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlcl.arrays import section
from mlcl.errors import InputError
from mlcl.exact import ExactLearner
from mlcl.exact.features import unusual
from mlcl.labels import LabelCounts
from mlcl.losses import LOSSES
from mlcl.memories import Memory
from mlcl.methods.regularisers.distillation import distillation_loss
from mlcl.methods.step import Step
from mlcl.metrics.scaling import prior_shift
from mlcl.models import AvailableRows, Backbone, LinearHead, build_committee
from mlcl.models.committee import ENCODER, MOMENTS
from mlcl.seeds import derive_seed
from mlcl.streams import Task
from mlcl.training.batches import Normaliser, Rows, stored_inputs
from mlcl.training.scoring import FeatureCache, Floats, feature_caches
from mlcl.training.setup import Setup
from mlcl.training.solving import AnalyticSums, ExactSums, ScoreScale, write_weights
from mlcl.training.state import with_prefix


class TrainedHead:
    """The head learns by gradients, like all of the network, whose outputs are the scores.

    Attributes:
        module: what scores inputs.
        members: the layers of it that are not the network's, if there are any.
        sums: by name, what is solved.
        caches: by split, features under a backbone that does not change.
        encoder: a fixed backbone beside that of the network.
        encoder_inputs: how raw inputs become those of the encoder.
        trains: whether steps are made at all.
        needs_teacher: whether the network as it was before a task is needed at its end.
    """

    trains = True
    needs_teacher = False
    encoder: Backbone | None = None

    def __init__(self, setup: Setup) -> None:
        self.setup, self.encoder_inputs = setup, setup.normaliser
        self.module: nn.Module = setup.network
        self.members = nn.Module()
        self.sums: dict[str, ExactSums | AnalyticSums] = {}
        self.caches: dict[str, FeatureCache] = {}

    def start_task(self, task: Task, *, memory: Memory, counts: LabelCounts, balanced: bool) -> None:
        """Prepare for a task, also where a run goes on inside it; may be called again in the same task.

        Args:
            balanced: whether the network learns log-odds at equal numbers of positives and negatives, or at those of
                the tasks.
        """

    def penalty(self, step: Step) -> Tensor | None:  # noqa: ARG002
        """Return what is added to the loss of a step, or None for nothing."""
        return None

    def finish_task(self, task: Task, rows: AvailableRows) -> None:  # noqa: ARG002
        """Look back at a learnt task; scores are those of all tasks so far from now on."""
        self.setup.network.head.finish_task(rows)

    def scores(self, split: Literal["train", "test"], rows: Rows) -> Floats:
        """Return the scores of all K classes for rows of a split."""
        return self.setup.scorer(self.module, getattr(self.setup.data, split).inputs, rows)

    def state(self) -> dict[str, Tensor]:
        """Return all that is kept in sums, as tensors by name."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the sums from what `state` returned; what does not fit is an `InputError`."""

    def choices(self) -> dict[str, dict[str, float]]:
        """Return what each solved layer was solved with last, ``auto`` or not; L3A chooses nothing."""
        found = {name: sums.choice for name, sums in self.sums.items()}
        return {
            name: {"unlabelled": one.unlabelled, "ridge": one.ridge, "exponent": one.exponent}
            for name, one in found.items()
            if one is not None
        }


class SolvedHead(TrainedHead):
    """Nothing is trained: the weights of the head follow from sums over the features of a fixed backbone."""

    trains = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        exact, backbone = setup.config.exact, setup.network.backbone
        self.linear = cast(LinearHead, setup.network.head).linear
        seed = derive_seed(setup.config.seed, "exact")
        self.own: ExactSums | AnalyticSums = (
            AnalyticSums(exact, self.linear)
            if exact.solver == "l3a"
            else ExactSums(exact, self.linear, projects=backbone.projects, seed=seed)
        )
        self.sums = {"head": self.own}
        compute = partial(setup.scorer.batches, setup.network.features)
        size = setup.config.train.eval_batch_size
        self.caches = feature_caches(compute, setup.data, setup.tasks, size=size, width=backbone.width)

    def finish_task(self, task: Task, rows: AvailableRows) -> None:
        """Add the task's rows to the sums, and solve."""
        self._check_vectors(task)
        self.own.learn(self.caches["train"](task.train), rows.task.labels, task.classes, rows.known)
        self.solve()

    def solve(self) -> None:
        """Give the head the weights that follow from its sums."""
        write_weights(self.linear, *self.setup.processes.from_first(self.own.solve))

    def _check_vectors(self, task: Task) -> None:
        """Refuse vectors with a value that would ruin their column, before a normalisation hides it."""
        data = self.setup.data
        if data.kind != "images" and (large := unusual(data.train.inputs[task.train])) is not None:
            named = replace(large, row=int(task.train[large.row]))
            raise InputError(f"the training split of {self.setup.config.data!r} {named.sentence()}")

    def scores(self, split: Literal["train", "test"], rows: Rows) -> Floats:
        """Return the scores, from features that were computed once."""
        with torch.inference_mode():
            features = torch.from_numpy(self.caches[split](rows)).to(self.setup.device)
            logits: Tensor = self.setup.network.head(features)
            return logits.float().cpu().numpy()

    def state(self) -> dict[str, Tensor]:
        """Return the sums."""
        return self.own.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the sums."""
        self.own.load_state(state)


@dataclass(frozen=True)
class SoftTargets:
    """What the member on the encoder says of the rows of a task and of the memory, for the network to learn.

    For the classes that a row was not annotated for it knows more than the old network, because the rows of every task
    are among its negatives.

    Attributes:
        place: of each row of the training split among the task's rows, -1 for others.
        count: n, the number of the task's rows.
        scores: log-odds of the task's rows, then of the memory's, ``[n + m, K]``.
        defined: the classes that have two positives and two negatives so far, ``[K]``.
        compare: the loss ``ru``, by which member and network are compared on the labels that there are.
        strength: factor on the penalty.
    """

    place: Rows
    count: int
    scores: Tensor
    defined: Tensor
    compare: nn.Module
    strength: float

    def penalty(self, step: Step) -> Tensor | None:
        """Return the mean Huber loss of logits and scores over the cells without a label; None if there is none.

        It is multiplied by the ratio of the network's loss to the member's on the cells with a label, if that is below
        1: a network that is better than the member learns less from it.
        """
        cells = step.context.seen & ~step.own & self.defined
        if not bool(cells.any()):
            return None
        at = np.where(step.slots >= 0, self.count + step.slots, self.place[step.rows])
        taught = self.scores[torch.from_numpy(at).to(self.scores.device)]
        with torch.no_grad():
            mine, theirs = (
                self.compare(one, step.known, mask=step.own).item() for one in (step.logits, taught)
            )
        trust = min(1.0, mine / theirs) if theirs > 0 else 1.0
        return self.strength * trust * distillation_loss(step.logits[cells], taught[cells], distance="huber")


class CommitteeHead(TrainedHead):
    """The network is trained, and layers beside it are solved at the end of each task; the score is their mean.

    A member's scores are brought to the scale of the network's logits, class by class: the same mean and standard
    deviation over all rows so far. Those of a member follow from its sums; those of the network are estimated on the
    rows at hand, where a stored row stands for as many rows of its task as the task had per stored row. No row of a
    later task is needed.

    The member on a fixed encoder depends on nothing that the network learns, so it is solved before the network is
    trained on a task, and can then teach it (`SoftTargets`).
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        config, data, network = setup.config, setup.data, setup.network
        chosen, normaliser = config.committee, setup.normaliser
        self.committee = self.module = build_committee(
            network,
            data.train.inputs.shape[1:],
            len(data.classes),
            encoder=chosen.encoder,
            weight=chosen.weight,
            moments=chosen.moments,
            seed=derive_seed(config.seed, "encoder"),
            options=chosen.encoder_options,
        ).to(setup.device)
        self.encoder, self.members = self.committee.encoder, self.committee.members
        if self.encoder is not None and self.encoder.normalises:
            self.encoder_inputs = Normaliser.fit(data.train, normalise=False).to(setup.device)
            scale = self.encoder_inputs.scale / normaliser.scale
            shift = self.encoder_inputs.shift - normaliser.shift * scale
            self.committee.member(ENCODER).adapt(scale, shift)
        self.solved = {
            name: ExactSums(
                config.exact,
                self.committee.member(name).linear,
                projects=name == ENCODER and bool(self.encoder and self.encoder.projects),
                drifts=name == MOMENTS,
                seed=derive_seed(config.seed, "exact"),
            )
            for name in self.committee.members
        }
        self.sums.update(self.solved)
        self.needs_teacher = MOMENTS in self.sums  # features before and after a task are compared
        if self.encoder is not None:
            compute = partial(setup.scorer.batches, self.committee.member(ENCODER).features)
            size = config.train.eval_batch_size
            self.caches = feature_caches(compute, data, setup.tasks, size=size, width=self.encoder.width)
        self.targets: SoftTargets | None = None
        self.ahead: ExactLearner | None = None
        self.task = -1

    def start_task(self, task: Task, *, memory: Memory, counts: LabelCounts, balanced: bool) -> None:
        """Add the task to the sums of the encoder's member, and let it say what it has to teach."""
        if self.encoder is None or task.index == self.task:
            return
        self.task, sums, features = task.index, self.solved[ENCODER], self.caches["train"](task.train)
        labels, known = self.setup.known.of_task(task)
        self.ahead, self.targets = sums.after(features, labels, task.classes, known), None
        strength, device = self.setup.config.committee.teach, self.setup.device
        if not strength:
            return
        weights, bias, defined = self.setup.processes.from_first(
            partial(_log_odds, sums, self.ahead, balanced=balanced)
        )
        place = np.full(len(self.setup.data.train), -1)
        place[task.train] = np.arange(len(task.train))
        scores = np.concatenate([rows @ weights.T for rows in (features, self._stored(memory))]) + bias
        self.targets = SoftTargets(
            place,
            len(features),
            torch.from_numpy(scores).to(device),
            torch.from_numpy(defined).to(device),
            LOSSES.build("ru", counts).to(device),
            strength,
        )

    def _stored(self, memory: Memory) -> Floats:
        """Return the encoder's features of the memory's rows, as they are stored."""
        member, factor = self.committee.member(ENCODER), self.setup.config.memory.downscale
        if not len(memory):
            return np.zeros((0, member.linear.in_features), np.float32)
        if factor == 1:
            return self.caches["train"](memory.rows)
        return self.setup.scorer(
            member.features, stored_inputs(self.setup.data.train.inputs, memory.rows, factor)
        )

    def penalty(self, step: Step) -> Tensor | None:
        """Return what the member on the encoder teaches."""
        return None if self.targets is None else self.targets.penalty(step)

    def finish_task(self, task: Task, rows: AvailableRows) -> None:
        """Add the task to the sums of all members, and give them the weights that follow."""
        super().finish_task(task, rows)
        like = ScoreScale.of(rows.apply(self.setup.network), rows.weights)
        for name, sums in self.solved.items():
            if name == ENCODER:
                sums.learner, self.ahead, self.targets = self.ahead, None, None
            else:
                now = rows.features()
                if rows.teacher is not None:
                    sums.carry(rows.apply(rows.teacher.features), now)
                sums.learn(now[: len(task.train)], rows.task.labels, task.classes, rows.known)
            write_weights(sums.linear, *self.setup.processes.from_first(partial(sums.solve, like)))

    def scores(self, split: Literal["train", "test"], rows: Rows) -> Floats:
        """Return the scores; the encoder's features were computed once."""
        if not self.committee.shares.get(ENCODER):
            return super().scores(split, rows)
        inputs = getattr(self.setup.data, split).inputs
        found = self.setup.scorer(self.committee.of_network, inputs, rows)
        with torch.inference_mode():
            features = torch.from_numpy(self.caches[split](rows)).to(self.setup.device)
            total: Floats = found + self.committee.of_encoder(features).float().cpu().numpy()
            return total

    def state(self) -> dict[str, Tensor]:
        """Return the sums of all members."""
        found: dict[str, Tensor] = {}
        for name, sums in self.sums.items():
            found |= with_prefix(name, sums.state())
        return found

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the sums of all members."""
        for name, sums in self.sums.items():
            sums.load_state(section(state, name))


def build_head(setup: Setup) -> TrainedHead:
    """Return the way in which the scores of a run come about."""
    if setup.config.model.head == "exact":
        return SolvedHead(setup)
    return CommitteeHead(setup) if setup.config.committee else TrainedHead(setup)


def _log_odds(
    sums: ExactSums, learner: ExactLearner, *, balanced: bool
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return weights and biases of log-odds, ``balanced``: at a share of 1/2, and for which classes they say something.

    Those are the classes with two positives and two negatives: of unseen rows, one of them says nothing.
    """
    found, kept = sums.solution(learner), learner.sums
    bias = found.intercepts + (prior_shift(found.prior, np.full_like(found.prior, 0.5)) if balanced else 0.0)
    counts = kept.counts(found.choice.unlabelled)
    return found.weights.astype(np.float32), bias.astype(np.float32), np.minimum(*counts) > 1
