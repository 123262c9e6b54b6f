"""Copy finished runs from other sweeps: tables share rows (two rows of Table 2 are in Table 1), trained once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlcl.errors import InputError
from mlcl.runs.folder import has_result, pack_folder, unpack_folder
from mlcl.sweeps.plan import TUNING, PlannedRun, earlier, refuse_linked_run
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
        refuse_linked_run(run)
        if run.folder.exists():
            continue
        # Folders end in their seed, and those of tuning are named after all settings: others need not be read.
        end = run.folder.name if run.tuning else f"-seed{run.seed}"
        candidates = [path for path in finished[run.tuning] if path.name.endswith(end)]
        source = _find(run, candidates, fingerprints)
        if source is not None:
            _copy(source, run.folder)
            copied += 1
    return copied


def _finished(folders: Sequence[Path]) -> dict[bool, list[Path]]:
    """Return the folders of all finished runs of some sweeps: those of tables (False) and of tuning (True)."""
    found: dict[bool, list[Path]] = {False: [], True: []}
    for folder in folders:
        if not any((folder / name).is_dir() for name in ("runs", TUNING)):
            raise InputError(f"--reuse {folder} holds no runs; expected the folder of a sweep.")
        for tuning, name in ((False, "runs"), (True, TUNING)):
            paths = sorted((folder / name).iterdir()) if (folder / name).is_dir() else []
            found[tuning] += [path for path in paths if has_result(path)]
    return found


def _find(run: PlannedRun, candidates: Sequence[Path], fingerprints: Fingerprints) -> Path | None:
    """Return the first folder that holds the same run."""
    for candidate in candidates:
        if earlier(replace(run, folder=candidate), fingerprints.of(run.config)).result is not None:
            return candidate
    return None


def _copy(source: Path, target: Path) -> None:
    """Copy a run; ``target`` is complete or does not exist."""
    partial = target.with_name(f".{target.name}.copy")
    unpack_folder(pack_folder(source), partial)
    partial.rename(target)
