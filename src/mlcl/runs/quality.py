"""How good a tagger is, in one line: what its user reads first."""

from __future__ import annotations

import math
from pathlib import Path

from mlcl.runs import folder as files
from mlcl.runs.result import SavedResult


def quality_line(folder: str | Path) -> str:
    """Return Macro-AUC, mAP and Brier score of a finished run on the rows that it did not learn from."""
    path = Path(folder)
    return describe_quality(files.read_result(path), rows=_rows(path))


def describe_quality(result: SavedResult, *, rows: int) -> str:
    """Return the line; without rows that were held out nothing is known, and it says so."""
    auc, precision = result.values["pooled_macro_auc"], result.values["pooled_map"]
    if not rows or not math.isfinite(auc):
        return f"{len(result.classes)} labels; no rows were held out, so how good it is was not measured"
    found = f"{len(result.classes)} labels: Macro-AUC {auc:.1f}, mAP {precision:.1f}"
    measured = result.calibration or {}
    brier, prior = measured.get("brier"), measured.get("brier_prior")
    if isinstance(brier, float) and isinstance(prior, float):
        found += f", Brier score {brier:.4f} (the share of each label alone: {prior:.4f})"
        if brier > prior:
            found += "; probabilities are worse than a constant: not calibrated"
    return f"{found}, on {rows:,} rows that were not learnt from"


def _rows(path: Path) -> int:
    """Return the number of test rows."""
    shape = files.read_data_record(path).get("test")
    return shape[0] if isinstance(shape, list) and shape and type(shape[0]) is int else 0
