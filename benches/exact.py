"""The exact learner: its pass over the rows beside BLAS and SGD, updates by one row, and solving many classes."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import sparse
from scipy.linalg import blas
from sklearn.linear_model import SGDClassifier

from benches.timing import Row, best, faster, limit, once
from mlcl.exact import ExactLearner, Options, solve
from mlcl.sklearn import ExactTagger

SHARE = 0.03
"""Positives of a label: three labels per row where there are a hundred."""
SAMPLED = 2
"""Labels that SGD is timed on; its time is the same for each."""


def measure(*, quick: bool) -> list[Row]:
    """Time everything on made-up rows: no cost depends on their values."""
    n, d, classes = (5_000, 64, 20) if quick else (1_000_000, 256, 100)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d), dtype=np.float32)
    labels = rng.random((n, classes), dtype=np.float32) < SHARE
    begun = ExactLearner.begin(rows[: 10 * d])
    return [
        _accumulation(rows[: n // 10], begun),
        _one_pass(rows, labels, begun),
        _many_labels(rows, 10 * classes),
        _one_row(rows, labels),
        _one_row_of_river(rows, labels),
        *_solving(rng, quick=quick),
    ]


def _accumulation(rows: np.ndarray, begun: ExactLearner) -> Row:
    wide = rows.astype(np.float64)
    nothing = np.zeros((len(rows), 1), np.bool_)
    found = best(
        {
            "ours": partial(begun.learn, rows, nothing, [0]),
            "theirs": partial(blas.dsyrk, 1.0, wide.T),
        },
        repeats=3,
    )
    size = f"{len(rows):,} x {rows.shape[1]}, float32 rows, float64 sums"
    speed = found["theirs"] / found["ours"]
    return Row(
        "exact: accumulation",
        size,
        found["ours"],
        "BLAS dsyrk alone",
        found["theirs"],
        speed,
        0.5,
        above=True,
        unit="of its speed",
    )


def _one_pass(rows: np.ndarray, labels: np.ndarray, begun: ExactLearner) -> Row:
    ours, _ = once(partial(begun.learn, rows, labels, range(labels.shape[1])))

    def descend() -> None:
        for k in range(SAMPLED):
            SGDClassifier(loss="log_loss").partial_fit(rows, labels[:, k], classes=[False, True])

    theirs = once(descend)[0] / SAMPLED * labels.shape[1]
    size = f"{len(rows):,} x {rows.shape[1]}, {labels.shape[1]} labels, {SHARE:.0%} positive"
    note = f"SGD was timed on {SAMPLED} labels and multiplied; solving takes seconds more"
    return faster("exact: one pass", size, ours, "SGDClassifier.partial_fit per label", theirs, 5, note)


def tags(n: int, classes: int, each: int, rng: np.random.Generator) -> sparse.csr_array:
    """Return a sparse matrix of labels with a long tail, up to so many per row."""
    share = np.arange(1, classes + 1) ** -0.7
    drawn = rng.choice(classes, size=(n, each), p=share / share.sum())
    found = sparse.csr_array(
        (np.ones(drawn.size, np.uint8), (np.repeat(np.arange(n), each), drawn.ravel())), (n, classes)
    )
    found.data[:] = 1
    return found


def _many_labels(rows: np.ndarray, classes: int) -> Row:
    """One pass with many labels in the shared form, beside the product that any covariance costs."""
    labels = tags(len(rows), classes, 3, np.random.default_rng(1))
    begun = ExactLearner.begin(rows[:2000], form="shared")
    ours, _ = once(partial(begun.learn, rows, labels, range(classes)))
    wide = rows[: len(rows) // 10].astype(np.float64)
    theirs = 10 * best({"theirs": partial(blas.dsyrk, 1.0, wide.T)}, repeats=3)["theirs"]
    size = f"{len(rows):,} x {rows.shape[1]}, {classes:,} labels, 3 per row, shared form"
    note = "dsyrk was timed on a tenth of the rows and multiplied"
    return Row(
        *("exact: one pass, many labels", size, ours, "BLAS dsyrk alone", theirs, theirs / ours, 0.5),
        above=True, unit="of its speed", note=note,
    )  # fmt: skip


def _one_row(rows: np.ndarray, labels: np.ndarray) -> Row:
    tagger = ExactTagger().partial_fit(rows[:2000], labels[:2000])

    def update() -> None:
        for i in range(100):
            tagger.partial_fit(rows[i : i + 1], labels[i : i + 1])

    speed = 100 / best({"ours": update}, repeats=3)["ours"]
    size = f"{rows.shape[1]} features, {labels.shape[1]} labels"
    return Row(
        "exact: updates by one row", size, speed, "-", None, speed, 500, above=True, unit="rows per second"
    )


def _one_row_of_river(rows: np.ndarray, labels: np.ndarray) -> Row:
    """Compare one-row updates with river's logistic regression, one model per label, fed its dictionaries."""
    from river import linear_model, preprocessing

    tagger = ExactTagger().partial_fit(rows[:2000], labels[:2000])
    models = [
        preprocessing.StandardScaler() | linear_model.LogisticRegression() for _ in range(labels.shape[1])
    ]
    given = [dict(enumerate(row)) for row in rows[:20].tolist()]

    def ours() -> None:
        for i in range(len(given)):
            tagger.partial_fit(rows[i : i + 1], labels[i : i + 1])

    def theirs() -> None:
        for row, marked in zip(given, labels.tolist(), strict=False):
            for model, mark in zip(models, marked, strict=True):
                model.learn_one(row, mark)

    found = best({"ours": ours, "theirs": theirs}, repeats=3)
    size = f"{len(given)} rows, {rows.shape[1]} features, {labels.shape[1]} labels"
    rival = "river, StandardScaler | LogisticRegression per label"
    return faster("exact: updates by one row, beside river", size, found["ours"], rival, found["theirs"], 5)


def _solving(rng: np.random.Generator, *, quick: bool) -> list[Row]:
    n, d, classes, stored = (2_000, 64, 50, 20) if quick else (40_000, 512, 10_000, 361)
    rows = rng.standard_normal((n, d), dtype=np.float32)
    few = ExactLearner.begin(rows, dimensions=d, form="shared").learn(
        rows, tags(n, stored, 3, rng), range(stored)
    )
    learner = few.empty().learn(rows, tags(n, classes, 20, rng), range(classes))
    size = f"{classes:,} labels, d {d}, shared form"
    given = once(partial(solve, learner, Options(ridge=1.0, exponent=0.5)))[0]
    chosen = once(partial(solve, learner))[0]
    state = few.nbytes / 1e6
    return [
        limit("exact: sums", f"{stored:,} labels, d {d}, shared form", state, 10.0, "MB"),
        limit("exact: solving, ridge given", size, given, 5.0, "s"),
        limit("exact: solving, ridge chosen", size, chosen, 5.0, "s"),
        *_full(rng, quick=quick),
    ]


def _full(rng: np.random.Generator, *, quick: bool) -> list[Row]:
    """Solving in the full form."""
    n, d, classes = (2_000, 64, 50) if quick else (20_000, 256, 1_000)
    rows, labels = rng.standard_normal((n, d)), rng.random((n, classes)) < 0.01
    learner = ExactLearner.begin(rows, form="full").learn(rows, labels, range(classes))
    size = f"{classes:,} labels, d {d}, full form"
    given = once(partial(solve, learner, Options(ridge=1.0, exponent=0.0)))[0]
    chosen = once(partial(solve, learner))[0]
    return [
        limit("exact: solving, ridge given", size, given, 10.0, "s"),
        limit("exact: solving, ridge chosen", size, chosen, 20.0, "s"),
    ]
