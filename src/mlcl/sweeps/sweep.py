"""Do the runs of a sweep: those that are done stay, those that fail are told and do not stop the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from mlcl.config.schema import Config
from mlcl.errors import InputError
from mlcl.sweeps.local import default_jobs, run_local
from mlcl.sweeps.plan import PlannedRun, earlier
from mlcl.sweeps.work import Finished, Position, Watch

Engine = Literal["local", "ray"]


class Quiet:
    """A watch that tells nobody."""

    def started(self, run: PlannedRun) -> None:
        """Say nothing."""

    def moved(self, run: PlannedRun, position: Position) -> None:
        """Say nothing."""

    def ended(self, finished: Finished) -> None:
        """Say nothing."""


def run_all(
    runs: Sequence[PlannedRun],
    *,
    jobs: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
) -> list[Finished]:
    """Do all runs that are not done yet; return how each ended, in the order of ``runs``.

    Args:
        runs: what to do.
        jobs: runs at a time; one a core if not given.
        engine: processes of this machine, or Ray.
        address: of a Ray cluster.
        overwrite: replace finished runs that have other settings or other data; they are refused otherwise.
        watch: told what happens.
    """
    check_engine(jobs=jobs, engine=engine, address=address)
    watch = watch or Quiet()
    ends: dict[PlannedRun, Finished] = {}
    todo = []
    for run, finished in _sorted_out(runs, overwrite=overwrite):
        if finished is None:
            todo.append(run)
        else:
            ends[run] = finished
            watch.ended(finished)
    if todo:
        if engine == "ray":
            from mlcl.sweeps.cluster import run_ray

            stream = run_ray(todo, jobs=jobs, address=address, watch=watch)
        else:
            stream = run_local(todo, jobs=jobs or default_jobs(todo[0].config.train.device), watch=watch)
        with contextlib.closing(
            stream
        ):  # an interruption ends the processes at once, not when garbage is collected
            for finished in stream:
                ends[finished.run] = finished
                watch.ended(finished)
    return [ends[run] for run in runs]


def check_engine(*, jobs: int | None, engine: str, address: str | None) -> None:
    """Refuse choices of an engine that make no sense, before anything is done."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs is {jobs}; expected at least 1.")
    if address is not None and engine != "ray":
        raise InputError(f"--address {address} is for --engine ray; the engine is {engine!r}.")
    if engine == "ray":
        from mlcl.sweeps.cluster import import_ray

        import_ray()


def _sorted_out(
    runs: Sequence[PlannedRun], *, overwrite: bool
) -> Iterator[tuple[PlannedRun, Finished | None]]:
    """Tell the runs that are done from those to do, before anything is changed."""
    import warnings

    fingerprints = Fingerprints()
    found = [(run, earlier(run, fingerprints.of(run.config))) for run in runs]
    for run, state in found:
        if state.other and not overwrite:
            raise InputError(
                f"{run.folder} holds a finished run with other settings ({state.other}); "
                "choose another --out, or add --overwrite to do it again."
            )
        if state.broken:
            warnings.warn(f"{state.broken.rstrip('.')}; it is done again.", stacklevel=2)
    for run, state in found:
        yield run, Finished(run, state.result, was_there=True) if state.result else None


class Fingerprints:
    """The fingerprints of the data that runs use; each data set is opened once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], str] = {}

    def of(self, config: Config) -> str:
        """Return the fingerprint of a run's data, as its ``environment.json`` has it."""
        from mlcl.datasets import load_dataset
        from mlcl.streams import hold_out

        key = (config.data, config.seed if config.validate else None)
        if key not in self._known:
            data = load_dataset(config.data)
            self._known[key] = (hold_out(data, seed=config.seed) if config.validate else data).fingerprint
        return self._known[key]


@contextlib.contextmanager
def only_one(out: Path) -> Iterator[None]:
    """Hold a sweep's folder, so that two commands do not write the same runs; free when the process ends."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    except OSError as error:
        raise InputError(f"--out {out} cannot be written to: {error.strerror}.") from None
    with lock:
        try:
            import fcntl
        except ImportError:  # no such locks on Windows
            yield
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"--out {out} is in use by another mlcl reproduce; wait for it, or choose another."
            ) from None
        yield
