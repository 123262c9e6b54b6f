"""``mlcl convert``: a tagger that an older mlcl wrote as one file, as a folder that every command takes."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.verbs import verb_parser
from mlcl.sklearn import ExactTagger


def main(arguments: list[str]) -> int:
    """Convert: ``mlcl convert FILE DIR``."""
    parser = verb_parser(
        "convert",
        "Write a tagger that is one file (of ExactTagger.save, or of `mlcl learn` of version 0.1) as a folder that "
        "every command takes. The file stays.",
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="the file, or the folder of mlcl learn that holds it"
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a tagger that is there")
    given = parser.parse_args(arguments)
    file = given.file / "tagger.safetensors" if given.file.is_dir() else given.file
    ExactTagger.load(file).save(given.folder, overwrite=given.overwrite)
    sys.stdout.write(f"{given.folder}\n")
    return 0
