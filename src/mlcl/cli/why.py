"""``mlcl why``: what the words of a text add to the log-odds of a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.errors import check_int
from mlcl.runs.trained import load_trained
from mlcl.taggers.why import why


def main(arguments: list[str]) -> int:
    """Explain: ``mlcl why DIR --text TEXT [--label L] [--top N]``."""
    parser = verb_parser(
        "why",
        "What each word of a text adds to the log-odds of a label: the numbers add up. Of a linear tagger of texts; "
        "the scores of networks, and of images, are no sum over parts.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the tagger")
    parser.add_argument("--text", required=True, help="the text")
    parser.add_argument("--label", metavar="L", help="the label (default: the surest)")
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="words shown one by one (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    check_int("--top", given.top, 0)
    trained = load_trained(given.folder)
    label = given.label
    if label is None:
        label = trained.classes[int(np.argmax(trained.probabilities_of_texts([given.text])[0]))]
    for line in why(trained, given.text, label).lines(given.top):
        say(line)
    return 0
