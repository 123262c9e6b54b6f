"""Static embeddings: the mean of a table's rows for the tokens of a text, as wordllama and model2vec keep them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from mlcl.encoders.base import ENCODERS, check_texts, unit_rows
from mlcl.encoders.sources import Pretrained, read_source, read_tensors, read_tokenizer
from mlcl.errors import InputError

BATCH = 1024
LAYOUTS = {
    "wordllama": ("tokenizers/l2_supercat_tokenizer_config.json", "weights/l2_supercat_256.safetensors"),
}
FOLDER = ("tokenizer.json", "model.safetensors")


@ENCODERS.register(
    "static", summary="The mean of a table's rows for the tokens of a text, such as wordllama."
)
@dataclass(frozen=True, eq=False)
class Static(Pretrained):
    """A table of token embeddings and its tokenizer; `Static.fit` reads them."""

    @classmethod
    def fit(cls, texts: Sequence[str] = (), *, source: str = "wordllama") -> Self:  # noqa: ARG003
        """Return the table in a folder or package; texts are not looked at.

        Args:
            texts: none are needed.
            source: ``wordllama``, or a folder with ``tokenizer.json`` and ``model.safetensors`` of one table.
        """
        return cls(read_source(source, LAYOUTS.get(source, FOLDER))).ready()

    def ready(self) -> Self:
        """Return this encoder, after a look at its files."""
        _ = self._table, self._tokenizer
        return self

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        name = next((name for name in self.source.files if name.endswith(".safetensors")), "")
        tables = [one for one in read_tensors(self.source, name).values() if one.ndim == 2]
        if len(tables) != 1 or tables[0].dtype.kind != "f" or not np.isfinite(tables[0]).all():
            raise InputError(f"{name} of {self.source.name} holds no single table of finite numbers")
        return np.asarray(tables[0], np.float32)

    @cached_property
    def _tokenizer(self) -> Any:
        return read_tokenizer(self.source, next(name for name in self.source.files if name.endswith(".json")))

    @property
    def width(self) -> int:
        """Return how many numbers a row has."""
        return int(self._table.shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row of length 1 for each text."""
        whole = check_texts(texts)
        pieces = [self._encode(whole[start : start + BATCH]) for start in range(0, len(whole), BATCH)]
        return np.concatenate([np.zeros((0, self.width), np.float32), *pieces])

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = [one.ids for one in self._tokenizer.encode_batch(texts, add_special_tokens=False)]
        ends = np.cumsum([0, *map(len, found)])
        ids = np.minimum(
            np.concatenate([np.zeros(0, np.int64), *map(np.array, found)]).astype(np.int64),
            len(self._table) - 1,
        )
        counts = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(texts), len(self._table)))
        return unit_rows(np.asarray(counts @ self._table))
