"""A model card in Markdown, from what a run knows: data, labels, measures, probabilities, provenance, limits.

The header is YAML as the Hugging Face Hub reads it. Names of labels and data come from outside: in the header YAML
quotes them, in the text they are escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from mlcl._version import __version__
from mlcl.metrics import Interval, average_precision, bootstrap_interval
from mlcl.models.provenance import describe
from mlcl.reports.examine import RESAMPLES, Examined, LabelLine, label_lines
from mlcl.reports.records import Run
from mlcl.runs.calibration import Calibration
from mlcl.runs.folder import WARNINGS, read_calibration, read_thresholds

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
    lines = None if examined is None else label_lines(examined)
    pooled = None
    if examined is not None:
        pooled = bootstrap_interval(examined.probabilities, examined.labels, resamples=RESAMPLES)
    parts = [
        _header(run, examined, pooled),
        f"# {escaped(_title(run))}",
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
        _fenced(yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True), "yaml"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: object) -> str:
    r"""Return text that Markdown shows as it is, on one line: no markup, no table cell, no HTML.

    >>> print(escaped("a|b <script> [x](y)\n# *z*"))
    a\|b \<script\> \[x\]\(y\) \# \*z\*
    """
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&$])", r"\\\1", _one_line(text))


def _one_line(text: object) -> str:
    """Return text without line breaks and control characters: a line of dashes would end the header."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def _title(run: Run) -> str:
    return f"{run.method} on {run.benchmark}"


def _kind(run: Run) -> str:
    return "images" if run.input_shape is not None and len(run.input_shape) == 3 else "features"


def _header(run: Run, examined: Examined | None, pooled: Interval | None) -> str:
    """Return the YAML header: what the Hub lists and compares."""
    task = "image-classification" if _kind(run) == "images" else "tabular-classification"
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
                "name": _one_line(_title(run)),
                "results": [
                    {
                        "task": {"type": task, "name": "Multi-label classification"},
                        "dataset": {
                            "name": _one_line(run.benchmark),
                            "type": _one_line(_data(run, "name") or run.benchmark),
                            "revision": _one_line(run.fingerprint or "unknown"),
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


def _summary(run: Run) -> str:
    labels, tasks = len(run.classes), run.matrix.tasks
    return (
        f"A multi-label tagger for {_kind(run)}: it gives each input a probability for each of {labels} "
        f"label{'s' * (labels != 1)}, which it learnt in {tasks} task{'s' * (tasks != 1)}, one after the other, with "
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
    if warned.is_file() and warned.stat().st_size < 1 << 20:
        found += [
            escaped(line) for line in warned.read_text(encoding="utf-8", errors="replace").splitlines()[:20]
        ]
    return ["\n".join(f"- {line}" for line in found)]


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(escaped(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _label_table(run: Run, lines: Sequence[LabelLine] | None) -> str:
    """Return one row per label: with decisions and intervals where test rows were scored."""
    if lines is None:
        rows = [
            [escaped(name), str(int(run.positive[k])), _points(float(run.per_class[-1, k]))]
            for k, name in enumerate(run.classes)
        ]
        return _table(["Label", "Training rows", "AUC on its own task's test rows"], rows)
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
            escaped(line.name),
            str(line.positive),
            str(line.test_positive),
            _points(100 * line.auc),
            f"{_points(100 * line.low)} to {_points(100 * line.high)}" if math.isfinite(line.low) else "-",
            _points(100 * line.ap),
            "never" if line.threshold >= 1 else f"{line.threshold:.3f}",
            _points(100 * line.precision),
            _points(100 * line.recall),
        ]
        for line in lines
    ]
    return _table(heads, rows)


def _evaluation(run: Run, examined: Examined | None, pooled: Interval | None, unseen: str) -> list[str]:
    rows = [
        ["Macro-AUC, mean over tasks, each on its own test rows", _points(run.values["macro_auc"]), ""],
        ["Forgetting (positive is a loss)", _points(run.values["forgetting"]), ""],
    ]
    if examined is not None and pooled is not None:
        interval = f"{_points(100 * pooled.low)} to {_points(100 * pooled.high)}"
        mean = 100 * average_precision(examined.probabilities, examined.labels)
        rows += [
            ["Macro-AUC, all labels on all test rows", _points(100 * pooled.estimate), interval],
            ["mAP, all labels on all test rows", _points(mean), ""],
        ]
        note = (
            f"Measured on {len(examined.ids)} test rows of {escaped(examined.where)}, in points. Intervals are "
            f"percentile bootstrap intervals over test rows ({RESAMPLES} resamples): they do not cover the variation of "
            f"training."
        )
    else:
        rows += [
            ["Macro-AUC, all labels on all test rows", _points(run.values["pooled_macro_auc"]), ""],
            ["mAP, all labels on all test rows", _points(run.values["pooled_map"]), ""],
        ]
        note = f"As the run measured it, in points, without intervals. {escaped(unseen)}".strip()
    return [note, _table(["Measure", "Value", "95 % interval"], rows)]


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
        texts.append(_table(["On the test rows", "Value"], rows) if rows else "")
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
    shapes = {split: _data(run, split) for split in ("train", "test")}
    rows = [
        ["Name", escaped(_data(run, "name") or run.benchmark)],
        ["Fingerprint", escaped(run.fingerprint or "not recorded")],
        ["Kind and shape of one input", f"{_kind(run)}, {_shape(run)}"],
        *([f"{split.capitalize()} rows", escaped(shape[0])] for split, shape in shapes.items() if shape),
        ["Labels and tasks", f"{len(run.classes)} labels in {run.matrix.tasks} tasks"],
        [
            "Positives per label",
            f"{run.positive.min()} to {run.positive.max()}" if len(run.positive) else "-",
        ],
    ]
    return _table(["Training data", ""], rows)


def _weights(run: Run) -> list[str]:
    """Return where weights and features come from, and the code that made the run."""
    found = []
    for name in ("weights", "features"):
        record = getattr(run, name)
        if record is not None:
            found.append(f"- {name.capitalize()}: {escaped(describe(record))}.")
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
    checksum = run.sha256.get("weights.safetensors")
    if checksum is not None:
        found.append(f"- SHA-256 of `weights.safetensors`: {escaped(checksum)}.")
    return ["\n".join(found)]


def _data(run: Run, key: str) -> Any:
    record = run.environment.get("data")
    return record.get(key) if isinstance(record, dict) else None


def _shape(run: Run) -> str:
    return " x ".join(map(str, run.input_shape or ())) or "not recorded"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def _fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _points(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"
