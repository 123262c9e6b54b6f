"""A tagger in Python: what was learnt, whoever learnt it, loaded from its folder.

    inputs -> encoder -> scorer -> calibration -> thresholds -> tags

The scorer takes images or vectors. Where vectors were made of other inputs, such as texts, what made them is the
encoder. It is one file, bytes to this room: ``Dataset.encoder`` on the way in (or that of
`mlcl.taggers.sums.LearntSums`), ``encoder.safetensors`` with its checksum in the folder, carried on by every new
version and copy, and ``Tagger.encoder`` on the way out. `mlcl.taggers.learning.prepared` makes a store of vectors of
any data, for `learn` and `update`, and `mlcl.taggers.predict.read_inputs` makes vectors of any inputs, for ``predict``,
``drift`` and others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlcl.datasets import load_dataset
from mlcl.datasets.base import as_inputs
from mlcl.errors import InputError
from mlcl.runs.continuing import update
from mlcl.runs.folder import copy_finished
from mlcl.runs.trained import Trained, load_trained
from mlcl.runs.versions import claimed
from mlcl.taggers.gate import ALLOW, check_gate, release, unlike
from mlcl.taggers.learning import prepared

__all__ = ["Refused", "Tagger", "load"]


class Refused(RuntimeError):
    """A version that was learnt is not taken into use: its gate refused it, or another one was quicker.

    >>> try:  # tagger.update(data, gate=test_rows)
    ...     raise Refused("version 2 is not in use: cat lost 4.1 points")
    ... except Refused as reason:
    ...     print(reason)
    version 2 is not in use: cat lost 4.1 points
    """


@dataclass(frozen=True)
class Tagger(Trained):
    """What was learnt, to use; `load` makes it. Its ``classes`` name the columns of every output.

    >>> import tempfile
    >>> from mlcl.sklearn import ExactTagger
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ExactTagger().fit(rows, rows > 1, classes=["a", "b", "c"]).save(folder)
    ...     tagger = load(folder)
    >>> tagger.classes, tagger.predict_proba(rows[:5]).shape
    (('a', 'b', 'c'), (5, 3))
    """

    def predict_proba(self, inputs: ArrayLike | Sequence[str]) -> NDArray[np.float32]:
        """Return the probability of each class, ``[n, K]``; labels are independent, so a row need not sum to 1.

        Args:
            inputs: vectors ``[n, D]``, images as uint8 ``[n, C, H, W]``, or a list of texts.
        """
        if is_texts(inputs):
            return self.probabilities_of_texts(list(inputs))
        found = as_inputs(np.asarray(inputs), name="inputs")
        if found.shape[1:] != self.input_shape:
            raise InputError(
                f"inputs have the shape {found.shape[1:]}; expected {self.input_shape}, as {self.folder} was trained on"
            )
        return self.probabilities(found)

    def predict(self, inputs: ArrayLike | Sequence[str]) -> NDArray[np.int64]:
        """Return 1 for each class whose probability is above its threshold, ``[n, K]``."""
        return self.thresholds.tags(self.predict_proba(inputs)).astype(np.int64)

    def update(
        self,
        data: str | Path,
        *,
        gate: str | Path | None = None,
        allow: float = ALLOW,
        even_unlike: bool = False,
    ) -> Tagger:
        """Learn from more data: rows of known labels, new labels, or both; return the tagger that is now in use.

        A new version is written beside this one, as by ``mlcl update``. If its gate refuses it, that is a `Refused`,
        and what was in use stays in use.

        Args:
            data: a store, by folder or name, or a file or folder that `mlcl learn` takes.
            gate: the same; no label may lose more than ``allow`` on its test rows.
            allow: points that a label, or a mean over labels, may lose.
            even_unlike: learn also where the labels of the new rows do not fit what was learnt before; a `Refused`
                otherwise.
        """
        judge = None if gate is None else check_gate(self.folder, self._store(gate, gate=True), allow=allow)
        store = self._store(data)
        if not even_unlike and (found := unlike(self.folder, load_dataset(str(store)))):
            raise Refused(f"{data}: {found}; nothing was learnt")
        with claimed(self.folder) as out:
            update(self.folder, store, out=out, gate=judge)
        done = release(out)
        if not done.passed:
            lost = (
                "another version came into use, or thresholds were chosen anew, meanwhile"
                if done.verdict is None or done.newer
                else (f"more than {allow:g} points lost on {'; '.join(done.verdict.reasons)}")
            )
            raise Refused(f"{out} was learnt and is not taken into use: {lost}")
        return load(self.folder)

    def _store(self, data: str | Path, *, gate: bool = False) -> Path:
        """Return the store that data are, or that is made of them, as this tagger takes them."""
        size = self.input_shape[-1] if len(self.input_shape) > 1 else None
        return prepared(str(data), {}, size=size, encoder=self.encoder, gate=gate)[1]

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write this version, with its past, as a tagger of its own.

        Args:
            folder: to write.
            overwrite: replace a tagger that is there.
        """
        copy_finished(self.folder, Path(folder), overwrite=overwrite)


def is_texts(inputs: object) -> TypeGuard[Sequence[str]]:
    """Return whether inputs are texts and not numbers.

    >>> is_texts(["a", "b"]), is_texts(np.array(["a"])), is_texts([[1.0]]), is_texts([])
    (True, True, False, False)
    """
    if isinstance(inputs, np.ndarray):
        return inputs.dtype.kind in "UO" and is_texts(inputs.tolist())
    return isinstance(inputs, list | tuple) and len(inputs) > 0 and isinstance(inputs[0], str)


def load(folder: str | Path) -> Tagger:
    """Return the tagger in a folder, whoever learnt it: ``mlcl learn``, ``run`` or ``update``, or `ExactTagger.save`.

    Of one with versions it is the one in use.

    >>> import tempfile
    >>> from mlcl.sklearn import ExactTagger
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ExactTagger().fit(rows, rows > 1, classes=["a", "b", "c"]).save(folder)
    ...     load(folder).predict(2 * np.eye(3))
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """
    found = load_trained(folder)
    return Tagger(**{field.name: getattr(found, field.name) for field in fields(found)})
