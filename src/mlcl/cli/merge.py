"""``mlcl merge``: one tagger of several that learnt by addition, as if one had learnt all their rows."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from mlcl.cli.verbs import verb_parser
from mlcl.errors import InputError
from mlcl.sklearn import ExactTagger


def main(arguments: list[str]) -> int:
    """Merge: ``mlcl merge DIR DIR2 ... --out DIR3``."""
    parser = verb_parser(
        "merge",
        "Add taggers of the exact learner: the result is what one would be that had learnt the rows of all. They must "
        "share their features: vectors of at most 256 numbers, or taggers that began from one (ExactTagger.spawn). "
        "Held-out rows are not merged, so probabilities follow from the sums.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="taggers")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR3", help="the folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a tagger that is there")
    given = parser.parse_args(arguments)
    if len(given.folders) < 2:
        raise InputError(f"{given.folders[0]} is one tagger; expected at least two to merge.")
    taggers = [ExactTagger.load(folder) for folder in given.folders]
    functools.reduce(ExactTagger.merge, taggers).save(given.out, overwrite=given.overwrite)
    sys.stdout.write(f"{given.out}\n")
    return 0
