"""What a tagger promises, on eight real datasets and on simulated rows: probabilities, precision, the gate.

    python tools/promises.py brier        # results/promises/brier.csv: Brier scores beside logistic regression's
    python tools/promises.py precision    # results/promises/precision.csv: goal 0.9 with confidence 0.9, 20 resamples
    python tools/promises.py draws        # results/promises/draws.csv: the same on 1,000 simulated labels
    python tools/promises.py gate         # results/promises/gate.csv: shuffled labels, losses of many updates
    python tools/promises.py              # the tables of docs/evidence/promises.md

Needs the stores of `tools/exact_sets.py`. One thread; nothing is chosen on test rows. Procedures of `precision`:

- fixed sequence: what mlcl does, cuts from few rows given to many, each at the full level up to the first failure;
- all cuts: learn then test with Bonferroni's correction over the same cuts (Angelopoulos et al., 2021);
- MAPIE: `BinaryClassificationController` of MAPIE 1.6 with the same cuts, in an environment of its own, if
  ``MAPIE_PYTHON`` names its interpreter;
- no bound: the cut of most recall whose precision on the same rows is the goal, as was done before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from calibration import read_csv, write_csv
from exact_sets import SETS, Part, read, standardised
from ledger import ROOT, write
from linear import Turned, regressions
from numpy.typing import NDArray
from scipy.special import betainc, expit
from scipy.stats import norm
from summary import between

from mlcl.datasets import Dataset
from mlcl.metrics import Goal, choose_thresholds, log_loss
from mlcl.metrics.changes import ModelAnswers, auc_changes, pooled_changes
from mlcl.sklearn import ExactTagger
from mlcl.taggers.gate import LEVEL, Verdict, unlike

RESULTS = ROOT / "results" / "promises"
PAGE = ROOT / "docs" / "evidence" / "promises.md"
SIZES = (100, 400, 1000, 4000)
LABELS, SEEDS = 100, 2
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
GOAL = Goal("precision", 0.9, 0.9)
RESAMPLES, ROWS = 20, 1000
SLOW = 3
"""Of the resamples are given to MAPIE, which takes a fifth of a second per label."""
Floats = NDArray[Any]


def drawn(
    name: str, seed: int
) -> tuple[Floats, NDArray[np.uint8], NDArray[Any], NDArray[Any], np.random.Generator]:
    """Return rows, labels of at most `LABELS` classes, the rows to learn from and to test on, and the generator."""
    x, y, source = read(name)
    x = x[:, x.std(0) > 1e-9 * x.std(0).max()]  # three numbers of MiniLM are the rounding of a constant
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    if name.startswith("debtags"):
        order = order[np.argsort(rng.random(source.max() + 1)[source][order], kind="stable")]
    count = min(2000, len(x) // 4)
    pool, test = order[:-count], order[-count:]
    some = np.flatnonzero(y[pool].sum(0) >= 5)
    return x, y[:, np.sort(rng.permutation(some)[:LABELS])], pool, test, rng


def by_regression(x: Floats, y: Floats, test: Floats) -> Floats:
    """Return the probabilities of logistic regression, C chosen by log-loss on a fifth of the rows."""
    cut, weights, losses = len(x) * 4 // 5, None, list[float]()
    few, rest = standardised(Part(x[:cut], y[:cut]), Part(x[cut:], y[cut:]))
    turned = Turned.of(few)
    rest = turned.apply(rest)
    for strength in STRENGTHS:
        weights = regressions(turned, y[:cut], strength, start=weights, tolerance=1e-3)
        found = expit((rest @ weights).astype(np.float64))
        losses.append(float(log_loss(found, y[cut:], average="pooled")))
        if len(losses) > 2 and min(losses[-2:]) > min(losses):
            break
    every, test = standardised(Part(x, y), Part(test, y[:0]))
    turned, best = Turned.of(every), STRENGTHS[int(np.argmin(losses))]
    return np.asarray(expit(turned.apply(test) @ regressions(turned, y, best, tolerance=1e-3)))


def brier() -> None:
    """Measure Brier scores of what the table does not have yet."""
    path = RESULTS / "brier.csv"
    for name in SETS:
        for seed in range(SEEDS):
            lines: list[dict[str, Any]] = list(read_csv(path)) if path.exists() else []
            done = {(one["data"], one["seed"], one["rows"]) for one in lines}
            x, y, pool, test, rng = drawn(name, seed)
            for rows in (n for n in SIZES if n <= len(pool)):
                own = rng.permutation(pool)[:rows]
                if (name, str(seed), str(rows)) in done:
                    continue
                given = {
                    "prior": np.broadcast_to((y[own].sum(0) + 0.5) / (rows + 1), y[test].shape),
                    "regression": by_regression(x[own], y[own], x[test]),
                    "sums": ExactTagger().partial_fit(x[own], y[own]).predict_proba(x[test]),
                    "kept": ExactTagger(calibrate=400).partial_fit(x[own], y[own]).predict_proba(x[test]),
                }
                positive = y[own].sum(0)
                line: dict[str, Any] = {"data": name, "seed": seed, "rows": rows, "labels": y.shape[1]}
                for method, p in given.items():
                    line |= scores(method, p, y[test], positive)
                columns = dict.fromkeys(
                    lines[0] if lines else line, ""
                )  # also those that were measured before
                lines.append(columns | line)
                write_csv(path, lines)
                sys.stderr.write(f"{name} {seed} {rows}\n")


def scores(method: str, p: Floats, y: Floats, positive: Floats) -> dict[str, Any]:
    """Return the Brier score, times 100, of all labels, and of those with few and with many positives."""
    score, few = ((p - y) ** 2).mean(0), positive < 20
    groups = {"": few | True, " few": few, " many": ~few}
    return {f"{method}{name}": 100 * score[own].mean() if own.any() else "" for name, own in groups.items()}


def lowest_passing(p: Floats, y: Floats, test: Callable[[Floats, Floats], Floats]) -> float:
    """Return the lowest of mlcl's cuts at which a test of hits and rows given passes; 1 where none does."""
    order = np.argsort(-p, kind="stable")
    hits, given = np.cumsum(y[order]), np.unique(np.ceil(1.05 ** np.arange(200)).astype(int))
    given = given[given < len(p)]
    passed = np.flatnonzero(test(hits[given - 1].astype(float), given.astype(float)))
    return float(p[order][given[passed[-1]]]) if len(passed) else 1.0


def all_cuts(hits: Floats, given: Floats) -> Floats:
    """Test every cut, each at its part of the level."""
    chance = 1 - betainc(np.maximum(hits, 1e-300), given - hits + 1, float(GOAL.value or 0))
    return np.asarray(chance >= 1 - (1 - GOAL.confidence) / len(hits))


def no_bound(hits: Floats, given: Floats) -> Floats:
    """Compare precision on the rows themselves."""
    return np.asarray(hits / given >= float(GOAL.value or 0))


def cuts(p: Floats, y: Floats, *, mapie: bool = True) -> dict[str, Floats]:
    """Return the cuts of all classes by each procedure."""
    columns = list(zip(p.T, y.T, strict=True))
    found = {"fixed sequence": choose_thresholds(p, y, goal=GOAL).values}
    found |= {
        name: np.array([lowest_passing(a, b, test) for a, b in columns])
        for name, test in (("all cuts", all_cuts), ("no bound", no_bound))
    }
    if (python := os.environ.get("MAPIE_PYTHON")) and mapie:
        found["MAPIE"] = by_mapie(python, p, y)
    return found


MAPIE = """
import sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from mapie.risk_control import BinaryClassificationController
data, wanted, confidence = np.load(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
found = []
for p, y in zip(data["p"].T, data["y"].T):
    cuts = np.unique(np.sort(p)[::-1][np.unique(np.minimum(1.05 ** np.arange(200), len(p) - 1).astype(int))])
    control = BinaryClassificationController(lambda x: np.column_stack([1 - x[:, 0], x[:, 0]]), risk="precision",
        target_level=wanted, confidence_level=confidence, best_predict_param_choice="recall",
        list_predict_params=cuts)
    control.calibrate(p[:, None], y.astype(int))
    best = control.best_predict_param
    found.append(1.0 if best is None else np.nextafter(float(best), -1))
np.save(sys.argv[4], found)
"""


def by_mapie(python: str, p: Floats, y: Floats) -> Floats:
    """Return the cuts of MAPIE, which runs in another interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "rows.npz", p=p, y=y)
        given = [
            str(Path(folder) / "rows.npz"),
            str(GOAL.value),
            str(GOAL.confidence),
            str(Path(folder) / "out.npy"),
        ]
        subprocess.run([python, "-c", MAPIE, *given], check=True, capture_output=True)  # noqa: S603
        return np.asarray(np.load(given[-1]))


def precision() -> None:
    """Certify on rows that were drawn anew, one tagger per set, and count on all other rows."""
    lines = list[dict[str, Any]]()
    for name in SETS:
        x, y, pool, test, _ = drawn(name, 0)
        own = pool[: min(4000, len(pool) // 2)]
        rest = np.concatenate([pool[len(own) :], test])[:8000]
        p, truth = ExactTagger().partial_fit(x[own], y[own]).predict_proba(x[rest]), y[rest]
        for resample in range(RESAMPLES):
            rows = np.random.default_rng(resample).permutation(len(rest))
            known, new = rows[:ROWS], rows[ROWS:]
            for procedure, found in cuts(p[known], truth[known], mapie=resample < SLOW).items():
                given = p[new] > found
                hits, count = (given & (truth[new] > 0)).sum(0), given.sum(0)
                some = count >= 10
                below = hits < GOAL.value * count
                # Where the new rows alone would be a surprise at the goal, at 2.5 %.
                surely = betainc(hits + 1.0, np.maximum(count - hits, 1e-9), float(GOAL.value or 0)) > 0.975
                line = {"data": name, "resample": resample, "procedure": procedure, "labels": len(found)}
                line |= {"certified": int((found < 1).sum()), "counted": int(some.sum())}
                line |= {"below": int((some & below).sum()), "surely": int((some & surely).sum())}
                shares = hits[some] / count[some]
                lines.append(line | {"precision": float(shares.mean()) if some.any() else ""})
        write_csv(RESULTS / "precision.csv", lines)
        sys.stderr.write(f"{name}\n")


def draws() -> None:
    """Certify labels whose scores are two Gaussians, so that the precision above a cut is known."""
    lines, rng = list[dict[str, Any]](), np.random.default_rng(0)
    for rows in (400, 1000, 4000):
        prior, gap = rng.uniform(0.03, 0.4, 1000), rng.uniform(1.5, 4.0, 1000)
        y = rng.random((rows, 1000)) < prior
        scores = rng.normal(size=y.shape) + gap * y
        for procedure, found in cuts(expit(scores), y).items():
            with np.errstate(divide="ignore"):
                cut = np.log(found) - np.log1p(-found)
            some = found < 1
            above, false = prior * norm.sf(cut - gap), (1 - prior) * norm.sf(cut)
            true = above[some] / np.maximum(above + false, 1e-300)[some]
            line = {"rows": rows, "procedure": procedure, "certified": int(some.sum())}
            below = int((true < GOAL.value).sum())
            lines.append(line | {"below": below, "precision": float(true.mean()) if some.any() else ""})
    write_csv(RESULTS / "draws.csv", lines)


def gate() -> None:
    """Count what the gate notices."""
    lines = list[dict[str, Any]]()
    for name in ("VOC features", "Scene", "Enron", "corel5k"):
        noticed, alarms = list[bool](), list[bool]()
        with tempfile.TemporaryDirectory() as folder:
            x, y, pool, *_ = drawn(name, 0)
            own, new = pool[: len(pool) // 2], pool[len(pool) // 2 :]
            tagger = ExactTagger(calibrate=400).partial_fit(
                x[own], y[own], classes=[str(k) for k in range(y.shape[1])]
            )
            tagger.save(Path(folder) / "tagger")
            for trial in range(40):
                rng = np.random.default_rng(trial)
                rows = rng.permutation(new)[:400]
                wrong = y[rows].copy()
                some = np.flatnonzero(rng.random(len(rows)) < 1 / 3)
                wrong[some] = wrong[rng.permutation(some)]
                for labels, found in ((wrong, noticed), (y[rows], alarms)):
                    data = Dataset.of("new", tagger.classes_.tolist(), x[rows], labels, x[:9], y[:9])
                    found.append(unlike(Path(folder) / "tagger", data) is not None)
        what = f"a third of 400 rows of {name} shuffled"
        lines.append({"what": what, "refused": np.mean(noticed), "without": np.mean(alarms), "trials": 40})
        write_csv(RESULTS / "gate.csv", lines)
    for loss, what in ((0.02, "2 points lost by each label at each of three updates"),):
        refused = [losing(seed, loss) for seed in range(200)]
        nothing = [losing(1000 + seed, 0.0) for seed in range(200)]
        lines.append({"what": what, "refused": np.mean(refused), "without": np.mean(nothing), "trials": 200})
    write_csv(RESULTS / "gate.csv", lines)


def losing(seed: int, loss: float) -> bool:
    """Return whether one of three updates is refused that each lose some AUC of twenty labels on 1,500 test rows."""
    rng = np.random.default_rng(seed)
    y = rng.random((1500, 20)) < np.geomspace(0.02, 0.3, 20)
    own = rng.normal(size=y.shape)
    versions = []
    for update in range(4):
        gap = np.sqrt(2) * norm.ppf(0.9 - loss * update)
        noise = own * np.sqrt(0.95) + np.sqrt(0.05) * rng.normal(size=y.shape)
        scores = noise + gap * y
        p = expit(gap * (scores - gap / 2) + np.log(y.mean(0)))
        versions.append(ModelAnswers(scores, p, p > 0.3))
    for update in range(1, 4):
        earlier = dict.fromkeys((update - 1, 0))
        level = 1 - (1 - LEVEL) / len(earlier)
        for other in earlier:
            before, after = versions[other], versions[update]
            changes = auc_changes(before.scores, after.scores, y, level=(1 + level) / 2)
            pooled = tuple(pooled_changes(before, after, y))
            names = tuple(map(str, range(20)))
            if not Verdict(1, "", len(y), 1.0, level, names, changes, pooled, (), (), ()).passed:
                return True
    return False


def mean(lines: list[dict[str, str]], column: str) -> float:
    """Return the mean of a column, of the lines that have it."""
    return float(np.mean([float(line[column]) for line in lines if line[column] != ""] or [np.nan]))


def brier_table() -> Iterator[str]:
    """Yield ratios of Brier scores, per set and size."""
    lines = read_csv(RESULTS / "brier.csv")
    methods = [name for name in ("before", "kept", "sums", "prior") if name in lines[0]]
    heads = {"before": "kept rows, before", "kept": "kept rows", "sums": "sums alone", "prior": "the prior"}
    yield (
        "| data | rows | regression (x 100) | "
        + " | ".join(heads[name] for name in methods)
        + " | kept, labels with fewer than 20 positives, to the prior |"
    )
    yield "|---|---:|---:|" + "---:|" * (len(methods) + 1)
    for name in SETS:
        for rows in SIZES:
            own = [line for line in lines if line["data"] == name and line["rows"] == str(rows)]
            if own:
                base = mean(own, "regression")
                shares = (mean(own, method) / base for method in methods)
                cells = [f"{share:.3f}" if np.isfinite(share) else "-" for share in shares]
                ratio = mean(own, "kept few") / mean(own, "prior few")
                few = f"{ratio:.3f}" if np.isfinite(ratio) else "-"
                yield f"| {name} | {rows:,} | {base:.3f} | " + " | ".join([*cells, few]) + " |"


def precision_table() -> Iterator[str]:
    """Yield what was certified, and how often it was not so."""
    lines = read_csv(RESULTS / "precision.csv")
    yield "| data | procedure | certified of labels | mean precision | below the goal | surely below |"
    yield "|---|---|---:|---:|---:|---:|"
    for name in [*SETS, "all"]:
        for procedure in dict.fromkeys(line["procedure"] for line in lines):
            own = [line for line in lines if line["procedure"] == procedure and name in (line["data"], "all")]
            if own:
                sums = {
                    c: sum(int(line[c]) for line in own)
                    for c in ("certified", "labels", "counted", "below", "surely")
                }
                count = max(sums["counted"], 1)
                share, reached = sums["certified"] / sums["labels"], mean(own, "precision")
                yield (
                    f"| {name} | {procedure} | {share:.1%} | {'-' if np.isnan(reached) else f'{reached:.3f}'} | "
                    f"{sums['below'] / count:.1%} | {sums['surely'] / count:.1%} |"
                )


def draws_table() -> Iterator[str]:
    """Yield the same of simulated labels."""
    yield "| rows | procedure | certified of 1,000 | mean precision | below the goal |"
    yield "|---:|---|---:|---:|---:|"
    for line in read_csv(RESULTS / "draws.csv"):
        share = int(line["below"]) / max(int(line["certified"]), 1)
        precision = f"{float(line['precision']):.3f}" if line["precision"] else "-"
        yield f"| {line['rows']} | {line['procedure']} | {line['certified']} | {precision} | {share:.1%} |"


def gate_table() -> Iterator[str]:
    """Yield what the gate noticed."""
    yield "| what happened | noticed | alarms without it | trials |"
    yield "|---|---:|---:|---:|"
    for line in read_csv(RESULTS / "gate.csv"):
        yield f"| {line['what']} | {float(line['refused']):.1%} | {float(line['without']):.1%} | {line['trials']} |"


TABLES = {"brier": brier_table, "precision": precision_table, "draws": draws_table, "gate": gate_table}


def main() -> int:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=TABLES)
    parser.add_argument("--check", action="store_true", help="fail where the page is not current")
    verb = parser.parse_args().verb
    warnings.simplefilter("ignore")
    if verb is not None:
        {"brier": brier, "precision": precision, "draws": draws, "gate": gate}[verb]()
        return 0
    text = PAGE.read_text()
    for name, table in TABLES.items():
        made = (RESULTS / f"{name}.csv").exists()
        text = between(
            text, list(table()) if made else [f"Not measured yet: `python tools/promises.py {name}`."], name
        )
    return write(text, PAGE)


if __name__ == "__main__":
    sys.exit(main())
