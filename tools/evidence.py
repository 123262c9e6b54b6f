"""Write docs/evidence: one page per benchmark, and results.md: ``python tools/evidence.py`` (``make results``).

The sections come from `ledger` (the paper's tables) and `beyond` (with gaps to upper bounds, goals and figures).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import beyond
import ledger
import yaml
from ledger import BENCHMARKS, ROOT, Sweep, write

PAGES = ROOT / "docs" / "evidence"
OWN = ("beyond", "mlcil", "equal", "adam", "shipped")
"""How the folders begin whose tables other sections and pages show."""

BENCHMARK_TEXTS = {
    "c-digits": "20 labels of coloured digits, five tasks, 200 stored images; a ResNet-8 learns from scratch.",
    "c-voc-small": "VOC 2012 at 32 pixels: 20 labels, five tasks, 500 stored images; a ResNet-8 from scratch.",
    "c-coco-small": "COCO 2017 at 32 pixels: 80 labels, eight tasks; a ResNet-8 learns from scratch.",
    "c-voc-features": "VOC 2012 as 1,280 features of a MobileNetV2 trained on ImageNet; a small head learns.",
    "c-coco-features": "16,000 images of COCO 2017 as 1,280 features of a MobileNetV2; a small head learns.",
    "c-scene": "Scene: 6 labels, 294 features; a small network learns.",
    "c-enron": "Enron: 53 labels of e-mails, 1,001 words; a small network learns.",
    "many400": "Generated vectors with 400 labels in ten tasks (`results/trials/many_classes.py`).",
    "many1000": "Generated vectors with 1,000 labels in ten tasks (`results/trials/many_classes.py`).",
}

HEAD = """\
# Results on {name}

For readers who want the numbers behind [the verdicts](verdicts.md): every table that was run on `{name}`, with its
command. {text} [How to read the tables](results.md#reading).
"""

INDEX = """\
# Results: how they were made

For readers who check numbers: you find here how every table was made, the paper's claims with a verdict on each
benchmark, and the goals of the recommended method. `make results` writes this page and those of the benchmarks.

{pages}

## How to read the tables {{#reading}}

- Values are points (x 100): mean ± sample standard deviation over seeds; differences are paired by seed and have a
  95 % t-interval. A seed also draws the order of the classes, except with `--stream.order paper`.
- **In-task** Macro-AUC ranks the test rows of a task by its own classes; **pooled** ranks all test rows by all classes.
- *Head*, *medium* and *tail* are the thirds of the classes by number of positives, most frequent first.
- A claim **holds** if the interval of every difference lies above zero, **does not hold** if one lies below zero, and
  is undecided otherwise; with one seed only the difference is shown.
- All tables have one learning rate per benchmark, the one that it ships. Losses differ in scale, so a difference
  between rows may be one of rates: [learning rates](rates.md) has the main rows, each at its own best rate.
- Rows of `exact`, `committee` and `taught-committee` show the exact learner's first form (commit 451533d and before);
  [its second form](logistic-regression.md) has more mAP on features at nearly the same AUC.
- Seconds were measured on machines that were busy in different ways, except for those of methods on fixed features
  (`python tools/regime.py --measure`). In *gap closed*, 0 % is ER with the same augmentation and schedule, and 100 %
  is the better of joint training with RLDAM and with BCE.
- Intervals are over seeds, which also draw the order of the classes where the benchmark says so, on one test set: they
  do not cover another test set, and nothing is corrected for the number of comparisons in a table.
- The tables were made by the commits that they name. Since then inputs are normalised by the first task, the seed draws
  the order of the classes on VOC and COCO, the loss grows with the number of classes of a task, and KRT takes the mean
  number of labels from the benchmark. `--stream.order paper --train.class_power 0` restores all but the first.

## The paper's claims on each benchmark {{#claims}}

{claims}

## The goals of the recommended method {{#goals}}

{goals}
"""


def page(name: str, sweeps: Sequence[Sweep], own: Sequence[Sweep], claims: list[dict[str, object]]) -> str:
    """Return the page of a benchmark."""
    lines: list[str] = [HEAD.format(name=name, text=BENCHMARK_TEXTS[name]).rstrip()]
    for sweep in sorted(own, key=lambda sweep: str(sweep.record["table"])):
        if sweep.record["benchmark"] == name:
            lines += beyond.section(sweep)
    lines += ledger.sections(sweeps, name, claims)
    return "\n".join(lines) + "\n"


def index(sweeps: Sequence[Sweep], own: Sequence[Sweep], claims: list[dict[str, object]]) -> str:
    """Return the page of results."""
    return INDEX.format(
        pages="\n".join(f"- [{name}]({name}.md): {BENCHMARK_TEXTS[name]}" for name in BENCHMARKS),
        claims="\n".join(ledger.claims_table(sweeps, claims)),
        goals="\n".join(beyond.goals({(s.record["table"], s.record["benchmark"]): s for s in own})),
    )


def written() -> Iterator[int]:
    """Write or check every page and figure; yield whether each was stale."""
    found = [Sweep.read(path.parent) for path in sorted((ROOT / "results").glob("*/sweep.yaml"))]
    own = [sweep for sweep in found if sweep.folder.name.startswith("beyond")]
    sweeps = [sweep for sweep in found if not sweep.folder.name.startswith(OWN)]
    claims = yaml.safe_load((ROOT / "tools" / "claims.yaml").read_text())
    yield write(index(sweeps, own, claims), PAGES / "results.md")
    for name in BENCHMARKS:
        yield write(page(name, sweeps, own, claims), PAGES / f"{name}.md")
    for one in own:
        drawing = (one.folder / "figure.svg").read_text()
        yield write(drawing, ROOT / "docs" / "images" / beyond.figure(one))


if __name__ == "__main__":
    raise SystemExit(max(list(written())))
