"""``mlcl predict``: scores of new inputs."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcl.cli.options import verb_parser
from mlcl.runs.predict import check_out, predict, write_scores


def main(arguments: list[str]) -> int:
    """Predict: ``mlcl predict DIR INPUT --out FILE.csv | FILE.npz [--logits] [--overwrite]``."""
    parser = verb_parser("predict", "Score inputs with the network of a finished run: one column per class.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the run")
    parser.add_argument(
        "inputs", type=Path, metavar="INPUT", help="an image, a folder of images, an .npy or .npz, or a store"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .csv or .npz to write")
    parser.add_argument("--logits", action="store_true", help="logits instead of probabilities")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    given = parser.parse_args(arguments)
    check_out(given.out, suffixes=(".csv", ".npz"), overwrite=given.overwrite)
    write_scores(predict(given.folder, given.inputs, logits=given.logits), given.out)
    sys.stdout.write(f"{given.out}\n")
    return 0
