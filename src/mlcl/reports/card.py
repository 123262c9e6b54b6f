"""A model card in Markdown, from what a run knows: data, labels, measures, probabilities, provenance, limits.

The header is YAML as the Hugging Face Hub reads it. Names of labels and data come from outside: in the header YAML
quotes them, in the text they are escaped.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from mlcl._version import __version__
from mlcl.errors import InputError
from mlcl.files import read_bounded
from mlcl.metrics import Calibration, Interval, average_precision, bootstrap_interval
from mlcl.metrics.calibration import not_calibrated
from mlcl.reports.examine import RESAMPLES, Examined, LabelLine, label_lines
from mlcl.reports.records import Run
from mlcl.reports.rendering import PROBABILITIES, PrintedTable, decimals, escaped, fenced, in_points, plural
from mlcl.runs.folder import WARNINGS, WEIGHTS, read_calibration, read_thresholds
from mlcl.texts import visible

FEW = 20
"""A label with fewer training rows is named among the limits."""
WEAK = 0.7
"""A label with a lower AUC is named among the limits."""


def render_card(run: Run, *, examined: Examined | None = None, unseen: str = "") -> str:
    """Return the card as Markdown; the same run gives the same text.

    Args:
        run: the run.
        examined: its test rows, from which intervals and the measures of decisions are computed.
        unseen: why there are none, in a sentence.
    """
    if examined is not None and examined.known is not None:
        unseen = "No test row was annotated for all labels, so none of these is measured on all of them."
    lines = None if examined is None else label_lines(examined)
    pooled, auc, mean = None, run.values["pooled_macro_auc"], run.values["pooled_map"]
    if examined is not None and examined.known is None:
        pooled = bootstrap_interval(examined.probabilities, examined.labels, resamples=RESAMPLES)
        auc, mean = 100 * pooled.estimate, 100 * average_precision(examined.probabilities, examined.labels)
    parts = [
        _header(run, auc, mean, pooled),
        f"# {escaped(_title(run))}",
        _summary(run),
        "## Intended use and limits",
        _limits(run, lines),
        "## Labels",
        _label_table(run, lines),
        "## Evaluation",
        *_evaluation(run, auc, mean, pooled, examined, unseen),
        "## Probabilities and thresholds",
        *_probabilities(run),
        "## Training data",
        _data_table(run),
        "## Weights",
        _weights(run),
        "## How to use it",
        "```sh\nmlcl predict DIR INPUT --out scores.csv\n```",
        "`DIR` is the folder of the run; `INPUT` is an image, a folder of images, an array or a store, with inputs of "
        f"shape {_shape(run)}.",
        "## Settings",
        fenced(yaml.safe_dump(dict(run.settings), sort_keys=False, allow_unicode=True), "yaml"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(run: Run) -> str:
    labels, tasks = len(run.classes), run.summary.tasks
    how = "at once" if tasks == 1 else f"in {tasks} tasks, one after the other,"
    return (
        f"A multi-label tagger for {_kind(run)}: it gives each input a probability for each of "
        f"{plural(labels, 'label')}, which it learnt {how} with "
        f"the method {escaped(run.method)} of mlcl {__version__}. Measured by Macro-AUC: how well each label ranks the "
        f"rows that have it above those that do not, whatever its frequency."
    )


def _limits(run: Run, lines: Sequence[LabelLine] | None) -> str:
    """Return what is known of the limits, from the run itself."""
    found = [
        "It knows the labels below and no others; an input without any of them gets low probabilities, not a warning.",
        "Its measures hold for inputs like the test rows. Other cameras, sources or years were not tested; "
        "`mlcl drift` compares new inputs with the old ones.",
        "Nothing was measured for groups of people, and labels may carry the errors and habits of those who gave them.",
    ]
    few = [run.classes[k] for k in np.flatnonzero(run.positive < FEW)]
    if few:
        found.append(f"Fewer than {FEW} training rows: {_names(few)}.")
    if lines is not None:
        weak = [line.name for line in lines if line.auc < WEAK]
        if weak:
            found.append(f"AUC below {100 * WEAK:.0f} on the test rows: {_names(weak)}.")
    undefined = [run.classes[k] for k in np.flatnonzero(np.isnan(run.per_class[-1]))]
    if undefined:
        found.append(f"Not measured, for want of positive or negative test rows: {_names(undefined)}.")
    with contextlib.suppress(InputError):  # absent, or too large
        text = read_bounded(run.folder / WARNINGS, limit=1 << 20, expected="warnings").decode(
            errors="replace"
        )
        found += [escaped(line) for line in text.splitlines()[:20]]
    return "\n".join(f"- {line}" for line in found)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(escaped(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _label_table(run: Run, lines: Sequence[LabelLine] | None) -> str:
    """Return one row per label: with decisions and intervals where test rows were scored."""
    if lines is None:
        columns = zip(run.classes, run.positive.tolist(), run.per_class[-1].tolist(), strict=True)
        short = [[name, str(count), decimals(auc, 1)] for name, count, auc in columns]
        return _table(("Label", "Training rows", "AUC on its own task's test rows"), short)
    heads = (
        "Label",
        "Training rows",
        "Test rows",
        "AUC",
        "95 % interval",
        "AP",
        "Threshold",
        "Precision",
        "Recall",
    )
    rows = [
        [
            line.name,
            str(line.positive),
            str(line.test_positive),
            decimals(100 * line.auc, 1),
            in_points(line.low, line.high),
            decimals(100 * line.ap, 1),
            "never" if line.threshold >= 1 else f"{line.threshold:.3f}",
            decimals(100 * line.precision, 1),
            decimals(100 * line.recall, 1),
        ]
        for line in lines
    ]
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return PrintedTable("", heads, rows).markdown()


def _evaluation(
    run: Run, auc: float, mean: float, pooled: Interval | None, examined: Examined | None, unseen: str
) -> list[str]:
    note, interval = f"As the run measured it, in points, without intervals. {escaped(unseen)}".strip(), ""
    if examined is not None and pooled is not None:
        interval = in_points(pooled.low, pooled.high)
        note = (
            f"Measured on {len(examined.ids)} test rows of {escaped(examined.where)}, in points. Intervals are "
            f"percentile bootstrap intervals over test rows ({RESAMPLES} resamples): they do not cover the variation "
            f"of training."
        )
    rows = [
        ["Macro-AUC, mean over tasks, each on its own test rows", decimals(run.values["macro_auc"], 1), ""],
        ["Forgetting (positive is a loss)", decimals(run.values["forgetting"], 1), ""],
        ["Macro-AUC, all labels on all test rows", decimals(auc, 1), interval],
        ["mAP, all labels on all test rows", decimals(mean, 1), ""],
    ]
    return [note, _table(("Measure", "Value", "95 % interval"), rows)]


def _probabilities(run: Run) -> list[str]:
    calibration, thresholds = read_calibration(run.folder, run), read_thresholds(run.folder, run)
    texts = [_fitted(calibration)]
    measured = run.calibration
    if measured is not None:
        worse = not_calibrated(measured)
        texts.insert(0, f"**{worse.capitalize()}.**" if worse else "")
        values = [(words, measured.get(name)) for name, words in PROBABILITIES.items()]
        rows = [[words, f"{value:.4f}"] for words, value in values if isinstance(value, int | float)]
        texts.append(_table(("On the test rows", "Value"), rows) if rows else "")
    goal = "none was chosen: 0.5 for every label" if thresholds.goal is None else f"{thresholds.goal}"
    rows_used = f", on {thresholds.rows} held-out rows" if thresholds.rows else ""
    texts.append(
        f"Thresholds (`mlcl thresholds`): {goal}{rows_used}. A label is given where its probability is above."
    )
    return texts


def _fitted(calibration: Calibration) -> str:
    if not calibration.rows:
        return (
            "Not calibrated: probabilities follow from the scores and the counts of labels; they were not fitted to "
            "held-out rows. `mlcl run --held_out SHARE` fits them."
        )
    own = int(calibration.own.sum())
    return (
        f"Probabilities were fitted on {calibration.rows} held-out rows that were not trained on: {own} of "
        f"{len(calibration.own)} labels by their own rows, the others by counts. The tagger keeps their inputs, up to "
        "16 MiB, to score them again after an update."
    )


def _data_table(run: Run) -> str:
    positive = run.positive
    rows = [
        ["Name", str(run.data.get("name") or run.benchmark)],
        ["Fingerprint", run.fingerprint or "not recorded"],
        ["Kind and shape of one input", f"{_kind(run)}, {_shape(run)}"],
        *([f"{s.capitalize()} rows", str(run.data[s][0])] for s in ("train", "test") if run.data.get(s)),
        ["Labels and tasks", f"{len(run.classes)} labels in {run.summary.tasks} tasks"],
        ["Positives per label", f"{positive.min()} to {positive.max()}" if len(positive) else "-"],
    ]
    return _table(("Training data", ""), rows)


def _weights(run: Run) -> str:
    """Return where weights and features come from, and the code that made the run."""
    found = [f"{name}: {escaped(text)}{'.' * (name != 'Warning')}" for name, text in run.provenance]
    found = found or ["No pre-trained weights: the model was made from the training rows alone."]
    made = escaped(", ".join(f"{name} {value}" for name, value in run.versions.items()) or "not recorded")
    found.append(f"Made with: {made}; commit {escaped(run.commit or 'not recorded')}; seed {run.seed}.")
    checksum = run.sha256.get(WEIGHTS)
    if checksum is not None:
        found.append(f"SHA-256 of `{WEIGHTS}`: {escaped(checksum)}.")
    return "\n".join(f"- {line}" for line in found)


def _shape(run: Run) -> str:
    return " x ".join(map(str, run.input_shape or ())) or "not recorded"


def _title(run: Run) -> str:
    return f"{run.method} on {run.benchmark}"


def _kind(run: Run) -> str:
    return "images" if run.input_shape is not None and len(run.input_shape) == 3 else "features"


def _header(run: Run, auc: float, mean: float, pooled: Interval | None) -> str:
    """Return the YAML header: what the Hub lists and compares."""
    task = "image-classification" if _kind(run) == "images" else "tabular-classification"
    ends = [] if pooled is None else [round(100 * end, 2) for end in (pooled.low, pooled.high)]
    args = {"args": {"interval_95": ends}} if ends else {}
    metrics = [
        _metric("roc_auc", "Macro-AUC, mean over tasks (percent)", run.values["macro_auc"]),
        _metric("roc_auc", "Macro-AUC, all labels on all test rows (percent)", auc) | args,
        _metric("mean_average_precision", "mAP (percent)", mean),
    ]
    if run.calibration is not None:
        metrics.append(_metric("brier_score", "Brier score", run.calibration.get("brier"), digits=4))
    header = {
        "library_name": "mlcl",
        "pipeline_tag": task,
        "tags": ["mlcl", "multi-label-classification", "continual-learning", "class-imbalance"],
        "metrics": ["roc_auc"],
        "model-index": [
            {
                "name": visible(_title(run)),
                "results": [
                    {
                        "task": {"type": task, "name": "Multi-label classification"},
                        "dataset": {
                            "name": visible(run.benchmark),
                            "type": visible(run.data.get("name") or run.benchmark),
                            "revision": visible(run.fingerprint or "unknown"),
                        },
                        "metrics": [metric for metric in metrics if metric["value"] is not None],
                    }
                ],
            }
        ],
    }
    text = yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=10**6)
    return f"---\n{text}---"


def _metric(kind: str, name: str, value: Any, *, digits: int = 2) -> dict[str, Any]:
    good = isinstance(value, int | float) and math.isfinite(value)
    return {"type": kind, "name": name, "value": round(float(value), digits) if good else None}
