"""``mlcl drift``: have inputs, or the rates of predicted labels, moved since training?"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from mlcl.cli.progress import make_console
from mlcl.cli.verbs import verb_parser
from mlcl.files import write_json
from mlcl.reports.rendering import PrintedTable
from mlcl.taggers.drift import LEVEL, Drift, drift
from mlcl.taggers.predict import check_out

SHOWN = 12
"""Labels that the table shows, the most certain changes first."""


def main(arguments: list[str]) -> int:
    """Test: ``mlcl drift DIR INPUT [--reference STORE] [--level P] [--out FILE.json]``."""
    parser = verb_parser(
        "drift",
        "Test whether new inputs differ from those a run was trained on: their features (maximum mean discrepancy with "
        "permutations), and how often each label is predicted (Fisher's exact test, Holm's correction).",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "inputs", type=Path, metavar="INPUT", help="a folder of images, an .npy or .npz, or a store"
    )
    parser.add_argument(
        "--reference",
        metavar="STORE",
        help="compare with the test rows of this store (default: the run's own)",
    )
    parser.add_argument(
        "--level",
        type=float,
        default=LEVEL,
        metavar="P",
        help="p-value below which it moved (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the permutations (default: 0)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="also write everything to this file")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    if given.out is not None:
        check_out(given.out, suffixes=(".json",), overwrite=given.overwrite)
    found = drift(given.folder, given.inputs, reference=given.reference, level=given.level, seed=given.seed)
    if given.out is not None:
        write_json(given.out, found.record())
    console = make_console(sys.stdout)
    console.print(rate_table(found))
    for line in drift_lines(found):
        console.print(line)
    return 0


def rate_table(found: Drift) -> PrintedTable:
    """Return the labels whose rates changed most certainly."""
    rates, rows = found.rates, []
    for k in np.argsort(rates.p_values, kind="stable")[:SHOWN]:
        values = (rates.before[k], rates.after[k])
        shares = (f"{100 * value:.1f} %" for value in values)
        rows.append([found.labels[k], *shares, f"{rates.adjusted[k]:.2g}"])
    heads = ("label", "before", "now", "p (all labels)")
    return PrintedTable("share of inputs with a predicted label", heads, rows, left=("label",))


def drift_lines(found: Drift) -> list[str]:
    """Return the answer in words."""
    compared = f"{found.rows} inputs against {found.reference_rows} {found.reference}"
    inputs = "have moved" if found.inputs_moved else "have not moved"
    labels = f"moved for {', '.join(found.moved)}" if found.moved else "have not moved"
    return [
        f"inputs {inputs} (p = {found.inputs.p_value:.2g}; {compared})",
        f"rates of predicted labels {labels} (level {found.level:g} for all labels together)",
    ]
