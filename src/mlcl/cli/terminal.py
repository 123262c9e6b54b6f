"""What a run shows in the terminal: bars while training, rows after each task, a table in the end."""

from __future__ import annotations

import sys
import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from mlcl.cli.progress import TimeLeft, make_console
from mlcl.datasets import Dataset
from mlcl.metrics import session_means
from mlcl.models.provenance import describe_weights
from mlcl.reports.rendering import Cell, PrintedTable, decimals, plural
from mlcl.runs.durations import measured
from mlcl.runs.folder import WARNINGS
from mlcl.runs.result import Result, describe_solved
from mlcl.streams import Task
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner


class Terminal(Callback):
    """Shows progress on stderr: one bar per task in a terminal, plain lines otherwise."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(sys.stderr)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("epoch {task.fields[epoch]}  {task.fields[loss]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.bar = TaskID(0)
        self.last_line = 0.0
        self.left = TimeLeft()

    def __enter__(self) -> Terminal:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def on_task_start(self, learner: Learner, task: Task, steps: int) -> None:
        """Open the task's bar."""
        names = ", ".join(learner.data.classes[k] for k in task.classes[:6])
        more = f" and {len(task.classes) - 6} more" if len(task.classes) > 6 else ""
        self.console.print(
            f"task {task.index + 1}/{len(learner.tasks)}: {plural(len(task.train), _noun(learner.data))}, "
            f"{plural(len(task.classes), 'class')} ({names}{more}), memory {len(learner.memory)}"
        )
        total = steps * learner.epochs
        done = learner.epoch * steps + learner.step
        if done:
            self.console.print(f"  resumes after step {done} of {total}")
        self.bar = self.bars.add_task(
            f"task {task.index + 1}",
            total=total,
            completed=done,
            epoch=learner.epoch + 1,
            loss="",
            left="",
        )
        self.last_line = time.monotonic()
        self.left.begin(done, rest=total, later=_later_steps(learner, task))

    def on_step(self, learner: Learner, loss: float) -> None:
        """Move the bar."""
        self.left.step()
        left = str(self.left) if self.console.is_terminal else ""
        self.bars.update(self.bar, advance=1, epoch=learner.epoch + 1, loss=f"loss {loss:.4f}", left=left)

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """Print a line now and then where there is no bar."""
        if not self.console.is_terminal and time.monotonic() - self.last_line > 10:
            self.last_line = time.monotonic()
            epoch = f"  epoch {learner.epoch + 1}/{learner.epochs}"
            self.console.print(f"{epoch}  loss {loss:.4f}  {measured(seconds)}  {self.left}".rstrip())

    def on_task_end(self, learner: Learner) -> None:
        """Replace the bar by the row of the matrix."""
        self.bars.remove_task(self.bar)
        row = learner.evaluations.matrix[-1]
        learnt = (
            len(row) if learner.config.joint else learner.task_index
        )  # it stands at the next task already
        shown = "  ".join(f"task {t + 1} {decimals(100 * value, 1)}" for t, value in enumerate(row[:learnt]))
        self.console.print(f"  Macro-AUC: {shown}   ({measured(learner.evaluations.task_seconds[-1])})")


def result_table(result: Result) -> PrintedTable:
    """Return the table of a run: matrix, overall, forgetting, thirds."""
    matrix, seen = result.matrix, result.summary.seen_means
    joint = matrix.shape[0] == 1
    rows: list[list[Cell | str]] = []
    for t, row in enumerate(matrix):
        cells = [Cell(decimals(value), pale=not joint and i > t) for i, value in enumerate(row)]
        rows.append(["all at once" if joint else f"task {t + 1}", *cells, decimals(seen[t])])
    return PrintedTable(
        f"{result.method} on {result.benchmark}, seed {result.seed}: Macro-AUC in points",
        ("after", *(f"task {i + 1}" for i in range(matrix.shape[1])), "mean of seen"),
        rows,
        left=("after",),
    )


def result_lines(result: Result) -> list[str]:
    """Return the lines below the table."""
    benchmark, pooled = result.learner.benchmark, result.pooled
    noun = _noun(benchmark.dataset)
    thirds = ", ".join(f"{name} {decimals(value)}" for name, value in result.thirds.items())
    lines = [
        f"Macro-AUC {decimals(result.macro_auc)}   forgetting {decimals(result.forgetting)}   "
        f"{measured(result.seconds)}",
        f"by class frequency: {thirds}",
        f"pooled over all classes and test {noun}s: Macro-AUC {decimals(pooled['macro_auc'])}, "
        f"mAP {decimals(pooled['map'])}",
        *_session_lines(result),
    ]
    if not benchmark.complete:
        lines[-1] += f" (undefined: no {noun} has the labels of both old and new classes)"
    if problem := benchmark.headline_problem:
        lines.append(f"{problem}.")
    if result.solved:
        lines.append(f"solved with {describe_solved(result.solved)}")
    if result.weights is not None:
        lines.append(f"backbone: {describe_weights(result.weights)}")
    undefined = int(np.isnan(result.per_class[-1]).sum())
    if undefined:
        named = "it" if undefined == 1 else "them"
        where = f"; {result.folder / WARNINGS} names {named}" if result.folder and benchmark.notes else ""
        lines.append(
            f"{plural(undefined, 'class')} without a positive or a negative test {noun} in the task "
            f"{'was' if undefined == 1 else 'were'} left out{where}"
        )
    return lines


def _session_lines(result: Result) -> list[str]:
    """Return the field's measures of class-incremental learning, for its protocols (base and increment)."""
    if result.config.stream.increment is None or not np.isfinite(result.pooled["map"]):
        return []
    mean, last = session_means(result.sessions), result.sessions[-1]
    shown = ", ".join(
        f"{text} {decimals(mean[name])} / {decimals(last[name])}"
        for name, text in (("map", "mAP"), ("cf1", "CF1"), ("of1", "OF1"), ("fpr", "false-positive rate"))
    )
    at = f"decisions at {result.threshold:g}"
    return [f"mean over sessions / after the last: {shown} ({at})"]


def _noun(data: Dataset) -> str:
    """Return what one row of the data is."""
    return "image" if data.kind == "images" else "vector"


def _later_steps(learner: Learner, task: Task) -> int:
    """Return about how many steps the tasks after this one will take."""
    size = learner.config.train.batch_size
    return sum(
        -(-len(other.train) // size) * learner.epochs for other in learner.tasks if other.index > task.index
    )
