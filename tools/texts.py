"""Tagging texts: our encoders and the exact learner beside TF-IDF with a linear model per tag, on debtags.

``python tools/texts.py [--seeds N] [--tags N]`` writes ``results/texts/debtags.csv``. Packages are split by source (the
first word of the name): 70 % to learn from, 15 % to choose on, 15 % to test on. Tags with 20 or more positives among
the rows to learn from count. The exact learner learns all of them; some of them, drawn by the seed, are learnt by the
others, and measured. C is chosen on the rows to choose on, by mAP, for all tags together; the test rows are looked at
once. Seconds are of one thread, encoding included, for all tags; bytes are what must be kept to learn more.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ledger import ROOT
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import mlcl
from mlcl.datasets.table import find_columns, read_table
from mlcl.encoders import chosen_encoder
from mlcl.exact import ExactLearner, solve

FIELDS = ("method", "seed", "tags", "rows", "C", "macro_auc", "map", "seconds", "bytes")
STRENGTHS = (0.1, 0.3, 1.0)
OUT = ROOT / "results" / "texts" / "debtags.csv"
DATA = Path(os.environ.get("MLCL_DATA") or ROOT.parent / "shared" / "data")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Texts and tags, and which rows are for what.

    Attributes:
        texts: of all rows.
        labels: ``[N, K]``.
        parts: rows to learn from, to choose on, to test on.
        measured: the tags that are measured.
    """

    texts: list[str]
    labels: NDArray[np.uint8]
    parts: tuple[NDArray[np.int64], ...]
    measured: NDArray[np.int64]

    def of(self, part: int) -> list[str]:
        """Return the texts of a part."""
        return [self.texts[row] for row in self.parts[part]]

    def score(self, scores: Floats, part: int) -> tuple[float, float]:
        """Return Macro-AUC and mAP, in points, of scores of the measured tags."""
        truth = self.labels[np.ix_(self.parts[part], self.measured)]
        return 100 * float(mlcl.macro_auc(scores, truth)), 100 * float(mlcl.average_precision(scores, truth))


def read(seed: int, tags: int, least: int = 20) -> Data:
    """Return debtags, split by source."""
    table = read_table(DATA / "debtags" / "bookworm.csv.gz")
    texts = table.texts(find_columns(table).text)
    rng = np.random.default_rng(seed)
    sources, place = np.unique(
        [name.partition("-")[0] for name in table.names("package")], return_inverse=True
    )
    share = rng.random(len(sources))[place]
    parts = tuple(
        np.flatnonzero(part) for part in (share < 0.7, (share >= 0.7) & (share < 0.85), share >= 0.85)
    )
    names = [set(cell.split("|")) for cell in table.names("tags")]
    every = sorted(set().union(*names))
    labels = np.array([[tag in row for tag in every] for row in names], np.uint8)
    labels = labels[:, labels[parts[0]].sum(0) >= least]
    return Data(texts, labels, parts, np.sort(rng.permutation(labels.shape[1])[:tags]))


def ours(data: Data, spec: str) -> dict[str, Any]:
    """Learn all tags by the exact learner on an encoder's vectors."""
    began = time.monotonic()
    encoder = chosen_encoder(spec, data.of(0))
    learner = ExactLearner.begin(encoder.encode(data.of(0)), dimensions=None)
    learner = learner.learn(encoder.encode(data.of(0)), data.labels[data.parts[0]])
    solution = solve(learner)
    seconds = time.monotonic() - began
    scores = solution.scores(encoder.encode(data.of(2)))[:, data.measured]
    return {"C": "", "bytes": learner.nbytes, "seconds": seconds, "scores": scores}


def linear(data: Data, make: Callable[[float], Any]) -> dict[str, Any]:
    """Learn the measured tags one by one on TF-IDF of words and pairs, with the best C of a few."""
    began = time.monotonic()
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    x = vectorizer.fit_transform(data.of(0))
    choose, test = (vectorizer.transform(data.of(part)) for part in (1, 2))
    y = data.labels[np.ix_(data.parts[0], data.measured)]
    encoding = time.monotonic() - began
    best, chosen = -1.0, dict[str, Any]()
    for strength in STRENGTHS:
        began = time.monotonic()
        models = [make(strength).fit(x, y[:, k]) for k in range(y.shape[1])]
        seconds = encoding + (time.monotonic() - began) * data.labels.shape[1] / y.shape[1]  # for all tags
        found = data.score(np.stack([one.decision_function(choose) for one in models], 1), 1)[1]
        if found > best:
            scores = np.stack([one.decision_function(test) for one in models], 1)
            best, chosen = found, {"C": strength, "seconds": seconds, "scores": scores}
    return chosen | {"bytes": sum(len(text.encode()) for text in data.of(0))}


def main() -> None:
    """Measure and write, one line per method and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tags", type=int, default=60)
    parser.add_argument("--encoders", default="words,words=4096,hashed=1024")
    given = parser.parse_args()
    methods: dict[str, Callable[[Data], dict[str, Any]]] = {
        f"exact on {spec}": partial(ours, spec=spec) for spec in given.encoders.split(";")
    }
    methods["TF-IDF, linear SVM per tag"] = partial(linear, make=lambda c: LinearSVC(C=c))
    methods["TF-IDF, logistic regression per tag"] = partial(
        linear, make=lambda c: LogisticRegression(C=30 * c, solver="liblinear")
    )
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="") as file:
        out = csv.DictWriter(file, FIELDS)
        out.writeheader()
        for seed in range(given.seeds):
            data = read(seed, given.tags)
            for name, method in methods.items():
                found = method(data)
                auc, precision = data.score(found.pop("scores"), 2)
                row = {"method": name, "seed": seed, "tags": data.labels.shape[1], "rows": len(data.parts[0])}
                out.writerow(row | found | {"macro_auc": round(auc, 2), "map": round(precision, 2)})
                file.flush()


if __name__ == "__main__":
    main()
