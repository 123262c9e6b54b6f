"""Words: TF-IDF with dimensions of their own for frequent words, and hashed ones for all others.

The words in most of the first texts are the vocabulary: each has a dimension. Every other word is hashed with a sign
into a few dimensions more. A word counts ``1 + log(times)`` in a text, times the inverse frequency of its dimension in
documents, and a row has length 1.

How many documents have a dimension is a sum: it grows with `Words.add`, and is merged and forgotten. The vocabulary is
fixed by the first texts: a word that becomes frequent later keeps its hashed dimension, so that the rows of old and new
texts, and sums over them, stay comparable. ``words=0`` keeps no word at all, only hashed dimensions.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from mlcl.arrays import Arrays
from mlcl.encoders.base import ENCODERS, array_texts, check_texts, texts_array
from mlcl.errors import InputError, check_int

_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
"""Accents and vowels that Python does not take for letters: within a word they are."""
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Scripts that put no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese characters."""
_TOKEN = re.compile(rf"([{_UNSPACED}]+)|(?:[^\W{_UNSPACED}]|[{_MARKS}]){{2,}}")
MOST = 2**22
"""So many dimensions at most."""


@ENCODERS.register("words", summary="TF-IDF of words: frequent ones with a dimension each, the rest hashed.")
@dataclass(frozen=True, eq=False)
class Words:
    """TF-IDF of words; `Words.fit` makes it.

    Attributes:
        vocabulary: the words with a dimension of their own, in its order.
        hashed: how many dimensions all other words share.
        pairs: whether two words in a row are one more word.
        characters: sequences of so many characters of a word are words, too; 0: none.
        frequencies: how many documents had each dimension, ``[width]``.
        documents: how many documents there were.

    >>> words = Words.fit(["red green", "green blue", "blue"], words=2, hashed=1)
    >>> words.vocabulary, words.frequencies
    (('blue', 'green'), array([2, 2, 1]))
    >>> words.encode(["Blue!", "red blue"]).toarray().round(2)
    array([[ 1.  ,  0.  ,  0.  ],
           [ 0.61,  0.  , -0.8 ]], dtype=float32)
    """

    vocabulary: tuple[str, ...]
    hashed: int
    pairs: bool
    characters: int
    frequencies: NDArray[np.int64]
    documents: int

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        *,
        words: int = 4096,
        hashed: int = 1024,
        pairs: bool = False,
        characters: int = 0,
    ) -> Self:
        """Return the encoder whose vocabulary and document frequencies are those of some texts.

        Args:
            texts: the first texts.
            words: how many words have a dimension of their own: those in most texts. 0 keeps no word.
            hashed: how many dimensions all other words share; 0: they are left out.
            pairs: take two words in a row for one more word.
            characters: take sequences of so many characters of a word for words, too; 0: none.
        """
        for name, value in (("words", words), ("hashed", hashed), ("characters", characters)):
            check_int(name, value, 0)
        if not isinstance(pairs, bool):
            raise InputError(f"pairs is {pairs!r}; expected true or false")
        if not 0 < words + hashed <= MOST:
            raise InputError(f"words and hashed are {words + hashed} together; expected 1 to {MOST}")
        whole = check_texts(texts)
        found = Counter(
            itertools.chain.from_iterable(set(tokens(t, pairs, characters)) for t in whole if words)
        )
        chosen = sorted(found, key=lambda word: (-found[word], word))[:words]
        empty = cls(
            tuple(sorted(chosen)), hashed, pairs, characters, np.zeros(len(chosen) + hashed, np.int64), 0
        )
        return empty.add(whole)

    @property
    def width(self) -> int:
        """Return the number of dimensions."""
        return len(self.vocabulary) + self.hashed

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.vocabulary)}

    def add(self, texts: Sequence[str]) -> Self:
        """Return the encoder that has also counted these documents."""
        counted = np.bincount(self._counts(check_texts(texts)).indices, minlength=self.width)
        return replace(self, frequencies=self.frequencies + counted, documents=self.documents + len(texts))

    def forget(self, texts: Sequence[str]) -> Self:
        """Return the encoder that has not counted these documents; those it cannot have counted are an `InputError`."""
        counted = np.bincount(self._counts(check_texts(texts)).indices, minlength=self.width)
        after = self.frequencies - counted
        if (after < 0).any() or (after > self.documents - len(texts)).any():
            raise InputError(f"these {len(texts)} texts cannot all have been counted; nothing was forgotten")
        return replace(self, frequencies=after, documents=self.documents - len(texts))

    def merge(self, other: Words) -> Self:
        """Return the encoder that has counted the documents of both, which must have the same dimensions."""
        if self._settings() != other._settings() or self.vocabulary != other.vocabulary:
            raise InputError(
                "the encoders have other words or settings; expected the same: begin with one of them"
            )
        frequencies = self.frequencies + other.frequencies
        return replace(self, frequencies=frequencies, documents=self.documents + other.documents)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Return the inverse document frequency of each dimension, ``log((1 + n) / (1 + df)) + 1``."""
        return np.asarray(np.log((1 + self.documents) / (1 + self.frequencies)) + 1)

    def encode(self, texts: Sequence[str]) -> csr_matrix:
        """Return a row of length 1 for each text."""
        rows = self._counts(check_texts(texts))
        rows.data *= self.weights[rows.indices]
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
        rows.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(rows.indptr))
        return rows.astype(np.float32)

    def named(self, text: str) -> list[tuple[str, int, float]]:
        """Return the words of a text, each with its dimension and what it adds to it: they sum to its row."""
        (whole,) = check_texts([text])
        row = self._counts([whole])
        length = float(np.linalg.norm(row.data * self.weights[row.indices])) or 1.0
        found = Counter(tokens(whole, self.pairs, self.characters)).items()
        placed = [(word, *self._place(word), 1 + np.log(times)) for word, times in found]
        return [
            (word, k, float(sign * n * self.weights[k] / length)) for word, k, sign, n in placed if k >= 0
        ]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain values and named arrays."""
        arrays: dict[str, NDArray[Any]] = {
            "vocabulary": texts_array(self.vocabulary),
            "frequencies": self.frequencies,
        }
        return {**self._settings(), "documents": self.documents}, arrays

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the encoder that `state` was called on."""
        vocabulary, frequencies = array_texts(arrays["vocabulary"]), np.asarray(arrays["frequencies"])
        hashed = check_int("hashed", header["hashed"], 0)
        characters, documents = (
            check_int("characters", header["characters"], 0),
            check_int("documents", header["documents"], 0),
        )
        fits = frequencies.dtype == np.int64 and frequencies.shape == (len(vocabulary) + hashed,)
        if not fits or len(frequencies) > MOST or len(set(vocabulary)) != len(vocabulary):
            raise InputError("its words and their frequencies do not fit together")
        if (frequencies < 0).any() or (frequencies > documents).any():
            raise InputError("a word was in more documents than there were")
        return cls(vocabulary, hashed, header["pairs"] is True, characters, frequencies, documents)

    def _settings(self) -> dict[str, Any]:
        return {"hashed": self.hashed, "pairs": self.pairs, "characters": self.characters}

    def _place(self, word: str) -> tuple[int, int]:
        """Return the dimension of a word and its sign; -1 for a word that is left out."""
        place = self._places.get(word)
        if place is not None:
            return place, 1
        if not self.hashed:
            return -1, 0
        from sklearn.utils import murmurhash3_32  # a second of every start, where no word is hashed

        number = int(murmurhash3_32(word))  # as scikit-learn's HashingVectorizer
        return len(self.vocabulary) + abs(number) % self.hashed, 1 if number >= 0 else -1

    def _counts(self, texts: Sequence[str]) -> csr_matrix:
        """Return ``1 + log(times)`` of the words of each text, with their signs; the indices are distinct per row."""
        known: dict[str, tuple[int, int]] = {}
        places, times, ends = [], [], [0]
        for text in texts:
            for word, number in Counter(tokens(text, self.pairs, self.characters)).items():
                at = known.get(word)
                if at is None:
                    at = known[word] = self._place(word)
                if at[0] >= 0:
                    places.append(at)
                    times.append(number)
            ends.append(len(places))
        signed = np.array(places, np.int64).reshape(-1, 2)
        values = (1 + np.log(np.array(times, np.float64))) * signed[:, 1]
        found = csr_matrix((values, signed[:, 0], ends), shape=(len(texts), self.width))
        found.sum_duplicates()
        return found


def tokens(text: str, pairs: bool = False, characters: int = 0) -> Iterator[str]:
    """Yield the words of a text: runs of at least two letters or digits, in lower case.

    Scripts without spaces between words give pairs of characters.

    Args:
        text: any.
        pairs: two words in a row, too.
        characters: so many characters in a row of a word, too.

    >>> list(tokens("The cat's CAT-food", pairs=True))
    ['the', 'cat', 'cat', 'food', 'the cat', 'cat cat', 'cat food']
    >>> list(tokens("dog 東京都", characters=4))
    ['dog', '東京', '京都', '# dog', '#dog ']
    """
    plain = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    words, spaced = [], []
    for match in _TOKEN.finditer(plain):
        run = match.group(1)
        if run is None:
            words.append(match.group())
            spaced.append(match.group())
        else:
            words += [run[k : k + 2] for k in range(max(len(run) - 1, 1))]
    yield from words
    if pairs:
        yield from (f"{a} {b}" for a, b in itertools.pairwise(words))
    if characters:
        for padded in (f" {word} " for word in spaced):
            yield from (f"#{padded[k : k + characters]}" for k in range(max(len(padded) - characters + 1, 1)))
