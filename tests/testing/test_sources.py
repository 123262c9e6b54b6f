"""`check_source`: all shipped sources pass on small layouts, and each rule meets a source that breaks it."""

from __future__ import annotations

import itertools
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data import coco_files, encoded_image, nus_files, voc_files, write_tree
from mlcl.datasets import SOURCES
from mlcl.datasets.plan import make_plan
from mlcl.errors import InputError
from mlcl.testing import SOURCE_RULES, check_source

CALLS = itertools.count()
CSV = "file,split,cat,dog\n0.png,train,0,1\n1.png,test,1,1\n2.png,train,1,0\n"
ARFF = "@relation 'x: -C 2'\n@attribute y {0,1}\n@attribute z {0,1}\n@attribute a real\n@data\n1,0,2.5\n0,1,3\n1,1,4\n"
TEXTS = "id,text,tags\n" + "".join(f"{k},word{k} text,{'ab'[k % 2]}\n" for k in range(6))
LABELS = np.asarray([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=np.uint8)


def write_pack(folder: Path) -> None:
    ids, split = np.asarray([b"a", b"b", b"c"]), np.asarray([b"train", b"val", b"train"])
    np.savez(folder / "meta.npz", ids=ids, labels=LABELS[:3], split=split, classes=np.asarray(["x", "y"]))
    with zipfile.ZipFile(folder / "thumbs.zip", "w") as target:
        for i, name in enumerate("abc"):
            target.writestr(f"{name}.jpg", encoded_image(i))


def write_parquet(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    columns = {"image": [encoded_image(i) for i in range(4)], "labels": [["a"], ["b"], [], ["a", "b"]]}
    pq.write_table(pa.table(columns), folder / "x.parquet")


def write_huggingface(folder: Path) -> None:
    pytest.importorskip(
        "datasets.arrow_dataset", reason="datasets is an extra: pip install 'mlcl[huggingface]'"
    )
    import datasets

    part = datasets.Dataset.from_dict({"features": [[1.0, 2.0], [3.0, 4.0]], "labels": [["a"], ["b"]]})
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(str(folder / "saved"))


def write_arrays(folder: Path) -> None:
    x = np.arange(12.0).reshape(4, 3)
    np.savez(folder / "x.npz", x_train=x, y_train=LABELS, x_test=x, y_test=LABELS)


LAYOUTS = {
    "voc": ("", lambda folder: write_tree(folder, voc_files(2, 2))),
    "coco": ("", lambda folder: write_tree(folder, coco_files(2, 2))),
    "nus-wide": ("", lambda folder: write_tree(folder, nus_files(LABELS, 2, ["sky", "map"]))),
    "folder": (
        "",
        lambda folder: write_tree(
            folder, {"labels.csv": CSV} | {f"{i}.png": encoded_image(i, kind="PNG") for i in range(3)}
        ),
    ),
    "thumbs": ("", write_pack),
    "arrays": ("x.npz", write_arrays),
    "arff": ("x.arff", lambda folder: write_tree(folder, {"x.arff": ARFF})),
    "parquet": ("x.parquet", write_parquet),
    "table": ("x.csv", lambda folder: write_tree(folder, {"x.csv": TEXTS})),
    "huggingface": ("saved", write_huggingface),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SOURCES.names())
def test_shipped_sources(kind, tmp_path):
    root, write = LAYOUTS[kind]
    write(tmp_path)
    check_source(kind, tmp_path / root)


def good(root: Path):
    """A source that keeps all rules: JSON of rows [split, labels, numbers]."""
    try:
        rows = json.loads(root.read_text(encoding="utf-8"))
        splits, labels, numbers = zip(*rows, strict=True)
        inputs = np.array(numbers, np.float32)
        train, targets = np.array([split == "train" for split in splits]), np.array(labels, np.uint8)
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{root} is no table: {' '.join(str(error).split())}") from None
    if inputs.ndim != 2 or targets.ndim != 2:
        raise InputError(f"{root} has rows of several lengths")
    return make_plan(
        source="good",
        root=str(root),
        name="good",
        classes=[f"class-{k}" for k in range(targets.shape[1])],
        ids=[f"row-{i}" for i in range(len(rows))],
        train=train,
        labels=targets,
        inputs=inputs,
    )


def no_plan(root):
    return {"classes": good(root).classes}


def repeated_ids(root):
    plan = good(root)
    return replace(plan, ids=("same",) * len(plan.ids))


def no_test_rows(root):
    plan = good(root)
    return replace(plan, train=len(plan.ids))


def numbers_its_calls(root):
    plan = good(root)
    return replace(plan, name=f"call-{next(CALLS)}")


def leaves_a_file(root):
    plan = good(root)
    (root.parent / "cache.txt").write_text("x")
    return plan


class OpenFile:
    """Images that hold an open file."""

    def __init__(self, count):
        self.file, self.count = Path(__file__).open("rb"), count  # noqa: SIM115

    def __len__(self):
        return self.count

    def name(self, row):
        return str(row)

    def size(self, row):
        return 1

    def read(self, row):
        return b"x"


def open_files(root):
    plan = good(root)
    return replace(plan, inputs=OpenFile(len(plan.ids)))


def labels_backwards(root):
    """A plan whose inputs and classes no store takes as they are."""
    plan = good(root)
    return replace(plan, inputs=plan.inputs[:, 0])


def any_path(root):
    return good(root if root.exists() else Path(ROOTS[-1]))


def trusts_its_file(root):
    if not root.exists():
        raise InputError(f"{root} was not found")
    json.loads(root.read_text(encoding="utf-8"))
    return good(root)


ROOTS: list[Path] = []
BROKEN = [
    ("plan_is_sound", no_plan),
    ("plan_is_sound", repeated_ids),
    ("plan_is_sound", no_test_rows),
    ("same_data_same_plan", numbers_its_calls),
    ("raw_data_stays", leaves_a_file),
    ("inputs_survive_a_process", open_files),
    ("store_holds_the_plan", labels_backwards),
    ("missing_data_is_an_input_error", any_path),
    ("damage_is_an_input_error", trusts_its_file),
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "x.json"
    rows = [["train" if i % 2 else "test", [i % 2, 1], [i, 2 * i]] for i in range(6)]
    path.write_text(json.dumps(rows))
    ROOTS.append(path)
    return path


@pytest.mark.parametrize(("rule", "part"), BROKEN, ids=lambda v: getattr(v, "__name__", v))
def test_a_source_that_breaks_a_rule_is_named_with_the_rule(rule, part, table):
    with pytest.raises(
        AssertionError,
        match=rf"source '{part.__name__}' breaks the rule '{rule}' \(.*\): with the raw data .*x\.json",
    ):
        check_source(part, table)


def test_every_rule_has_a_source_that_breaks_it():
    assert {rule for rule, _ in BROKEN} == {rule.__name__ for rule in SOURCE_RULES}


def test_a_good_source_of_ones_own_passes(table):
    before = table.read_bytes()
    check_source(good, table, cases=200)
    assert table.read_bytes() == before


def test_raw_data_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"root is .*nowhere, which does not exist"):
        check_source(good, tmp_path / "nowhere")
