"""A tagger of texts that grows for years, beside what one would otherwise use: debtags by facet.

``make bench-text``, or ``python tools/texts.py [--seeds N] [--packages N] [--vectors FILE] [--annif PYTHON]``, adds
what is missing to ``results/texts/growing.csv`` and writes ``docs/evidence/texts.md`` (``--page``: that alone).

Packages are split by source (the first word of the name): 70 % to learn from, 15 % to choose on, 15 % to test on; these
are looked at once. Of the packages to learn from 40 % come in year 1, annotated for six facets, drawn by the seed, and
20 % in each of three updates, annotated for a third of the other facets, and every second one for the earlier facets,
too. Tags with 5 known positives or more count; 60 of those with 20 or more, and 40 with fewer, are drawn and measured.
Our learner learns all tags, what is retrained learns those that are measured, and its time is taken times the share of
tags. Seconds are of the processor, for the last update: encoding the new texts, counting and solving; or vectorising
and training on everything, with a C and embeddings of old texts that are known. MB are what must be kept to learn more,
without the weights of MiniLM.

All choices are made on the rows to choose on, by mAP: C (one for all tags), whether texts that were not annotated for a
tag are negatives or left out, the weights of a join. So are thresholds (F1 per tag) and probabilities.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from ledger import ROOT
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_curve
from sklearn.svm import LinearSVC

import mlcl
from mlcl.datasets.table import find_columns, read_table
from mlcl.encoders import chosen_encoder, to_bytes
from mlcl.encoders.sentence import NOTHING
from mlcl.exact import ExactLearner, solve
from mlcl.metrics import Calibration, HeldOut, LogOddsLines

METRICS = ("auc", "map", "f1", "brier", "rare_auc", "rare_map")
FIELDS = ("method", "seed", "packages", "tags", "rows", "choice", *METRICS, "seconds", "bytes")
STRENGTHS = (0.1, 0.3, 1.0)
SCALES = (0.5, 1.0, 2.0)
YEARS, FIRST = 4, 6
MEASURED = "Measured at commit 4b3325d, with one thread, on two cores that others used too."
OUT = ROOT / "results" / "texts" / "growing.csv"
PAGE = ROOT / "docs" / "evidence" / "texts.md"
DATA = Path(os.environ.get("MLCL_DATA") or ROOT.parent / "shared" / "data")
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Years:
    """Texts and tags of some years.

    Attributes:
        texts: of all rows.
        meaning: sentence embeddings of the same, ``[N, 384]``.
        labels: the truth, ``[N, K]``.
        known: which tags a row was annotated for, ``[N, K]``.
        years: rows to learn from, by year.
        choose: rows to choose on.
        test: rows to test on.
        measured: the tags that are measured.
        rare: which of these have fewer than 20 positives.
    """

    texts: list[str]
    meaning: NDArray[np.float32]
    labels: NDArray[np.uint8]
    known: Bools
    years: tuple[NDArray[np.int64], ...]
    choose: NDArray[np.int64]
    test: NDArray[np.int64]
    measured: NDArray[np.int64]
    rare: Bools

    @property
    def learnt(self) -> NDArray[np.int64]:
        """Return all rows to learn from."""
        return np.concatenate(self.years)

    def of(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the texts of rows."""
        return [self.texts[row] for row in rows]

    def truth(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the measured tags of rows."""
        return self.labels[np.ix_(rows, self.measured)]

    def score(self, scores: Floats, rows: NDArray[np.int64]) -> dict[str, float]:
        """Return Macro-AUC and mAP, in points, of all measured tags, and of the rare ones."""
        auc, precision = (
            100 * one(scores, self.truth(rows), average=None)
            for one in (mlcl.macro_auc, mlcl.average_precision)
        )
        return {
            "auc": float(np.nanmean(auc)),
            "map": float(np.nanmean(precision)),
            "rare_auc": float(np.nanmean(auc[self.rare])),
            "rare_map": float(np.nanmean(precision[self.rare])),
        }


@cache
def debtags(packages: int) -> tuple[list[str], list[str], list[set[str]], NDArray[np.int64]]:
    """Return names, texts and tags of some packages, and their rows."""
    table = read_table(DATA / "debtags" / "bookworm.csv.gz")
    rows = np.random.default_rng(0).permutation(len(table))[:packages]
    texts, names, tags = table.texts(find_columns(table).text), table.names("package"), table.names("tags")
    chosen = [set(tags[row].split("|")) for row in rows]
    return [names[row] for row in rows], [texts[row] for row in rows], chosen, rows


def embeddings(packages: int, file: Path) -> NDArray[np.float32]:
    """Return the embeddings of the texts, from a file; those that it lacks are computed and added."""
    _, texts, _, rows = debtags(packages)
    known: dict[int, NDArray[np.float32]] = {}
    if file.exists():
        with np.load(file) as held:
            known = dict(zip(held["rows"].tolist(), held["vectors"], strict=True))
    if missing := [k for k, row in enumerate(rows.tolist()) if row not in known]:
        new = np.asarray(chosen_encoder("minilm", []).encode([texts[k] for k in missing]))
        known |= dict(zip(rows[missing].tolist(), new, strict=True))
        np.savez(file, rows=np.array(list(known)), vectors=np.stack(list(known.values())))
    found = np.stack([known[row] for row in rows.tolist()])
    return np.where(np.abs(found) < NOTHING, 0, found).astype(np.float32)


def read(seed: int, packages: int, meaning: NDArray[np.float32]) -> Years:
    """Return the years of a seed."""
    names, texts, tags, _ = debtags(packages)
    rng = np.random.default_rng(seed)
    sources, place = np.unique([name.partition("-")[0] for name in names], return_inverse=True)
    share = rng.random(len(sources))[place]
    ends = 0.7 * np.array([0.0, 0.4, 0.6, 0.8, 1.0])
    years = tuple(np.flatnonzero((share >= low) & (share < high)) for low, high in pairwise(ends))
    every = sorted(set().union(*tags))
    labels = np.array([[tag in row for tag in every] for row in tags], np.uint8)
    facets, facet = np.unique([tag.partition("::")[0] for tag in every], return_inverse=True)
    order = rng.permutation(len(facets))
    later = np.array_split(order[FIRST:], YEARS - 1)
    since = np.zeros(len(facets), np.int64)
    for year, new in enumerate(later, 1):
        since[new] = year
    known = np.zeros(labels.shape, np.bool_)
    for year, rows in enumerate(years):
        known[rows] = since[facet] == year
        known[rows[::2]] |= since[facet] <= year
    known[share >= ends[-1]] = True
    learnt = np.concatenate(years)
    count = (labels[learnt] * known[learnt]).sum(0)
    enough = count >= 5
    labels, known, count = labels[:, enough], known[:, enough], count[enough]
    frequent, rare = (rng.permutation(np.flatnonzero(one)) for one in (count >= 20, count < 20))
    measured = np.sort(np.concatenate([frequent[:60], rare[:40]]))
    parts = np.flatnonzero((share >= ends[-1]) & (share < 0.85)), np.flatnonzero(share >= 0.85)
    return Years(texts, meaning, labels, known, years, *parts, measured, count[measured] < 20)


def batches(data: Years, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the rows of a year that were annotated for the same tags, and these."""
    masks, place = np.unique(data.known[rows], axis=0, return_inverse=True)
    for number, mask in enumerate(masks):
        yield rows[place.ravel() == number], np.flatnonzero(mask)


def ours(data: Years, *, words: str, scale: float | None) -> dict[str, Any]:
    """Learn year by year by the exact learner on words, beside the embedding times a scale if there is one."""
    encoder = chosen_encoder(words, data.of(data.years[0]))

    def encode(rows: NDArray[np.int64]) -> csr_matrix:
        found = encoder.encode(data.of(rows))
        return found if scale is None else hstack([found, csr_matrix(scale * data.meaning[rows])], "csr")

    learner = ExactLearner.begin(encode(data.years[0]), dimensions=None, form="shared")
    seconds = 0.0
    for rows in data.years:
        began = time.process_time()
        for some, tags in batches(data, rows):
            learner = learner.learn(encode(some), data.labels[np.ix_(some, tags)], tags.tolist())
        seconds = time.process_time() - began
    began = time.process_time()
    solution = solve(learner)
    seconds += (
        time.process_time() - began + (0 if scale is None else len(data.years[-1]) * embedding_seconds())
    )
    choose, test = (solution.scores(encode(rows)) for rows in (data.choose, data.test))
    held = HeldOut(
        choose.astype(np.float32), data.labels[data.choose], np.ones(choose.shape, np.bool_), data.choose
    )
    calibration = Calibration.fit(held, start=LogOddsLines.identity(choose.shape[1]), prior=solution.prior)
    probabilities = calibration.probabilities(test)
    return {
        "choice": "" if scale is None else f"MiniLM x {scale:g}",
        "chosen_on": choose[:, data.measured],
        "scores": test[:, data.measured],
        "probabilities": probabilities[:, data.measured],
        "tags": calibration.thresholds(held).tags(probabilities)[:, data.measured],
        "seconds": seconds,
        "bytes": learner.nbytes + len(to_bytes(encoder)),
    }


@cache
def embedding_seconds() -> float:
    """Return the processor seconds that MiniLM takes per text, measured on 100."""
    encoder, texts = chosen_encoder("minilm", []), debtags(400)[1][:200]
    encoder.encode(texts[:100])
    began = time.process_time()
    encoder.encode(texts[100:])
    return (time.process_time() - began) / 100


def best(data: Years, tried: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Return what has the best mAP on the rows to choose on."""

    def worth(one: dict[str, Any]) -> float:
        found = mlcl.average_precision(one["chosen_on"], data.truth(data.choose), average=None)
        return float(np.nanmean(found))

    return max(tried, key=worth)


def joined(data: Years, words: str) -> dict[str, Any]:
    """Return what the best weight of the embedding gives."""
    return best(data, (ours(data, words=words, scale=scale) for scale in SCALES))


def linear(data: Years, *, make: Callable[[float], Any], meaning: bool = False) -> dict[str, Any]:
    """Retrain the measured tags on everything, on TF-IDF of words and pairs, beside the embedding or not."""
    began = time.process_time()
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    rows = data.learnt
    x = vectorizer.fit_transform(data.of(rows))
    choose, test = (vectorizer.transform(data.of(part)) for part in (data.choose, data.test))
    if meaning:
        x, choose, test = (
            hstack([one, csr_matrix(data.meaning[part])], "csr")
            for one, part in ((x, rows), (choose, data.choose), (test, data.test))
        )
    encoding = time.process_time() - began + (len(data.years[-1]) * embedding_seconds() if meaning else 0)
    labels, known = data.labels[rows], data.known[rows]

    def trained(strength: float, every: bool) -> dict[str, Any]:
        began = time.process_time()
        models = []
        for k in data.measured.tolist():
            used = slice(None) if every else np.flatnonzero(known[:, k])
            models.append(make(strength).fit(x[used], (labels[:, k] & known[:, k])[used]))
        seconds = time.process_time() - began
        found = [np.stack([one.decision_function(part) for one in models], 1) for part in (choose, test)]
        negatives = "others are negatives" if every else "others are left out"
        return {
            "choice": f"C {strength:g}, {negatives}",
            "chosen_on": found[0],
            "scores": found[1],
            "seconds": encoding + seconds * data.labels.shape[1] / len(data.measured),
        }

    found = best(data, (trained(c, every) for c in STRENGTHS for every in (False, True)))
    kept = sum(len(text.encode()) for text in data.of(rows)) + (data.meaning[rows].nbytes if meaning else 0)
    return found | {"bytes": kept}


def annif(data: Years, *, backend: str, python: str) -> dict[str, Any]:
    """Retrain a backend of Annif on everything; what is not annotated is no subject of a text."""
    rows, asked = data.learnt, np.concatenate([data.choose, data.test])
    plain = [" ".join(text.split()) for text in data.texts]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "subjects.txt").write_text("".join(f"tag{k}\n" for k in range(data.labels.shape[1])))
        subjects = data.labels[rows] * data.known[rows]
        lines = (
            f"{plain[row]}\t{' '.join(map(str, np.flatnonzero(one)))}\n"
            for row, one in zip(rows, subjects, strict=True)
            if one.any()
        )
        (folder / "train.tsv").write_text("".join(lines))
        (folder / "texts.txt").write_text("".join(f"{plain[row]}\n" for row in asked))
        script = Path(__file__).with_name("annif_texts.py")
        done = subprocess.run(  # noqa: S603
            [python, str(script), name, backend], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"annif {backend}: {done.stderr[-2000:]}")
        scores = np.load(folder / "scores.npy").astype(np.float64)[:, data.measured]
        seconds = float((folder / "seconds.txt").read_text())
    return {
        "choice": "",
        "chosen_on": scores[: len(data.choose)],
        "scores": scores[len(data.choose) :],
        "seconds": seconds,
        "bytes": sum(len(text.encode()) for text in data.of(rows)),
    }


def decided(data: Years, found: dict[str, Any]) -> dict[str, Any]:
    """Add probabilities (by Platt) and tags (the threshold with the best F1), fitted on the rows to choose on."""
    truth = data.truth(data.choose)
    probabilities, tags = np.zeros(found["scores"].shape), np.zeros(found["scores"].shape, np.bool_)
    for k in range(truth.shape[1]):
        choose, test = found["chosen_on"][:, [k]], found["scores"][:, [k]]
        if truth[:, k].any():
            line = LogisticRegression(C=1e3).fit(choose, truth[:, k])
            probabilities[:, k] = line.predict_proba(test)[:, 1]
            precision, recall, at = precision_recall_curve(truth[:, k], choose[:, 0])
            f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
            tags[:, k] = test[:, 0] >= at[np.argmax(f1[:-1])]
        else:
            probabilities[:, k] = 1 / (len(truth) + 2)
    return found | {"probabilities": probabilities, "tags": tags}


def measured(data: Years, found: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a method."""
    if "tags" not in found:
        found = decided(data, found)
    truth = data.truth(data.test)
    right = (found["tags"] & (truth > 0)).sum(0)
    f1 = 2 * right / np.maximum(found["tags"].sum(0) + truth.sum(0), 1)
    row = {name: round(value, 2) for name, value in data.score(found["scores"], data.test).items()}
    there = truth.any(axis=0)
    return row | {
        "f1": round(100 * float(f1[there].mean()), 2),
        "brier": round(float(np.square(found["probabilities"] - truth).mean()), 5),
        "seconds": round(found["seconds"], 1),
        "bytes": found["bytes"],
        "choice": found["choice"],
    }


def methods(python: str | None) -> dict[str, Callable[[Years], dict[str, Any]]]:
    """Return all methods by name."""
    svm, logistic = (lambda c: LinearSVC(C=c)), (lambda c: LogisticRegression(C=30 * c, solver="liblinear"))
    found: dict[str, Callable[[Years], dict[str, Any]]] = {
        "mlcl, words": partial(ours, words="words", scale=None),
        "mlcl, words + MiniLM": partial(joined, words="words"),
        "TF-IDF, SVM per tag": partial(linear, make=svm),
        "TF-IDF, logistic regression per tag": partial(linear, make=logistic),
        "TF-IDF + MiniLM, SVM per tag": partial(linear, make=svm, meaning=True),
    }
    if python is not None:
        for backend in ("omikuji", "tfidf", "svc"):
            found[f"Annif, {backend}"] = partial(annif, backend=backend, python=python)
    return found


def page() -> str:
    """Return the page: means over the seeds that are complete, and standard deviations where there are several."""
    with OUT.open(newline="") as file:
        rows = list(csv.DictReader(file))
    every = {row["method"] for row in rows}
    done = {
        seed: {row["method"] for row in rows if row["seed"] == seed} for seed in {row["seed"] for row in rows}
    }
    seeds = sorted(seed for seed, found in done.items() if found == every)
    rows = [row for row in rows if row["seed"] in seeds]
    heads = ("", "AUC", "mAP", "F1", "Brier", "rare: AUC", "rare: mAP", "seconds", "MB kept")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        cells = [method]
        for name in (*METRICS, "seconds", "bytes"):
            values = np.array([float(row[name]) for row in own])
            digits = {"brier": 4, "seconds": 0, "bytes": 0}.get(name, 1)
            mean = values.mean() / (1e6 if name == "bytes" else 1)
            spread = f" ± {values.std(ddof=1):.{digits}f}" if name in ("auc", "map") and len(own) > 1 else ""
            cells.append(f"{mean:.{digits}f}{spread}")
        lines.append("| " + " | ".join(cells) + " |")
    notes = (__doc__ or "").split("\n\n", 2)[2].replace("``", "`").strip()
    first = rows[0]
    return (
        "# Growing taggers of texts, compared\n\n"
        "For anybody with texts: taggers that gain tags, beside what is trained anew on everything.\n\n"
        "<!-- Written by tools/texts.py; do not edit. -->\n\n"
        f"`make bench-text`; {int(first['packages']):,} packages, seeds {', '.join(seeds)}, about {first['tags']} "
        f"tags, {int(first['rows']):,} packages to learn from. *Rare*: the tags with 5 to 19 positives "
        f"alone. {MEASURED}\n\n" + "\n".join(lines) + f"\n\n{goals(rows)}\n\n{notes}\n"
    )


def goals(rows: list[dict[str, str]]) -> str:
    """Return which of the goals are met: means over the seeds of differences and ratios per seed."""
    seeds = sorted({row["seed"] for row in rows})

    def values(method: str, name: str) -> Floats:
        found = {row["seed"]: float(row[name]) for row in rows if row["method"] == method}
        return np.array([found[seed] for seed in seeds])

    plain = [f"TF-IDF, {one} per tag" for one in ("SVM", "logistic regression")]
    lines = ["| goal | words | words + MiniLM |", "|---|---|---|"]
    for words, name, least, others in (
        ("AUC at least 1 above the best TF-IDF linear model", "auc", 1.0, plain),
        ("mAP not below it", "map", 0.0, plain),
        ("mAP at most 1 below an SVM on the same features", "map", -1.0, ["TF-IDF + MiniLM, SVM per tag"]),
    ):
        gains = [
            float((values(f"mlcl, {one}", name) - np.max([values(m, name) for m in others], axis=0)).mean())
            for one in ("words", "words + MiniLM")
        ]
        cells = [f"{gain:+.1f}: {'met' if gain >= least else 'missed'}" for gain in gains]
        lines.append(f"| {words} | {cells[0] if others is plain else '-'} | {cells[1]} |")
    quick = np.max([values(one, "seconds") for one in plain], axis=0)
    times = [float((values(f"mlcl, {one}", "seconds") / quick).mean()) for one in ("words", "words + MiniLM")]
    told = [f"{ratio:.1f} x: {'met' if ratio <= 0.1 else 'missed'}" for ratio in times]
    lines.append(f"| a tenth of the time of the slower one per update | {told[0]} | {told[1]} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, one line per method and seed, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--packages", type=int, default=12_000)
    parser.add_argument("--vectors", type=Path, default=ROOT / ".debtags-minilm.npz")
    parser.add_argument("--annif", help="the Python of an environment with annif[omikuji]")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if not given.page:
        measure(given.seeds, given.packages, embeddings(given.packages, given.vectors), given.annif)
    PAGE.write_text(page(), encoding="utf-8")


def measure(seeds: int, packages: int, meaning: NDArray[np.float32], python: str | None) -> None:
    """Add the lines that are missing."""
    OUT.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if OUT.exists():
        with OUT.open(newline="") as file:
            done = {(row["method"], row["seed"]) for row in csv.DictReader(file)}
    with OUT.open("a", newline="") as file:
        out = csv.DictWriter(file, FIELDS)
        if not done:
            out.writeheader()
        for seed in range(seeds):
            data = read(seed, packages, meaning)
            shape = {"packages": packages, "tags": data.labels.shape[1], "rows": len(data.learnt)}
            for name, method in methods(python).items():
                if (name, str(seed)) not in done:
                    row = measured(data, method(data))
                    out.writerow({"method": name, "seed": seed} | shape | row)
                    file.flush()


if __name__ == "__main__":
    main()
