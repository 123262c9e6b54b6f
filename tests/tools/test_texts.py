"""The page of growing taggers of texts is what the committed results say."""

import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import texts  # noqa: E402


def test_the_page_is_that_of_the_results():
    assert texts.PAGE.read_text(encoding="utf-8") == texts.page()


def test_goals_are_differences_to_the_best_of_the_others():
    with texts.OUT.open(newline="") as file:
        rows = list(csv.DictReader(file))
    own = {row["method"]: row | {"seed": "0"} for row in rows}
    own["mlcl, words"] |= {"auc": "90", "map": "50", "seconds": "1"}
    own["mlcl, words + MiniLM"] |= {"auc": "92.5", "map": "40", "seconds": "30"}
    own["TF-IDF, SVM per tag"] |= {"auc": "91", "map": "41", "seconds": "2"}
    own["TF-IDF, logistic regression per tag"] |= {"auc": "89", "map": "45", "seconds": "10"}
    own["TF-IDF + MiniLM, SVM per tag"] |= {"map": "40.5"}
    lines = texts.goals(list(own.values())).splitlines()
    assert [line.split(" | ")[1:] for line in lines[2:]] == [
        ["-1.0: missed", "+1.5: met |"],
        ["+5.0: met", "-5.0: missed |"],
        ["-", "-0.5: met |"],
        ["0.1 x: met", "3.0 x: missed |"],
    ]
