"""Copy finished runs from other sweeps: tables share rows (two rows of Table 2 are in Table 1), trained once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlcl.errors import InputError
from mlcl.runs.folder import has_result
from mlcl.sweeps.plan import PlannedRun, earlier
from mlcl.sweeps.sweep import Fingerprints


def reuse(runs: Sequence[PlannedRun], folders: Sequence[Path]) -> int:
    """Copy those of the planned runs that other sweeps have finished; return how many were copied.

    Runs are the same if their settings, the fingerprint of their data and their plugins are; labels may differ. A run
    that has a folder already is skipped.

    Args:
        runs: the planned runs of a sweep.
        folders: folders of other sweeps.
    """
    finished = _finished(folders)
    fingerprints, copied = Fingerprints(), 0
    for run in runs:
        if run.folder.exists():
            continue
        # Folders end in their seed; other seeds need not be read.
        candidates = [path for path in finished if path.name.endswith(f"-seed{run.seed}")]
        source = _find(run, candidates, fingerprints)
        if source is not None:
            _copy(source, run.folder)
            copied += 1
    return copied


def _finished(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of all finished runs of some sweeps."""
    for folder in folders:
        if not (folder / "runs").is_dir():
            raise InputError(f"--reuse {folder} holds no runs; expected the folder of a sweep.")
    found = [path for folder in folders for path in sorted((folder / "runs").iterdir())]
    return [path for path in found if has_result(path)]


def _find(run: PlannedRun, candidates: Sequence[Path], fingerprints: Fingerprints) -> Path | None:
    """Return the first folder that holds the same run."""
    for candidate in candidates:
        if earlier(replace(run, folder=candidate), fingerprints.of(run.config)).result is not None:
            return candidate
    return None


def _copy(source: Path, target: Path) -> None:
    """Copy a folder; ``target`` is complete or does not exist."""
    partial = target.with_name(f".{target.name}.copy")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    partial.rename(target)
