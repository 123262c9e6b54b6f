"""ARFF: the four real files against independent readers, the language's corners, files that are wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import arff as scipy_arff

from data import shared_data, write_tree
from mlcl.datasets import open_store, plan_source, prepare, prepare_source
from mlcl.datasets.arff import parse_arff
from mlcl.errors import InputError


def by_scipy(text: str) -> dict[str, np.ndarray]:
    rows, meta = scipy_arff.loadarff(io.StringIO(re.sub(r",\s+", ",", text)))  # it knows no blanks in {0, 1}
    return {name: rows[name].astype(np.float32) for name in meta.names()}


def order(plan) -> list[int]:
    return [int(name.removeprefix("row-")) for name in plan.ids]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "rows", "labels", "features"),
    [("Scene.arff.bz2", 2407, 6, 294), ("Music.arff", 592, 6, 71)],
)
def test_meka_files_against_another_reader(tmp_path, file, rows, labels, features):
    path = shared_data() / "arff" / file
    plan = plan_source("arff", path)
    info = prepare(plan, tmp_path / "out")
    text = (bz2.decompress(path.read_bytes()) if file.endswith("bz2") else path.read_bytes()).decode()
    names = re.findall(r"@attribute (\S+)", text)
    body = text.partition("@data")[2].split()
    table = np.loadtxt(body, delimiter=",", dtype=np.float64).astype(np.float32)[order(plan)]
    data = open_store(tmp_path / "out", check=True)
    assert (info.rows, len(info.classes), data.train.inputs.shape[1]) == (rows, labels, features)
    assert info.classes == tuple(names[:labels])
    assert info.name == file.split(".")[0].lower()
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), table[:, :labels])
    assert np.array_equal(np.concatenate([data.train.inputs, data.test.inputs]), table[:, labels:])
    assert len(data.test) == round(rows / 3)


@pytest.mark.slow
def test_sparse_enron_against_a_plain_loop(tmp_path):
    path = shared_data() / "arff" / "Enron.arff.bz2"
    plan = plan_source("arff", path)
    info = prepare(plan, tmp_path / "out")
    lines = bz2.decompress(path.read_bytes()).decode().splitlines()
    body = [line for line in lines if line.startswith("{")]
    table = np.zeros((len(body), 1054), np.float32)
    for row, line in enumerate(body):
        for index, value in re.findall(r"(\d+) ([^,}]+)", line):
            table[row, int(index)] = float(value)
    data = open_store(info.path, check=True)
    assert (info.rows, len(info.classes)) == (1702, 53)
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), table[order(plan), :53])
    assert np.array_equal(np.concatenate([data.train.inputs, data.test.inputs]), table[order(plan), 53:])


@pytest.mark.parametrize("root", ["flags.arff.gz", ""])
def test_mulan_flags_with_its_xml(tmp_path, root):
    path = shared_data() / "arff" / "mulan" / root
    plan = plan_source("arff", path)
    info = prepare(plan, tmp_path / "out")
    text = gzip.decompress((shared_data() / "arff" / "mulan" / "flags.arff.gz").read_bytes()).decode()
    columns = {name: values[order(plan)] for name, values in by_scipy(text).items()}
    data = open_store(info.path, check=True)
    assert (info.name, info.rows) == ("flags", 194)
    assert info.classes == ("red", "green", "blue", "yellow", "white", "black", "orange")
    for k, name in enumerate(info.classes):
        assert np.array_equal(plan.labels[:, k], columns[name])
    # landmass has 7 values, zone 5, language 11, religion 8: one feature a value; the other 15 are one each.
    features = np.concatenate([data.train.inputs, data.test.inputs])
    assert features.shape[1] == 7 + 5 + 11 + 8 + 15
    assert np.array_equal(features[:, :7].argmax(axis=1), columns["landmass"])
    assert (features[:, :7].sum(axis=1) == 1).all()
    assert np.array_equal(features[:, 12], columns["area"])


HEAD = "% a comment\n@RELATION 'my data: -C 2 -split 3'\n@attribute 'a label' {0,1}\n"
BODY = "@ATTRIBUTE \"it's\" {no, yes}\n@attribute x1 NUMERIC\n@attribute kind {red,'light blue',green}\n"
BODY += "@attribute two{cat,dog}\n@data\n"
ROWS = (
    "1,no,1.5,red,cat\n\n% inside\n0, yes ,?,'light blue',dog\n{1 yes, 2 -2e3, 3 'light blue'}\n1,yes,3,?,?\n"
)


def test_the_corners_of_the_language(tmp_path):
    write_tree(
        tmp_path,
        {"Mixed-train.arff": HEAD + BODY + ROWS, "Mixed-test.arff": HEAD + BODY + "1,no,?,green,?\n"},
    )
    for root in (tmp_path, tmp_path / "Mixed-train.arff"):
        plan = plan_source("arff", root)
        assert (plan.name, plan.classes, plan.train, len(plan.ids)) == ("mixed", ("a label", "it's"), 4, 5)
    assert plan.labels.tolist() == [[1, 0], [0, 1], [0, 1], [1, 1], [1, 0]]
    mean = (1.5 - 2000 + 3) / 3
    third = 1 / 3
    expected = [
        [1.5, 1, 0, 0, 0],
        [mean, 0, 1, 0, 1],
        [-2000, 0, 1, 0, 0],
        [3, third, 2 * third, 0, third],
        [mean, 0, 0, 1, third],
    ]
    assert np.allclose(plan.inputs, expected)
    assert plan.options == {"missing values filled": 7}


def test_the_last_attributes_can_be_the_labels(tmp_path):
    text = "@relation 'x: -C -1'\n@attribute a real\n@attribute b real\n@attribute y {1,0}\n@data\n"
    text += "1,2,0\n3,4,1\n{0 5}\n"
    plan = plan_source("arff", write_tree(tmp_path, {"x.arff": text}) / "x.arff")
    rows = {
        name: (label.tolist(), x.tolist())
        for name, label, x in zip(plan.ids, plan.labels, plan.inputs, strict=True)
    }
    # In a sparse row an absent nominal value is the first that is declared, which here is 1.
    assert rows == {"row-0": ([0], [1, 2]), "row-1": ([1], [3, 4]), "row-2": ([1], [5, 0])}
    assert plan.classes == ("y",)


def test_labels_by_option_and_by_a_named_xml(tmp_path):
    text = "@relation x\n@attribute a real\n@attribute y {f,t}\n@data\n1,t\n2,f\n3,t\n"
    write_tree(tmp_path, {"x.arff": text, "l.xml": "<labels><label name='y'/></labels>"})
    with pytest.raises(InputError, match=r"no -C, and .*x\.xml was looked for and does not exist"):
        plan_source("arff", tmp_path / "x.arff")
    for options in ({"labels": -1}, {"xml": str(tmp_path / "l.xml")}):
        plan = plan_source("arff", tmp_path / "x.arff", **options)
        assert plan.classes == ("y",)
        assert sorted(zip(plan.inputs[:, 0].tolist(), plan.labels[:, 0].tolist(), strict=True)) == [
            (1, 1),
            (2, 0),
            (3, 1),
        ]


def test_a_named_test_file(tmp_path):
    text = "@relation 'x: -C 1'\n@attribute y {0,1}\n@attribute a real\n@data\n"
    write_tree(
        tmp_path,
        {
            "a.arff": text + "1,1\n0,2\n",
            "b.arff": text + "1,3\n",
            "c.arff": text.replace(" a ", " b ") + "1,1\n",
        },
    )
    plan = plan_source("arff", tmp_path / "a.arff", test=str(tmp_path / "b.arff"))
    assert (plan.train, plan.inputs[:, 0].tolist()) == (2, [1, 2, 3])
    with pytest.raises(InputError, match=r"c\.arff has other attributes"):
        plan_source("arff", tmp_path / "a.arff", test=str(tmp_path / "c.arff"))
    with pytest.raises(InputError, match=r"3 \.arff files"):
        plan_source("arff", tmp_path)


GOOD = "@relation 'x: -C 1'\n@attribute y {0,1}\n@attribute a real\n@attribute n {u,v}\n@data\n"
GOOD += "1,2,u\n0,3,v\n1,4,u\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1,2,u", "1,2", "line 6, has 2 values, but 3 were expected"),
        ("1,2,u", "1,two,u", "line 6, has 'two' for 'a', but a finite number"),
        ("1,2,u", "1,nan,u", "line 6, has 'nan' for 'a'"),
        ("1,2,u", "1,1e60,u", "line 6, has '1e60' for 'a'"),
        ("1,2,u", "1,2,w", "line 6, has 'w' for 'n', but one of u, v"),
        ("1,2,u", "1,2,'u", "quote that is not closed"),
        ("1,2,u", "?,2,u", "no value for the label 'y' in row 1"),
        ("1,2,u", "2,2,u", "line 6, has '2' for 'y', but one of 0, 1"),
        ("1,2,u", "{0 1", "without a closing brace"),
        ("1,2,u", "{0 1, 9 1}", "an index below 3"),
        ("1,2,u", "{0 1, 0 1}", "not used before"),
        ("1,2,u", "{0 1, x 1}", "an index below 3"),
        ("1,2,u", "{1 two}", "line 6, has 'two' for 'a'"),
        ("-C 1", "-C 0", "is to have 0 labels"),
        ("-C 1", "-C 3", "is to have 3 labels"),
        ("-C 1", "", "no -C"),
        ("{0,1}", "{0,1,2}", r"label 'y' with the values '0, 1, 2'"),
        ("a real", "a string", "'a' of type 'string'"),
        ("a real", "y real", "distinct names"),
        ("@attribute a real", "@attribute", "a name and a type"),
        ("@attribute a real", "hello", "line 3, has 'hello'"),
        ("@data\n1,2,u\n0,3,v\n1,4,u\n", "", "no @data line"),
        ("1,2,u\n0,3,v\n1,4,u\n", "", "no rows after @data"),
        ("0,3,v\n1,4,u\n", "", "no test items"),
    ],
)
def test_bad_files_are_named(tmp_path, old, new, words):
    assert old in GOOD
    write_tree(tmp_path / "raw", {"x.arff": GOOD.replace(old, new, 1)})
    with pytest.raises(InputError, match=words):
        prepare_source("arff", tmp_path / "raw" / "x.arff", out=tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        ("<labels><label name='z'/></labels>", "label 'z', which"),
        ("<labels></labels>", "0 labels"),
        ("<labels><label/></labels>", "distinct names"),
        ("<labels><label name='y'/><label name='y'/></labels>", "distinct names"),
        ("<labels><label name='y'/><label name='a'/><label name='n'/></labels>", "every attribute"),
        ("<labels>", "well-formed"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><labels><label name="&x;"/></labels>', "not safe"),
    ],
)
def test_bad_xml_is_named(tmp_path, xml, words):
    write_tree(tmp_path, {"x.arff": GOOD.replace(": -C 1", ""), "x.xml": xml})
    with pytest.raises(InputError, match=words):
        plan_source("arff", tmp_path / "x.arff")


def test_packed_and_foreign_files(tmp_path):
    (tmp_path / "cut.arff.gz").write_bytes(gzip.compress(GOOD.encode())[:-10])
    with pytest.raises(InputError, match="cannot be read"):
        plan_source("arff", tmp_path / "cut.arff.gz")
    (tmp_path / "x.arff").write_bytes(GOOD.replace("{u,v}", "{u,ü}").replace(",v", ",ü").encode("latin-1"))
    with pytest.raises(InputError, match="is not utf-8"):
        plan_source("arff", tmp_path / "x.arff")
    assert plan_source("arff", tmp_path / "x.arff", encoding="latin-1").train == 2
    with pytest.raises(InputError, match="encoding is 'x'"):
        plan_source("arff", tmp_path / "x.arff", encoding="x")
    with pytest.raises(InputError, match="was looked for"):
        plan_source("arff", tmp_path / "absent.arff")


NAMES = (
    st.text(st.characters(min_codepoint=32, max_codepoint=382), min_size=1, max_size=6)
    .map(str.strip)
    .filter(bool)
)


def test_a_question_mark_in_quotes_is_a_value():
    text = "@relation r\n@attribute a {'?',b}\n@attribute c real\n@data\n'?',1\n?,?\nb,2\n{0 '?'}\n{0 ?}\n"
    cells = parse_arff(text, where="x.arff").cells
    assert np.array_equal(cells, [[0, 1], [np.nan, np.nan], [1, 2], [0, 0], [np.nan, 0]], equal_nan=True)
    with pytest.raises(InputError, match="line 5, has '\\?' for 'c', but a finite number was expected"):
        parse_arff(text.replace("'?',1", "b,'?'"), where="x.arff")


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_what_is_written_is_read(data):
    """Any names and numbers, dense or sparse, survive quoting."""
    names = data.draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    values = data.draw(st.lists(NAMES, min_size=2, max_size=3, unique=True))
    rows = data.draw(
        st.lists(
            st.tuples(*[st.floats(-100, 100, width=32) for _ in names[1:]], st.integers(0, len(values) - 1)),
            min_size=1,
            max_size=5,
        )
    )

    def quote(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [f"@relation {quote(names[0])}", *(f"@attribute {quote(name)} real" for name in names[1:])]
    lines += [f"@attribute {quote(names[0])} {{{','.join(map(quote, values))}}}", "@data"]
    for row in rows:
        cells = [*(repr(float(x)) for x in row[:-1]), quote(values[row[-1]])]
        if data.draw(st.booleans()):
            lines.append("{" + ", ".join(f"{i} {cell}" for i, cell in enumerate(cells)) + "}")
        else:
            lines.append(",".join(cells))
    table = parse_arff("\n".join(lines), where="x.arff")
    assert [a.name for a in table.attributes] == [*names[1:], names[0]]
    assert table.attributes[-1].values == tuple(values)
    assert table.relation == names[0]
    assert np.array_equal(table.cells, np.asarray(rows, dtype=np.float32))
