"""``mlcl report``: one page about runs and sweeps."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.options import verb_parser
from mlcl.errors import InputError
from mlcl.files import write_bytes
from mlcl.reports.gather import sections
from mlcl.reports.page import render_page


def main(arguments: list[str]) -> int:
    """Report: ``mlcl report DIR... --out FILE.html [--overwrite]``."""
    parser = verb_parser("report", "Write one self-contained page about finished runs and sweeps.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs or sweeps")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="default: report.html")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    out: Path = given.out
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; expected a file to write.")
    if out.exists() and not given.overwrite:
        raise InputError(f"--out {out} exists; choose another name, or add --overwrite.")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} does not exist.")
    write_bytes(out, render_page(sections(given.folders)).encode())
    sys.stdout.write(f"{out}\n")
    return 0
