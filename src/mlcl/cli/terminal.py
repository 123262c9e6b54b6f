"""What a run shows in the terminal: bars while training, rows after each task, a table in the end."""

from __future__ import annotations

import sys
import time
from typing import TextIO

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from mlcl.metrics import ResultMatrix
from mlcl.models.provenance import describe
from mlcl.runs.result import Result
from mlcl.streams import Task
from mlcl.training.callbacks import Callback
from mlcl.training.learner import Learner


def make_console(file: TextIO) -> Console:
    """Return a console; where the output is no terminal, lines are plain and as long as they are."""
    return Console(
        file=file, width=None if file.isatty() else 160, highlight=False, soft_wrap=not file.isatty()
    )


class Terminal(Callback):
    """Shows progress on stderr: one bar per task in a terminal, plain lines otherwise."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(sys.stderr)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("epoch {task.fields[epoch]}  loss {task.fields[loss]:.4f}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.bar = TaskID(0)
        self.last_line = 0.0

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
            f"task {task.index + 1}/{len(learner.tasks)}: {len(task.train)} images, "
            f"{len(task.classes)} classes ({names}{more}), memory {len(learner.memory)}"
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
            loss=float("nan"),
        )
        self.last_line = time.monotonic()

    def on_step(self, learner: Learner, loss: float) -> None:
        """Move the bar."""
        self.bars.update(self.bar, advance=1, epoch=learner.epoch + 1, loss=loss)

    def on_epoch(self, learner: Learner, loss: float, seconds: float) -> None:
        """Print a line now and then where there is no bar."""
        if not self.console.is_terminal and time.monotonic() - self.last_line > 10:
            self.last_line = time.monotonic()
            self.console.print(
                f"  epoch {learner.epoch + 1}/{learner.epochs}  loss {loss:.4f}  {seconds:.1f} s"
            )

    def on_task_end(self, learner: Learner) -> None:
        """Replace the bar by the row of the matrix."""
        self.bars.remove_task(self.bar)
        row = learner.evaluations.matrix[-1]
        learnt = len(row) if learner.joint else learner.task_index + 1
        shown = "  ".join(f"{100 * value:5.1f}" for value in row[:learnt])
        self.console.print(f"  Macro-AUC {shown}   ({learner.evaluations.task_seconds[-1]:.1f} s)")


def result_table(result: Result) -> Table:
    """Return the table of a run: matrix, overall, forgetting, thirds."""
    matrix = result.matrix
    seen = ResultMatrix(matrix).seen_means
    table = Table(
        title=f"{result.config.method} on {result.config.benchmark}, seed {result.config.seed}: Macro-AUC in points",
        title_justify="left",
    )
    table.add_column("after")
    for i in range(matrix.shape[1]):
        table.add_column(f"task {i + 1}", justify="right")
    table.add_column("mean of seen", justify="right")
    joint = matrix.shape[0] == 1
    for t, row in enumerate(matrix):
        cells = [
            f"{value:.2f}" if joint or i <= t else f"[dim]{value:.2f}[/dim]" for i, value in enumerate(row)
        ]
        table.add_row(
            "all at once" if joint else f"task {t + 1}", *cells, f"{seen[t] if not joint else row.mean():.2f}"
        )
    return table


def result_lines(result: Result) -> list[str]:
    """Return the lines below the table."""
    thirds = ", ".join(f"{name} {value:.2f}" for name, value in result.thirds.items())
    pooled = result.pooled
    forgetting = "-" if np.isnan(result.forgetting) else f"{result.forgetting:.2f}"
    lines = [
        f"Macro-AUC {result.macro_auc:.2f}   forgetting {forgetting}   {sum(result.seconds):.1f} s",
        f"by class frequency: {thirds}",
        f"pooled over all classes and test images: Macro-AUC {pooled['macro_auc']:.2f}, mAP {pooled['map']:.2f}",
    ]
    if (weights := result.learner.network.backbone.provenance) is not None:
        lines.append(f"backbone: {describe(weights)}")
    undefined = int(np.isnan(result.per_class[-1]).sum())
    if undefined:
        lines.append(f"{undefined} classes have no positive or no negative test image and were left out")
    return lines
