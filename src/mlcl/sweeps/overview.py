"""The progress of a sweep: a live overview in a terminal, otherwise one line per run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mlcl.runs.durations import estimated, measured
from mlcl.sweeps.plan import PlannedRun
from mlcl.sweeps.sweep import Finished, Position, SweepCallback
from mlcl.texts import visible


@dataclass
class _Running:
    since: float
    position: Position | None = None

    @property
    def share(self) -> float:
        return self.position.share if self.position else 0.0


class Overview(SweepCallback):
    """Counts and shows the runs that are done, running and failed; a context manager and a callback."""

    def __init__(self, runs: Sequence[PlannedRun], console: Console) -> None:
        self.total = len(runs)
        self.console = console
        self.running: dict[PlannedRun, _Running] = {}
        self.found = self.done = self.failed = 0
        self.seconds = 0.0  # of the runs executed by this sweep, from start to end
        self.jobs = 1
        self.live = Live(get_renderable=self.render, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Overview:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def on_run_start(self, run: PlannedRun) -> None:
        """Add a run to those that are running."""
        self.running[run] = _Running(time.monotonic())
        self.jobs = max(self.jobs, len(self.running))

    def on_progress(self, run: PlannedRun, position: Position) -> None:
        """Update the position of a run."""
        if run in self.running:
            self.running[run].position = position

    def on_run_end(self, finished: Finished) -> None:
        """Count a run and print its line."""
        run = finished.run
        row = self.running.pop(run, None)
        if finished.was_there:
            self.found += 1
            return
        if finished.result is None:
            self.failed += 1
            line = Text(visible(f"failed: {finished.error}"), style="red")
        else:
            self.done += 1
            self.seconds += time.monotonic() - row.since if row else 0.0
            line = Text(_score(finished))
        head = f"[{self.found + self.done + self.failed}/{self.total}] {run.name}: "
        self.console.print(Text(visible(head)) + line)

    def time_left(self) -> float | None:
        """Return an estimate in seconds, from the runs executed so far or else from the progress of those running."""
        now = time.monotonic()
        shares = [row.share for row in self.running.values()]
        if self.done:
            each = self.seconds / self.done
        else:
            timed = [(now - row.since) / row.share for row in self.running.values() if row.share > 0]
            if not timed:
                return None
            each = sum(timed) / len(timed)
        waiting = self.total - self.found - self.done - self.failed - len(self.running)
        return each * (waiting + len(shares) - sum(shares)) / self.jobs

    def render(self) -> RenderableType:
        """Return the overview."""
        table = Table.grid(padding=(0, 2))
        for run, row in list(self.running.items()):
            where = row.position
            text = (
                f"task {min(where.task + 1, where.tasks)}/{where.tasks}, epoch {where.epoch}/{where.epochs}"
                if where
                else "running"
            )
            bar = ProgressBar(total=1.0, completed=row.share, width=24)
            table.add_row(Text(visible(f"  {run.name}")), bar, text, measured(time.monotonic() - row.since))
        left = self.time_left()
        failed = (f"{self.failed} failed", "red" if self.failed else "")
        done = self.found + self.done
        waiting = self.total - done - self.failed - len(self.running)
        summary = Text.assemble(
            f"{done} of {self.total} runs done, {len(self.running)} running, {waiting} waiting, ",
            failed,
            f", {'time left unknown' if left is None else f'about {estimated(left)} left'}",
        )
        return Group(table, summary)


def _score(finished: Finished) -> str:
    result = finished.result or {}
    values = {"Macro-AUC": result.get("macro_auc"), "forgetting": result.get("forgetting")}
    parts = [f"{name} {v:.2f}" if isinstance(v, int | float) else f"{name} -" for name, v in values.items()]
    if isinstance(result.get("seconds"), int | float):
        parts.append(measured(result["seconds"]))
    return ", ".join(parts)
