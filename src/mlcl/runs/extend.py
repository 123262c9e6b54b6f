"""A finished run learns labels that nobody knew when it began: an update that leaves known labels as they are."""

from __future__ import annotations

from pathlib import Path

from mlcl.config.schema import Config
from mlcl.runs.result import Result
from mlcl.runs.update import update
from mlcl.training.callbacks import Callback


def extend(
    folder: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path,
    config: Config | None = None,
    overwrite: bool = False,
    callback: Callback | None = None,
) -> Result:
    """Train a finished run on the new classes of a dataset, as one more task, and write the result to a new folder.

    Args:
        folder: the finished run; it stays as it is.
        data: a store, by folder or name. Its classes that the run does not know are the new task.
        out: folder to write; ``mlcl resume`` continues there if it is stopped.
        config: settings instead of those of the run; only data, benchmark, train and checkpoint may differ.
        overwrite: replace ``out`` if it holds an earlier run.
        callback: called while training.
    """
    return update(folder, data, out=out, config=config, known=False, overwrite=overwrite, callback=callback)
