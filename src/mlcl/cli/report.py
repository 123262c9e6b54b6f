"""``mlcl report``: one page about runs and sweeps; about one run, with its mistakes."""

from __future__ import annotations

from pathlib import Path

from mlcl.cli.messages import say
from mlcl.cli.verbs import verb_parser
from mlcl.errors import InputError, check_int
from mlcl.files import write_bytes
from mlcl.reports.examine import examine_or_say
from mlcl.reports.gather import sections
from mlcl.reports.look import COUNT
from mlcl.reports.page import render_page, single
from mlcl.runs.versions import current_folder


def main(arguments: list[str]) -> int:
    """Report: ``mlcl report DIR... --out FILE.html [--mistakes N] [--on STORE] [--images STORE] [--overwrite]``."""
    parser = verb_parser(
        "report",
        "Write one self-contained page about finished runs and sweeps. The page of one run shows each label on its "
        "test rows, the mistakes, confused labels and suspected label errors.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs or sweeps")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="default: report.html")
    parser.add_argument(
        "--mistakes",
        type=int,
        default=COUNT,
        metavar="N",
        help=f"of one run, test rows per list of mistakes; 0 scores no rows (default: {COUNT})",
    )
    parser.add_argument("--on", metavar="STORE", help="of one run, score the test rows of this store instead")
    parser.add_argument("--images", metavar="STORE", help="of features, show the images of this store, by id")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    out: Path = given.out
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; expected a file to write.")
    if out.exists() and not given.overwrite:
        raise InputError(f"--out {out} exists; choose another name, or add --overwrite.")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} does not exist.")
    check_int("--mistakes", given.mistakes, 0)
    found = sections([current_folder(folder) for folder in given.folders])
    run = single(found[0]) if len(found) == 1 else None
    if run is None and (given.on is not None or given.images is not None):
        raise InputError("--on and --images are for the page of one run; expected the folder of one run.")
    examined, unseen = None, ""
    if run is not None and given.mistakes:
        examined, unseen = examine_or_say(run.folder, on=given.on, images=given.images)
    page = render_page(found, examined=examined, unseen=unseen, count=given.mistakes)
    write_bytes(out, page.encode())
    say(out)
    return 0
