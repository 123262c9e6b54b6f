"""Take finished runs from other sweeps: Table 2 holds two rows of Table 1, and nobody wants to train them twice."""

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
    """Copy from other sweeps what they hold of these very runs; return how many were copied.

    A run is the same if all settings and the data's fingerprint are, whatever its row is called there. Runs that have
    a folder already are left alone.

    Args:
        runs: what a sweep is about to do.
        folders: folders of other sweeps.
    """
    for folder in folders:
        if not (folder / "runs").is_dir():
            raise InputError(f"--reuse {folder} holds no runs; expected the folder of a sweep.")
    found = [path for folder in folders for path in sorted((folder / "runs").iterdir())]
    there = [path for path in found if has_result(path)]
    fingerprints, copied = Fingerprints(), 0
    for run in runs:
        if run.folder.exists():
            continue
        for candidate in there:
            # A seed in the name is only a hint, but it spares reading most of the files.
            if not candidate.name.endswith(f"-seed{run.seed}"):
                continue
            if earlier(replace(run, folder=candidate), fingerprints.of(run.config)).result is not None:
                partial = run.folder.with_name(f".{run.folder.name}.copy")
                shutil.rmtree(partial, ignore_errors=True)
                shutil.copytree(candidate, partial)
                partial.rename(run.folder)
                copied += 1
                break
    return copied
