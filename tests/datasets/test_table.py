"""Tables of texts: CSV, JSON lines and Parquet give the same rows; what does not fit is named by its line."""

import gzip
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from mlcl.datasets import load_dataset, plan_source, prepare
from mlcl.datasets.store import open_store
from mlcl.datasets.table import find_columns, has_texts, read_table
from mlcl.encoders import Words, from_bytes
from mlcl.errors import InputError

ROWS = [
    ("a1", "Fast web server", "serves, files\nquickly", ["net", "web"]),
    ("b2", 'A "quoted" editor', "edits text", ["editor"]),
    ("c3", "Games; many", "", ["game"]),
    ("d4", "Python bindings", "for the toolkit", ["net", "dev"]),
    ("e5", "日本語の本", "読む", ["editor"]),
    ("f6", "None of them", "at all", []),
]
NAMES = ("id", "title", "description", "tags")


def as_csv(path, mark=","):
    def cell(text):
        return '"' + text.replace('"', '""') + '"'

    lines = [mark.join(NAMES)]
    lines += [mark.join(cell(part) for part in (*row[:3], "|".join(row[3]))) for row in ROWS]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    return path


def as_json(path):
    path.write_text("\n".join(json.dumps(dict(zip(NAMES, row, strict=True))) for row in ROWS) + "\n\n")
    return path


def as_parquet(path):
    columns = {name: [row[k] for row in ROWS] for k, name in enumerate(NAMES)}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def packed(path, of):
    path.write_bytes(gzip.compress(of.read_bytes()))
    return path


def test_every_kind_of_file_gives_the_same_rows(tmp_path):
    files = [as_csv(tmp_path / "x.csv"), as_csv(tmp_path / "y.tsv", "\t"), as_csv(tmp_path / "z.csv", ";")]
    files += [as_json(tmp_path / "x.jsonl"), as_parquet(tmp_path / "x.parquet")]
    files += [packed(tmp_path / "p.csv.gz", files[0]), packed(tmp_path / "p.jsonl.gz", files[3])]
    for file in files:
        table = read_table(file)
        columns = find_columns(table)
        assert str(columns) == "text: title, description; tags: tags; id: id"
        assert table.texts(columns.text) == ["\n".join(part for part in row[1:3] if part) for row in ROWS]
        found = table.tags("tags")
        named = [[found.classes[k] for k in np.flatnonzero(row)] for row in found.labels]
        assert [sorted(row[3]) for row in ROWS] == named
        assert has_texts(file)


def test_a_store_has_the_vectors_that_its_encoder_makes(tmp_path):
    plan = plan_source(
        "table", as_csv(tmp_path / "x.csv"), encoder="words,words=5,hashed=3", test_fraction=0.3
    )
    prepare(plan, tmp_path / "store")
    data = open_store(tmp_path / "store", check=True)
    encoder = from_bytes(data.encoder)
    texts = {row[0]: "\n".join(part for part in row[1:3] if part) for row in ROWS}
    expected = encoder.encode([texts[name] for name in plan.ids]).toarray()
    assert np.allclose(np.concatenate([data.train.inputs, data.test.inputs]), expected)
    assert isinstance(encoder, Words)
    assert encoder.documents == len(data.train) == 4  # it has seen no test row
    assert data.classes == ("dev", "editor", "game", "net", "web")
    content = bytearray((tmp_path / "store/encoder.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "store/encoder.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"encoder\.safetensors is damaged"):
        load_dataset(str(tmp_path / "store"))


def test_rows_of_a_group_are_in_one_split(tmp_path):
    lines = [f"text {k},source-{k % 20},{'ab'[k % 2]}" for k in range(200)]
    (tmp_path / "x.csv").write_text("text,source,tags\n" + "\n".join(lines))
    plan = plan_source("table", tmp_path / "x.csv", group="source", test_fraction=0.4)
    groups = [(int(name.removeprefix("row-")) - 1) % 20 for name in plan.ids]
    assert not set(groups[: plan.train]) & set(groups[plan.train :])
    more = (tmp_path / "x.csv").read_text().replace("source-3,", "source-99,")
    (tmp_path / "x.csv").write_text(more)
    again = plan_source("table", tmp_path / "x.csv", group="source", test_fraction=0.4)
    kept = {name for name in plan.ids[: plan.train] if (int(name[4:]) - 1) % 20 != 3}
    assert kept <= set(again.ids[: again.train])


def test_what_says_nothing_is_left_out_and_counted(tmp_path):
    rows = [
        {"text": "red", "tags": ["a"]},
        {"text": " ", "tags": ["a"]},
        {"text": "blue"},
        {"text": "x y", "tags": []},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plan = plan_source("table", tmp_path / "x.jsonl", test_fraction=0.5)
    assert dict(plan.dropped) == {"rows without text": 1, "rows without annotation": 1}
    assert sorted(plan.ids) == ["row-1", "row-4"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.csv", b"text,tags\nred,a\nbl\xe9,b\n", r"not UTF-8 in line 3, byte 3 \(0xe9\)"),
        ("x.csv", "text,tags\nred,a\n".encode("utf-16"), "is UTF-16"),
        ("x.csv", b"text,tags\nPK\x00\x01,a\n", "binary data in column 'text' of line 2"),
        (
            "x.csv",
            b"text,tags\n" + b"red,a\n" * 17_000 + b'"blue,a\n' + b"red,a\n" * 50,
            "from line 17002 on: unexpected",
        ),
        (
            "x.csv",
            b"text,tags\n" + b'"red",a\n' * 30 + b'"blue,a\n' + b'"red",a\n' * 50,
            "from line 32 on: ',' expected",
        ),
        ("x.csv", b"text,tags\nred,a,b\n", "3 cells in line 2, but its first line has 2"),
        ("x.csv", b"text,text,tags\n", "each once"),
        ("x.csv", b"text,tags\n", "no rows"),
        ("x.csv", b"", "expected the names"),
        (
            "x.csv",
            b"words,tags\nred,a\n",
            r"no column of texts, .* name one with --text, .*; it has words, tags",
        ),
        ("x.csv", b"text,topic\nred,a\n", "no column of labels"),
        ("x.csv", b"text,tags\n,a\n", "no row with a text"),
        ("x.csv", b"id,text,tags\n1,red,a\n", "no test items"),
        ("x.jsonl", b'{"text": "red", "tags": "a"}\n{"text": \n', "no JSON object in line 2"),
        (
            "x.jsonl",
            b'{"text": "red", "tags": 3}\n',
            "has '3' in row 1 of column 'tags', but a list of names",
        ),
        (
            "x.jsonl",
            b'{"text": "red", "tags": "a"}\n{"text": 5, "tags": "a"}\n',
            "has a int in column 'text' of line 2",
        ),
        ("x.csv.gz", b"text,tags", "cannot be read"),
        ("x.parquet", b"PAR1", "not a readable Parquet"),
        ("x.txt", b"red", "ends in '.txt'"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason):
        plan_source("table", tmp_path / name)


def test_tags_that_differ_only_in_case_are_named(tmp_path):
    (tmp_path / "x.csv").write_text("text,tags\nred,Web\nblue,web\ngreen,web\n")
    with pytest.warns(UserWarning, match=r"differ only in case.*'Web' \(1 row\) and 'web' \(2 rows\)"):
        plan_source("table", tmp_path / "x.csv")


def test_tables_of_other_things_are_not_taken_for_texts(tmp_path):
    (tmp_path / "images.csv").write_text("file,description,tags\na.jpg,x,a\n")
    pyarrow.parquet.write_table(pyarrow.table({"vector": [[1.0]], "text": ["a"]}), tmp_path / "v.parquet")
    assert not has_texts(tmp_path / "images.csv")
    assert not has_texts(tmp_path / "v.parquet")


def test_labels_that_nobody_looked_for_are_unknown(tmp_path):
    rows = [
        ("red", ["a"], ["a", "b"]),
        ("blue", [], ["b"]),
        ("pink", ["c"], None),
        ("grey", ["c"], ["c", "d"]),
    ]
    lines = [json.dumps({"text": t, "tags": tags, "annotated": seen}) for t, tags, seen in rows]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    plan = plan_source("table", tmp_path / "x.jsonl", test_fraction=0.5)
    assert plan.classes == ("a", "b", "c", "d")
    order = np.argsort(plan.ids)
    assert plan.labels[order].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    assert plan.known[order].astype(int).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]]


def numbers(rng, rows=40):
    return rng.normal(size=(rows, 3)).astype(np.float32)


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_table_says_of_its_labels_against_a_loop_over_rows(tmp_path, ending, seed):
    rng = np.random.default_rng(seed)
    x, names = numbers(rng), list("abcd")
    seen = [None if rng.random() < 0.2 else sorted(rng.choice(names, rng.integers(1, 5), False)) for _ in x]
    tags = [[name for name in (names if one is None else one) if rng.random() < 0.4] for one in seen]
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        lists = ("|".join(t) + "," + "|".join(s or []) for t, s in zip(tags, seen, strict=True))
        lines = (",".join(map(str, row)) + "," + both for row, both in zip(x, lists, strict=True))
        path.write_text("f1,f2,f3,tags,annotated\n" + "\n".join(lines))
    else:
        columns = {"features": x.tolist(), "tags": tags, "annotated": seen}
        if ending == "parquet":
            pyarrow.parquet.write_table(pyarrow.table(columns), path)
        else:
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            path.write_text("\n".join(map(json.dumps, rows)))
    plan = plan_source("table", path, test_fraction=0.25)
    assert plan.classes == tuple(names)
    for place, row in enumerate(int(name.removeprefix("row-")) - 1 for name in plan.ids):
        assert np.allclose(plan.inputs[place], x[row])
        for k, name in enumerate(names):
            assert plan.labels[place, k] == (name in tags[row])
            assert plan.known[place, k] == (seen[row] is None or name in seen[row])


def test_parquet_keeps_which_labels_a_row_was_annotated_for(tmp_path):
    columns = {
        "features": [[0.0], [1.0], [2.0]],
        "labels": [["a"], [], ["b"]],
        "annotated": [["a"], [], None],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    prepare(plan_source("parquet", tmp_path / "t.parquet", test_fraction=0.4), tmp_path / "store")
    data = open_store(tmp_path / "store")
    assert data.train.known is not None
    # The row that was annotated for nothing is left out, and counted.
    assert (len(data.train) + len(data.test), dict(data.dropped)) == (2, {"rows without annotation": 1})


def test_a_tag_that_nobody_was_asked_for_is_refused(tmp_path):
    columns = {"features": [[0.0]], "labels": [["a"]], "annotated": [["b"]]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    with pytest.raises(
        InputError, match="has the tag 'a' in row 1, which column 'annotated' does not list there"
    ):
        plan_source("parquet", tmp_path / "t.parquet")


def test_an_empty_cell_of_a_column_of_0_and_1_is_not_known(tmp_path):
    (tmp_path / "t.csv").write_text("f,label_cat,label_dog\n1,1,\n2,0,1\n3,,0\n")
    plan = plan_source("table", tmp_path / "t.csv", test_fraction=0.4)
    order = np.argsort(plan.ids)
    assert plan.labels[order].tolist() == [[1, 0], [0, 1], [0, 0]]
    assert plan.known[order].tolist() == [[True, False], [True, True], [False, True]]
    assert plan.inputs[order].ravel().tolist() == [1, 2, 3]


def test_class_numbers_with_rows_that_nobody_looked_at(tmp_path):
    columns = {"features": [[0.0], [1.0], [2.0]], "labels": [[1, 0], None, [2]]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    plan = plan_source("parquet", tmp_path / "t.parquet", test_fraction=0.4)
    assert plan.classes == ("0", "1", "2")
    assert plan.labels[np.argsort(plan.ids)].tolist() == [[1, 1, 0], [0, 0, 1]]
    assert dict(plan.dropped) == {"rows without annotation": 1}
