"""The scores of a finished run made into probabilities and decisions: what they are fitted on, and what is measured.

A run's probability is that of the label in a row like those of all its tasks together. With ``held_out`` rows the lines
from logits to log-odds and the thresholds are fitted on them (docs/howto/probabilities.md); without any the lines
follow from the counts of labels, and thresholds from the sums of an exact head, or they are 0.5. `mlcl.runs.folder`
reads and writes what is defined here.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mlcl.errors import InputError, check_int
from mlcl.exact import Solution
from mlcl.exact.held_rows import MOST_BYTES, row_hashes, row_keys
from mlcl.exact.probabilities import best_thresholds
from mlcl.losses import LOSSES
from mlcl.metrics import Calibration, Goal, HeldOut, LogOddsLines, Thresholds, measure, prior_shift
from mlcl.metrics.decisions import CONFIDENCE, NEVER
from mlcl.metrics.inputs import Floats
from mlcl.metrics.scaling import share_of_positives
from mlcl.streams.benchmark import RowView
from mlcl.training.batches import slices
from mlcl.training.learner import Learner
from mlcl.training.solving import ExactSums

FORMAT = 1
FLAGS = ("own", "reached")
MOST_CELLS = 500_000
"""Of more held-out rows times classes some rows are left out: a line has two unknowns, and the folder stays small."""
AT_ONCE = 256
"""So many rows are read at once."""


class Decisions(NamedTuple):
    """How the logits of a finished run become probabilities, and these tags; and the rows that both were fitted on."""

    calibration: Calibration
    thresholds: Thresholds
    held_out: HeldOut | None


@dataclass(frozen=True, eq=False)
class Calibrated:
    """All that `calibrate` finds.

    Attributes:
        held_out: the rows that both were fitted on; None without any.
        measured: Brier score, log-loss and calibration error on the test rows: ``calibration`` in ``result.json``.
    """

    calibration: Calibration
    thresholds: Thresholds
    held_out: HeldOut | None
    measured: dict[str, Any]


def calibrate(learner: Learner, before: Decisions | None = None) -> Calibrated:
    """Fit probabilities and thresholds at the end of a run, and measure them on the test rows.

    Args:
        before: of the run that this one extends, of its first classes: the goal is kept, a class without rows of its
            own keeps its threshold, and rows that were held out are scored anew, with those of this run.
    """
    old, decided, rows = before or (None, None, None)
    start, prior = lines_in_theory(learner, old)
    held_out = _held_out(learner, rows)
    goal = (None if decided is None else decided.goal) or Goal()
    if held_out is None:
        calibration = Calibration.from_counts(start, prior)
        thresholds = _without_rows(learner, calibration, goal)
    else:
        calibration = Calibration.fit(held_out, start=start, prior=prior)
        thresholds = calibration.thresholds(held_out, goal)
    if decided is not None and not goal.certified and (held_out is not None or decided.rows):
        # Without rows both follow from sums; a certificate is of the network that it was given for.
        thresholds = _kept(thresholds, decided)
    return Calibrated(calibration, thresholds, held_out, _measured(learner, calibration))


def _kept(thresholds: Thresholds, before: Thresholds) -> Thresholds:
    """Return thresholds in which the first classes, where they have no own rows, keep those of the run before."""
    known = np.arange(len(thresholds.values)) < len(before.values)
    keep = known & ~thresholds.own
    values, own, reached = (
        np.where(keep, np.resize(getattr(before, name), len(keep)), getattr(thresholds, name))
        for name in ("values", "own", "reached")
    )
    return Thresholds(values, own, reached, thresholds.goal or before.goal, thresholds.rows or before.rows)


def _without_rows(learner: Learner, calibration: Calibration, goal: Goal) -> Thresholds:
    """Return the thresholds of a run that held out no rows: those that its sums predict, or 0.5."""
    sums = None if learner.head.trains else learner.head.sums["head"]
    if not isinstance(sums, ExactSums) or sums.learner is None:
        return Thresholds.half(len(calibration.prior))
    return predicted_thresholds(sums.solution(sums.learner), calibration, goal)


def predicted_thresholds(solution: Solution, calibration: Calibration, goal: Goal) -> Thresholds:
    """Return the thresholds for a goal as far as the moments of an exact head's scores can predict."""
    moments = solution.moments.line(calibration.lines.slope, calibration.lines.offset)
    none = np.zeros(len(calibration.prior), np.bool_)
    if goal.certified:  # what two Gaussians predict is no promise
        return Thresholds(np.full(len(none), NEVER), none, none, goal, 0)
    cuts = np.where(moments.varies, best_thresholds(moments, calibration.prior, goal), 0.0)
    return Thresholds(expit(cuts), none, ~none, goal, 0)


def lines_in_theory(learner: Learner, before: Calibration | None = None) -> tuple[LogOddsLines, Floats]:
    """Return the lines that follow from the counts of labels alone, and the share of positives of each class.

    The logits were learnt at one share of positives: 1/2 with a balanced loss, the share among the rows of the class's
    task otherwise. They are used where the share is that among the rows of all tasks, whose rows without any class of a
    task are its negatives. Where rows were annotated for the classes of their own task only (an extended run), nothing
    is known of other rows, and the share is that of the task.

    Args:
        before: of the run that this one extends; its classes are the first ones and keep what they had.
    """
    counts = learner.counts
    annotated = counts.positive + counts.negative
    inside = share_of_positives(counts.positive, annotated)
    every = np.unique(np.concatenate([task.train for task in learner.tasks]))
    known = learner.data.train.known
    rows = len(every) if known is None else known[every].sum(axis=0)
    prior = share_of_positives(counts.positive, rows if learner.benchmark.complete else annotated)
    learnt_at = np.full(len(counts), 0.5) if _is_balanced(learner) else inside
    slope, offset = np.ones(len(counts)), prior_shift(learnt_at, prior)
    if before is not None:
        old = len(before.prior)
        slope[:old], offset[:old] = before.lines.slope, before.lines.offset
        prior[:old] = before.prior
        if learner.benchmark.added:  # more rows of known classes
            ids, new = learner.tasks[-1].classes, learner.tasks[-1].counts
            ids, new = ids[ids < old], new.select(ids < old)
            positive = counts.positive[ids] - new.positive
            rows_before = np.maximum((positive + 0.5) / prior[ids] - 1, positive)
            prior[ids] = share_of_positives(counts.positive[ids], rows_before + new.positive + new.negative)
    return LogOddsLines(slope, offset), prior


def _is_balanced(learner: Learner) -> bool:
    """Return whether the loss gives positives and negatives of a class the same total weight."""
    if not learner.head.trains:
        return False  # its logits are log-odds in the rows of the class's own task
    loss = learner.config.loss
    with warnings.catch_warnings():
        # Of classes without positives the stream warned.
        warnings.simplefilter("ignore", UserWarning)
        built = LOSSES.build(loss.kind, learner.counts, **loss.options)
    return bool(getattr(built, "balanced", False))


def _held_out(learner: Learner, before: HeldOut | None) -> HeldOut | None:
    """Return the rows held out from this run and from those before it, scored by the weights of now."""
    benchmark = learner.benchmark
    train, own = benchmark.dataset.train, _own_held_out(learner)
    if before is None or not len(before.inputs):
        return None if own is None else _with_own(own, train.inputs)
    old, hashes = before.with_inputs, input_hashes(before.inputs)
    if benchmark.added:  # a row that was held out and came again to be learnt is no unseen row any more
        learnt = input_hashes(RowView(train.inputs, benchmark.tasks[-1].train))
        _, place, often = np.unique(hashes, return_inverse=True, return_counts=True)
        old = old.take(~(np.isin(hashes, learnt) & (often[place] == 1)))  # many equal rows are no such row
    columns = np.arange(len(benchmark.classes))
    old = old.of_classes(np.where(columns < old.logits.shape[1], columns, -1))
    inputs = old.inputs.astype(np.float32) if old.inputs.dtype == np.float64 else old.inputs
    both = [replace(old, logits=learner.predict(inputs), rows=np.full(len(inputs), -1))]
    if own is not None:
        both.append(_with_own(own, train.inputs).with_inputs)
    joined = [np.concatenate([getattr(one, name) for one in both]) for name in vars(old)]
    found = with_inputs(HeldOut(*joined[:4]), joined[5], joined[4]).with_inputs
    return found if len(found.rows) else None


def with_inputs(held_out: HeldOut, keys: NDArray[np.uint64], inputs: Any) -> HeldOut:
    """Return held-out rows in the order of their keys, with the inputs of the first ones, as far as there is room.

    The lowest keys of two sets are those of both together: what is kept is a sample of all rows that were ever held
    out, whatever the order of updates.
    """
    size = inputs[np.zeros(min(len(keys), 1), np.int64)].nbytes
    most = min(MOST_BYTES // max(size, 1), MOST_CELLS // max(held_out.logits.shape[1], 1))
    order = np.argsort(keys, kind="stable")
    first = order[:most]
    return replace(held_out.take(order), inputs=np.ascontiguousarray(inputs[first]), keys=keys[first])


def _with_own(own: HeldOut, inputs: Any) -> HeldOut:
    taken = RowView(inputs, own.rows)
    return with_inputs(own, row_keys(input_hashes(taken)), taken)


def input_hashes(inputs: Any) -> NDArray[np.uint64]:
    """Return a hash of each input, by its content."""
    rows = np.arange(len(inputs))
    read = (np.asarray(inputs[rows[piece]]) for piece in slices(len(rows), AT_ONCE))
    return np.concatenate([np.zeros(0, np.uint64), *(row_hashes(one.reshape(len(one), -1)) for one in read)])


def _own_held_out(learner: Learner) -> HeldOut | None:
    benchmark = learner.benchmark
    rows, classes = benchmark.held_out, len(benchmark.classes)
    if not len(rows):
        return None
    most = max(MOST_CELLS // classes, 1)
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
    train = benchmark.dataset.train
    labels = np.asarray(train.labels[rows])
    known = np.full(labels.shape, benchmark.complete)
    if not benchmark.complete:  # held-out rows of an extended run are of its last task
        known[:, benchmark.tasks[-1].classes] = True
    if train.known is not None:
        known &= train.known[rows]
    return HeldOut(learner.held_out_scores(rows), labels, known, rows)


def _measured(learner: Learner, calibration: Calibration) -> dict[str, Any]:
    """Return Brier score, log-loss and calibration error on the test rows of all tasks."""
    benchmark = learner.benchmark
    test = benchmark.dataset.test
    known = np.zeros(test.labels.shape, np.bool_)
    for task in benchmark.tasks:
        known[np.ix_(task.test, task.classes)] = True
    if benchmark.complete:
        known[known.any(axis=1)] = True
    if test.known is not None:
        known &= test.known
    found = calibration.probabilities(learner.test_scores())
    return measure(found, np.asarray(test.labels), prior=calibration.prior, known=known)


def calibration_json(calibration: Calibration, classes: Sequence[str]) -> dict[str, Any]:
    """Return what ``calibration.json`` holds."""
    columns = {"prior": calibration.prior, "own": calibration.own, "rows": calibration.rows}
    lines = {"slope": calibration.lines.slope, "offset": calibration.lines.offset}
    return {"format": FORMAT, "classes": list(classes), **lines, **columns}


def parse_calibration(content: Mapping[str, Any], classes: Sequence[str]) -> Calibration:
    """Return the calibration that `calibration_json` wrote; anything else is an `InputError`."""
    slope, offset, prior, own = _columns(content, classes, "slope", "offset", "prior", "own")
    if not ((prior > 0) & (prior < 1)).all():
        raise InputError("prior holds a share that is not above 0 and below 1")
    return Calibration(LogOddsLines(slope, offset), prior, own, check_int("rows", content["rows"], 0))


def thresholds_json(thresholds: Thresholds, classes: Sequence[str]) -> dict[str, Any]:
    """Return what ``thresholds.json`` holds."""
    goal = thresholds.goal
    columns = {name: getattr(thresholds, name) for name in ("own", "reached", "rows", "bound", "needed")}
    return {
        "format": FORMAT,
        "classes": list(classes),
        "goal": None if goal is None else goal.kind,
        "value": None if goal is None else goal.value,
        "confidence": goal.confidence if goal is not None and goal.certified else None,
        "thresholds": thresholds.values,
        **columns,
    }


def parse_thresholds(content: Mapping[str, Any], classes: Sequence[str]) -> Thresholds:
    """Return the thresholds that `thresholds_json` wrote; anything else is an `InputError`."""
    values, own, reached = _columns(content, classes, "thresholds", "own", "reached")
    kind, goal = content.get("goal"), None
    if kind is not None:
        goal = Goal(kind, content.get("value"), content.get("confidence") or CONFIDENCE)
    bound = _certified(content, "bound", classes, otherwise=np.nan)
    needed = _certified(content, "needed", classes, otherwise=np.inf)
    return Thresholds(values, own, reached, goal, check_int("rows", content["rows"], 0), bound, needed)


def _certified(
    content: Mapping[str, Any], name: str, classes: Sequence[str], *, otherwise: float
) -> Floats | None:
    """Return numbers of which those that JSON cannot express were written as null; None where there are none."""
    values = content.get(name)
    if values is None:
        return None
    some = [otherwise if value is None else 0.0 for value in values]
    known = [0 if value is None else value for value in values]
    found: Floats = np.array(some) + _column({name: known}, name, classes)
    return found


def _columns(content: Mapping[str, Any], classes: Sequence[str], *names: str) -> list[Any]:
    """Return the fields of one value per class as arrays."""
    if content.get("format") != FORMAT:
        raise InputError(f"has the format {content.get('format')!r}, but this mlcl reads {FORMAT}")
    if content.get("classes") != list(classes):
        raise InputError("classes are not those of the run")
    return [_column(content, name, classes) for name in names]


def _column(content: Mapping[str, Any], name: str, classes: Sequence[str]) -> NDArray[Any]:
    values, flags = content[name], name in FLAGS
    kinds = (bool,) if flags else (int, float)
    good = isinstance(values, list) and all(type(value) in kinds for value in values)
    if not good or len(values) != len(classes) or not np.isfinite(np.array(values, np.float64)).all():
        expected = "true or false" if flags else "one finite number"
        raise InputError(f"{name} is {str(values)[:40]!r}; expected {expected} per class")
    return np.array(values, np.bool_ if flags else np.float64)
