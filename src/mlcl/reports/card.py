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
from mlcl.models.provenance import describe_weights
from mlcl.reports.examine import RESAMPLES, Examined, LabelLine, label_lines
from mlcl.reports.records import Run
from mlcl.reports.rendering import PrintedTable, decimals, escaped, fenced, in_points
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
    pooled = None
    if examined is not None and examined.known is None:
        pooled = bootstrap_interval(examined.probabilities, examined.labels, resamples=RESAMPLES)
    parts = [
        card_header(run, examined, pooled),
        f"# {escaped(card_title(run))}",
        _summary(run),
        "## Intended use and limits",
        *_limits(run, lines),
        "## Labels",
        _label_table(run, lines),
        "## Evaluation",
        *_evaluation(run, examined, pooled, unseen),
        "## Probabilities and thresholds",
        *_probabilities(run),
        "## Training data",
        _data_table(run),
        "## Weights",
        *_weights(run),
        "## How to use it",
        "```sh\nmlcl predict DIR INPUT --out scores.csv\n```",
        "`DIR` is the folder of the run; `INPUT` is an image, a folder of images, an array or a store, with inputs of "
        f"shape {_shape(run)}.",
        "## Settings",
        fenced(yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True), "yaml"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(run: Run) -> str:
    labels, tasks = len(run.classes), run.matrix.tasks
    how = "at once" if tasks == 1 else f"in {tasks} tasks, one after the other,"
    return (
        f"A multi-label tagger for {input_kind(run)}: it gives each input a probability for each of {labels} "
        f"label{'s' * (labels != 1)}, which it learnt {how} with "
        f"the method {escaped(run.method)} of mlcl {__version__}. Measured by Macro-AUC: how well each label ranks the "
        f"rows that have it above those that do not, whatever its frequency."
    )


def _limits(run: Run, lines: Sequence[LabelLine] | None) -> list[str]:
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
    warned = run.folder / WARNINGS
    with contextlib.suppress(InputError):  # absent, or too large
        text = read_bounded(warned, limit=1 << 20, expected="warnings").decode(errors="replace")
        found += [escaped(line) for line in text.splitlines()[:20]]
    return ["\n".join(f"- {line}" for line in found)]


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(escaped(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _label_table(run: Run, lines: Sequence[LabelLine] | None) -> str:
    """Return one row per label: with decisions and intervals where test rows were scored."""
    if lines is None:
        rows = [
            [name, str(int(run.positive[k])), decimals(float(run.per_class[-1, k]), 1)]
            for k, name in enumerate(run.classes)
        ]
        return PrintedTable(
            "", ["Label", "Training rows", "AUC on its own task's test rows"], rows
        ).markdown()
    heads = [
        "Label",
        "Training rows",
        "Test rows",
        "AUC",
        "95 % interval",
        "AP",
        "Threshold",
        "Precision",
        "Recall",
    ]
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
    return PrintedTable("", heads, rows).markdown()


def _evaluation(run: Run, examined: Examined | None, pooled: Interval | None, unseen: str) -> list[str]:
    rows = [
        ["Macro-AUC, mean over tasks, each on its own test rows", decimals(run.values["macro_auc"], 1), ""],
        ["Forgetting (positive is a loss)", decimals(run.values["forgetting"], 1), ""],
    ]
    if examined is not None and pooled is not None:
        interval = in_points(pooled.low, pooled.high)
        mean = 100 * average_precision(examined.probabilities, examined.labels)
        rows += [
            ["Macro-AUC, all labels on all test rows", decimals(100 * pooled.estimate, 1), interval],
            ["mAP, all labels on all test rows", decimals(mean, 1), ""],
        ]
        note = (
            f"Measured on {len(examined.ids)} test rows of {escaped(examined.where)}, in points. Intervals are "
            f"percentile bootstrap intervals over test rows ({RESAMPLES} resamples): they do not cover the variation "
            f"of training."
        )
    else:
        rows += [
            ["Macro-AUC, all labels on all test rows", decimals(run.values["pooled_macro_auc"], 1), ""],
            ["mAP, all labels on all test rows", decimals(run.values["pooled_map"], 1), ""],
        ]
        note = f"As the run measured it, in points, without intervals. {escaped(unseen)}".strip()
    return [note, PrintedTable("", ["Measure", "Value", "95 % interval"], rows).markdown()]


def _probabilities(run: Run) -> list[str]:
    calibration, thresholds = read_calibration(run.folder, run), read_thresholds(run.folder, run)
    texts = [_fitted(calibration)]
    measured = run.calibration
    if measured is not None:
        names = {
            "brier": "Brier score",
            "brier_prior": "Brier score of the share of positives as a constant",
            "log_loss": "Log-loss",
            "calibration_error": "Calibration error, over all cells",
            "calibration_error_classes": "Calibration error, mean over labels",
        }
        values = [(name, measured.get(key)) for key, name in names.items()]
        rows = [[name, f"{value:.4f}"] for name, value in values if isinstance(value, int | float)]
        texts.append(PrintedTable("", ["On the test rows", "Value"], rows).markdown() if rows else "")
    goal = "none was chosen: 0.5 for every label" if thresholds.goal is None else f"{thresholds.goal}"
    rows_used = f", on {thresholds.rows} held-out rows" if thresholds.rows else ""
    texts.append(
        f"Thresholds (`mlcl thresholds`): {goal}{rows_used}. A label is given where its probability is above."
    )
    return texts


def _fitted(calibration: Calibration) -> str:
    if not calibration.rows:
        return (
            "Probabilities follow from the scores and the counts of labels; they were not fitted to held-out rows. "
            "`mlcl run --held_out SHARE` fits them."
        )
    own = int(calibration.own.sum())
    return (
        f"Probabilities were fitted on {calibration.rows} held-out rows that were not trained on: {own} of "
        f"{len(calibration.own)} labels by their own rows, the others by counts."
    )


def _data_table(run: Run) -> str:
    shapes = {split: data_field(run, split) for split in ("train", "test")}
    rows = [
        ["Name", str(data_field(run, "name") or run.benchmark)],
        ["Fingerprint", run.fingerprint or "not recorded"],
        ["Kind and shape of one input", f"{input_kind(run)}, {_shape(run)}"],
        *([f"{split.capitalize()} rows", str(shape[0])] for split, shape in shapes.items() if shape),
        ["Labels and tasks", f"{len(run.classes)} labels in {run.matrix.tasks} tasks"],
        [
            "Positives per label",
            f"{run.positive.min()} to {run.positive.max()}" if len(run.positive) else "-",
        ],
    ]
    return PrintedTable("", ["Training data", ""], rows).markdown()


def _weights(run: Run) -> list[str]:
    """Return where weights and features come from, and the code that made the run."""
    found = []
    for name in ("weights", "encoder_weights", "features"):
        record = getattr(run, name)
        if record is not None:
            found.append(
                f"- {name.capitalize().replace('_', ' ')}: {escaped(describe_weights(record, file=True))}."
            )
            if record.get("leak"):
                found.append(f"- Warning: {escaped(record['leak'])}")
    if not found:
        found.append("- No pre-trained weights: the model was made from the training rows alone.")
    versions = run.environment.get("versions")
    made = (
        ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else "not recorded"
    )
    found.append(
        f"- Made with: {escaped(made)}; commit {escaped(run.commit or 'not recorded')}; seed {run.seed}."
    )
    checksum = run.sha256.get(WEIGHTS)
    if checksum is not None:
        found.append(f"- SHA-256 of `{WEIGHTS}`: {escaped(checksum)}.")
    return ["\n".join(found)]


def _shape(run: Run) -> str:
    return " x ".join(map(str, run.input_shape or ())) or "not recorded"


def card_title(run: Run) -> str:
    """Return the name of the model: its method and its benchmark."""
    return f"{run.method} on {run.benchmark}"


def input_kind(run: Run) -> str:
    """Return whether the inputs are images or features."""
    return "images" if run.input_shape is not None and len(run.input_shape) == 3 else "features"


def card_header(run: Run, examined: Examined | None, pooled: Interval | None) -> str:
    """Return the YAML header: what the Hub lists and compares."""
    task = "image-classification" if input_kind(run) == "images" else "tabular-classification"
    metrics: list[dict[str, Any]] = [
        _metric("roc_auc", "Macro-AUC, mean over tasks (percent)", run.values["macro_auc"]),
        _metric(
            "roc_auc", "Macro-AUC, all labels on all test rows (percent)", run.values["pooled_macro_auc"]
        ),
        _metric("mean_average_precision", "mAP (percent)", run.values["pooled_map"]),
    ]
    if pooled is not None and examined is not None:
        metrics[1]["value"] = round(100 * pooled.estimate, 2)
        metrics[1]["args"] = {"interval_95": [round(100 * end, 2) for end in (pooled.low, pooled.high)]}
        metrics[2]["value"] = round(100 * average_precision(examined.probabilities, examined.labels), 2)
    if run.calibration is not None:
        metrics.append(_metric("brier_score", "Brier score", run.calibration.get("brier"), digits=4))
    header = {
        "library_name": "mlcl",
        "pipeline_tag": task,
        "tags": ["mlcl", "multi-label-classification", "continual-learning", "class-imbalance"],
        "metrics": ["roc_auc"],
        "model-index": [
            {
                "name": visible(card_title(run)),
                "results": [
                    {
                        "task": {"type": task, "name": "Multi-label classification"},
                        "dataset": {
                            "name": visible(run.benchmark),
                            "type": visible(data_field(run, "name") or run.benchmark),
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


def data_field(run: Run, key: str) -> Any:
    """Return what the run recorded of its data, or None."""
    record = run.environment.get("data")
    return record.get(key) if isinstance(record, dict) else None
