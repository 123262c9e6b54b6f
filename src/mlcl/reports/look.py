"""The part of a page that looks at one run's test rows: labels, mistakes with their images, confusions, suspects."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.metrics import Reliability, measure, reliability
from mlcl.metrics.calibration import not_calibrated
from mlcl.reports.drawing import shown
from mlcl.reports.examine import (
    LEVEL,
    Examined,
    LabelLine,
    confusions,
    label_lines,
    mistakes,
    suspects,
)
from mlcl.reports.rendering import PROBABILITIES, Cell, PrintedTable, decimals, in_points, page_template

COUNT = 6
"""Rows per list."""
MOST_LABELS = 100
"""Labels whose mistakes are shown; of more, those with the lowest AUC."""
SUSPECTS = 4
"""Times ``COUNT`` suspected labels are shown."""
CONFUSED = ("Missed", "Given instead", "Rows", "By chance")
HEADS = (
    "Label",
    "Examples",
    "In test",
    "AUC",
    f"{LEVEL:.0%} interval",
    "AP",
    "Threshold",
    "Precision",
    "Recall",
    "Calibration error",
)


def render_look(found: Examined, markup: Any, *, name: str = "s1", count: int = COUNT) -> Any:
    """Return the part as HTML, of markupsafe's class ``markup``; ids begin with ``name``, lists have ``count`` rows."""
    return markup(page_template("look.html.jinja", look=context(found, name=name, count=count)))


def context(found: Examined, *, name: str = "s1", count: int = COUNT) -> dict[str, Any]:
    """Return what the template shows: texts and numbers, and images as data URIs."""
    lines = label_lines(found)
    order = sorted(range(len(lines)), key=lambda k: (math.isnan(lines[k].auc), lines[k].auc))
    album = Album()
    shown_labels = order[:MOST_LABELS]
    flagged = suspects(found)
    truth = found.labels[flagged[:, 0], flagged[:, 1]] > 0
    most = SUSPECTS * count
    confused = [(c.missed, c.instead, str(c.rows), f"{c.expected:.1f}") for c in confusions(found)]

    def label_row(k: int) -> list[Cell | str]:
        first, *rest = _cells(lines[k])
        return [Cell(first, anchor=f"{name}-l{k}" if k in shown_labels else ""), *rest]

    return {
        "name": name,
        "where": found.where,
        "rows": len(found.ids),
        "images": found.images,
        "overall": _overall(found),
        "labels": PrintedTable("Labels", HEADS, [label_row(k) for k in order]),
        "label_count": len(lines),
        "details": [_detail(found, lines[k], k, f"{name}-l{k}", album, count) for k in shown_labels],
        "left_out": len(lines) - len(shown_labels),
        "confusions": PrintedTable("Confusions", CONFUSED, confused, left=CONFUSED[1:2]).html()
        if confused
        else "",
        "missing": [_cell(found, row, k, album) for row, k in flagged[~truth][:most].tolist()],
        "missing_count": int((~truth).sum()),
        "wrong": [_cell(found, row, k, album) for row, k in flagged[truth][:most].tolist()],
        "wrong_count": int(truth.sum()),
        "omitted": album.omitted,
    }


def _cells(line: LabelLine) -> list[str]:
    counts = [f"{line.positive:,}", f"{line.test_positive:,}"]
    ranks = [decimals(100 * line.auc, 1), in_points(line.low, line.high), decimals(100 * line.ap, 1)]
    decided = [_threshold(line.threshold), _percent(line.precision), _percent(line.recall)]
    return [shown(line.name, 60), *counts, *ranks, *decided, decimals(line.error, 3)]


def _detail(found: Examined, line: LabelLine, k: int, name: str, album: Album, count: int) -> dict[str, Any]:
    chosen = mistakes(found, k, count)
    lists = [
        ("Surest false positives", chosen.false, chosen.false_count),
        ("Surest misses", chosen.missed, chosen.missed_count),
        ("Most doubtful", chosen.doubtful, None),
    ]
    brier, loss, error = (decimals(value, 3) for value in (line.brier, line.log_loss, line.error))
    return {
        "id": name,
        "label": shown(line.name, 60),
        "auc": decimals(100 * line.auc, 1),
        "false": chosen.false_count,
        "missed": chosen.missed_count,
        "bins": _diagram(line.reliability),
        "error": error,
        "quality": f"Brier score {brier}, log-loss {loss}, calibration error {error}; "
        f"threshold {_threshold(line.threshold)}",
        "lists": [
            (title, total, [_row(found, int(row), k, album) for row in rows]) for title, rows, total in lists
        ],
    }


def _overall(found: Examined) -> dict[str, Any]:
    """Return what probabilities are worth over all labels, and the dots of their reliability diagram."""
    share = found.labels.sum(axis=0) / np.maximum(found.annotated.sum(axis=0), 1)
    p = np.asarray(found.probabilities, np.float64)
    measured = measure(p, found.labels, prior=share, known=found.known)
    rows = [(words, decimals(measured[name], 3)) for name, words in PROBABILITIES.items()]
    worse = not_calibrated(measured)
    return {
        "measures": PrintedTable(": ".join(filter(None, ("Probabilities", worse))), ("", ""), rows).html(),
        "error": decimals(measured["calibration_error"], 3),
        "bins": _diagram(reliability(found.probabilities, found.labels, mask=found.known)),
    }


def _row(found: Examined, row: int, k: int, album: Album) -> dict[str, Any]:
    """Return one row under one label: its image or its id, the probability, and the labels it has."""
    has = [found.classes[j] for j in np.flatnonzero(found.labels[row])]
    return {
        "id": shown(str(found.ids[row]), 60),
        "image": album.add(found.image(row)) if found.images else None,
        "probability": _probability(float(found.probabilities[row, k])),
        "labels": _listed(has) or "no label",
    }


def _cell(found: Examined, row: int, k: int, album: Album) -> dict[str, Any]:
    return _row(found, row, k, album) | {"label": shown(found.classes[k], 40)}


def _diagram(bins: Reliability) -> list[tuple[str, str, str]]:
    """Return the dots of a reliability diagram of 100 x 100: x, y and radius, which grows with the count."""
    top = max(int(bins.count.max(initial=1)), 1)
    dots = []
    for count, p, share in zip(bins.count, bins.probability, bins.share, strict=True):
        if count:
            radius = 1.5 + 3.5 * math.sqrt(math.log1p(count) / math.log1p(top))
            dots.append((f"{100 * p:.1f}", f"{100 - 100 * share:.1f}", f"{radius:.1f}"))
    return dots


def _listed(names: Iterable[str]) -> str:
    found = [shown(name, 24) for name in names]
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if math.isfinite(value) else "-"


def _probability(value: float) -> str:
    """Return a probability with two digits that matter.

    >>> _probability(0.934), _probability(0.0021), _probability(0.9996), _probability(1e-7)
    ('0.93', '0.002', '1.00', '0.000')
    """
    return f"{value:.2f}" if value >= 0.01 else f"{value:.3f}"


def _threshold(value: float) -> str:
    """Return a threshold; those that no probability, or every one, is above have words.

    >>> _threshold(0.5), _threshold(1.0), _threshold(-1.0)
    ('0.50', 'never', 'always')
    """
    return "never" if value >= 1 else "always" if value < 0 else _probability(value)


SIDE = 96
"""Larger images are made smaller: a page shows them at this size at most."""
MAX_BYTES = 8 * 2**20
_TINY = 24  # below this, a JPEG is larger than a PNG, and blurs what there is to see


class Album:
    """Encodes images until they are ``limit`` bytes together; after that it returns None."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self.left = limit
        self.omitted = 0

    def add(self, image: NDArray[Any]) -> str | None:
        """Return a uint8 image ``[C, H, W]`` as a data URI, or None if there is no room for it."""
        uri = data_uri(image)
        if len(uri) > self.left:
            self.omitted += 1
            return None
        self.left -= len(uri)
        return uri


def data_uri(image: NDArray[Any]) -> str:
    """Return a uint8 image ``[C, H, W]`` with one or three channels as a data URI of a small JPEG or PNG.

    >>> data_uri(np.zeros((1, 8, 8), np.uint8))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    from PIL import Image

    pixels = np.asarray(image)
    small = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    kind = "png" if max(small.size) <= _TINY else "jpeg"
    small.save(buffer, kind, **({"quality": 82, "optimize": True} if kind == "jpeg" else {}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
