"""``mlcl card``: a model card of a finished run, in Markdown."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.files import write_text
from mlcl.reports.card import render_card
from mlcl.reports.examine import examine_or_say
from mlcl.reports.records import read_run
from mlcl.runs.folder import CARD, require_finished
from mlcl.runs.versions import current_folder
from mlcl.taggers.predict import check_out


def main(arguments: list[str]) -> int:
    """Card: ``mlcl card DIR [--out FILE.md] [--on STORE] [--overwrite]``."""
    parser = verb_parser(
        "card",
        "Write a model card in Markdown, with the header of the Hugging Face Hub, from what a run knows: data, labels, "
        "measures with intervals, probabilities, provenance, settings, limits.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"a .md to write (default: DIR/{CARD})")
    parser.add_argument("--on", metavar="STORE", help="measure on the test rows of this store instead")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    folder = current_folder(given.folder)
    require_finished(folder)
    out = given.out or folder / CARD
    check_out(out, suffixes=(".md",), overwrite=given.overwrite)
    run = read_run(folder)
    examined, unseen = examine_or_say(folder, on=given.on)
    write_text(out, render_card(run, examined=examined, unseen=unseen))
    say(out)
    return 0
