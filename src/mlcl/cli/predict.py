"""``mlcl predict``: probabilities or tags of new inputs."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.errors import InputError
from mlcl.taggers.predict import check_out, predict, write_scores, write_tags
from mlcl.texts import csv_line


def main(arguments: list[str]) -> int:
    """Predict: ``mlcl predict DIR INPUT [--tags] [--out FILE.csv | FILE.npz] [--logits] [--overwrite]``."""
    parser = verb_parser(
        "predict",
        "Probabilities of inputs by a finished run, one column per class, or the tags of each by name.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "inputs",
        type=Path,
        metavar="INPUT",
        help="an image, a folder of images, an .npy or .npz, or a store; for a tagger of texts a table, a .txt with "
        "one text per line, or - for the lines of standard input",
    )
    parser.add_argument(
        "--tags",
        action="store_true",
        help="the labels above their thresholds (see `mlcl thresholds`), by name, the surest first; without --out one "
        "line per input on stdout",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="a .csv or .npz to write; .csv with --tags")
    parser.add_argument("--text", metavar="COLUMNS", help="of a table: columns of text, with commas between")
    parser.add_argument("--logits", action="store_true", help="logits instead of probabilities")
    parser.add_argument(
        "--for-spreadsheet",
        action="store_true",
        help="put an apostrophe before names in a .csv that a spreadsheet would take for formulas (=, +, -, @); "
        "without it names are written as they are, for programs",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    if given.tags and given.logits:
        raise InputError(
            "--tags and --logits were given; expected one of them: tags follow from probabilities."
        )
    if given.out is None and not given.tags:
        raise InputError("--out is missing; expected a .csv or .npz to write, or --tags.")
    if given.out is not None:
        suffixes = (".csv",) if given.tags else (".csv", ".npz")
        check_out(given.out, suffixes=suffixes, overwrite=given.overwrite)
    if given.for_spreadsheet and (given.out is None or given.out.suffix.lower() != ".csv"):
        raise InputError("--for-spreadsheet is for a .csv that --out names.")
    found = predict(given.folder, given.inputs, logits=given.logits, text=given.text)
    if given.out is None:
        for name, tags in zip(found.ids, found.tags(), strict=True):
            say(name, ", ".join(csv_line([tag]) for tag in tags))
        return 0
    (write_tags if given.tags else write_scores)(found, given.out, spreadsheet=given.for_spreadsheet)
    say(given.out)
    return 0
