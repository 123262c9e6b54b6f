"""``mlcl forget``: remove rows or a label from an exact run, with a receipt."""

from __future__ import annotations

import json
from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.update import finish
from mlcl.cli.verbs import verb_parser
from mlcl.files import plain
from mlcl.runs.versions import claimed
from mlcl.taggers.forget import forget


def main(arguments: list[str]) -> int:
    """Forget: ``mlcl forget DIR --rows FILE [--data STORE] | --label NAME [--out DIR2]``."""
    parser = verb_parser(
        "forget",
        "Remove rows or a label from a run of the exact learner: a new version as if it had never seen them, which "
        "becomes the current one unless another came into use meanwhile (exit code 4). The receipt is printed, and "
        "kept in the version's folder (receipt.json). Earlier versions still know what was removed: delete their "
        "folders to be rid of it.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="ids of rows, one per line, as in their store"
    )
    parser.add_argument("--data", metavar="STORE", help="the store that the ids are of, if several have them")
    parser.add_argument("--label", metavar="NAME", help="a label; its rows stay, as rows of the other labels")
    parser.add_argument(
        "--out", type=Path, metavar="DIR2", help="write a run folder of its own instead of a version"
    )
    given = parser.parse_args(arguments)
    with claimed(given.folder, given.out) as out:
        receipt = forget(given.folder, out=out, rows=given.rows, data=given.data, label=given.label)
    shown = {name: value for name, value in receipt.items() if name != "rows"}
    say(json.dumps(plain(shown)))
    say(out)
    return finish(out)
