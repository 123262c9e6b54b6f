"""``mlcl merge``: one tagger of several that learnt by addition, as if one had learnt all their rows."""

from __future__ import annotations

import functools
from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.errors import InputError
from mlcl.runs.folder import claim_folder
from mlcl.taggers.sums import merge_sums, read_sums, write_sums


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
    merged = functools.reduce(merge_sums, map(read_sums, given.folders))
    claim_folder(given.out, overwrite=given.overwrite)
    write_sums(given.out, merged, command="mlcl merge")
    say(given.out)
    return 0
