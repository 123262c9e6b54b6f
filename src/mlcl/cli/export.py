"""``mlcl export``: the network of a finished run for other programs."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.messages import fail, note, say
from mlcl.cli.verbs import verb_parser
from mlcl.runs.folder import require_finished
from mlcl.taggers.export import SUFFIXES, ExportError, export, format_of
from mlcl.taggers.predict import check_out


def main(arguments: list[str]) -> int:
    """Export: ``mlcl export DIR [--format torch | onnx] [--out FILE.pt2 | FILE.onnx] [--logits] [--overwrite]``."""
    parser = verb_parser(
        "export",
        "Write a network that takes raw inputs and gives the scores of `mlcl predict`, and check that it does.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "--format",
        choices=("torch", "onnx"),
        help="torch: a program of torch.export; onnx: for ONNX Runtime; default: what --out ends in, else torch",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: DIR/model.pt2 or DIR/model.onnx")
    parser.add_argument("--logits", action="store_true", help="logits instead of probabilities")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    require_finished(given.folder)
    chosen = given.format or format_of(given.out)
    suffixes = SUFFIXES[chosen]
    out = given.out or given.folder / f"model{suffixes[0]}"
    check_out(out, suffixes=suffixes, overwrite=given.overwrite)
    try:
        gap = export(given.folder, out, format=chosen, logits=given.logits)
    except ExportError as error:
        return fail(str(error), 1)
    note(f"mlcl: scores differ from the network's by {gap:.1g} at most")
    say(out)
    return 0
