"""A folder of one's own images and a CSV."""

from __future__ import annotations

import warnings
import zipfile

import numpy as np
import pytest

from data import encoded_image, write_tree
from mlcl.cli.main import main
from mlcl.datasets import decode_image, open_store, plan_source, prepare_source, read_ids
from mlcl.errors import InputError

IMAGES = {f"img/{i}.png": encoded_image(i, kind="PNG") for i in range(6)}
ONE_HOT = "file,split,cat,dog\n" + "".join(
    f"img/{i}.png,{'train' if i < 4 else 'test'},{i % 2},1\n" for i in range(6)
)
LISTS = "Filename,labels,width\n" + "".join(
    f"img/{i}.png,{'dog | cat' if i % 2 else 'dog'},{i}\n" for i in range(6)
)


def test_columns_of_zeros_and_ones(tmp_path):
    write_tree(tmp_path / "pets", IMAGES | {"labels.csv": ONE_HOT})
    info = prepare_source("folder", tmp_path / "pets", out=tmp_path / "out", size=8)
    data = open_store(tmp_path / "out", check=True)
    assert (info.name, data.classes, len(data.train), len(data.test)) == ("pets", ("cat", "dog"), 4, 2)
    assert data.train.labels.tolist() == [[0, 1], [1, 1], [0, 1], [1, 1]]


def test_a_column_of_lists_and_a_seeded_part_held_out(tmp_path):
    write_tree(tmp_path, IMAGES | {"labels.csv": LISTS})
    plan = plan_source("folder", tmp_path)
    assert plan.classes == ("cat", "dog")
    assert (plan.train, len(plan.ids)) == (4, 6)
    for name, row in zip(plan.ids, plan.labels.tolist(), strict=True):
        assert row == [int(name[4]) % 2, 1]
    assert plan_source("folder", tmp_path).ids == plan.ids
    assert {plan_source("folder", tmp_path, split_seed=s).ids for s in range(9)} != {plan.ids}
    assert plan_source("folder", tmp_path, test_fraction=0.5).train == 3


def test_classes_txt_fixes_names_and_order(tmp_path):
    write_tree(tmp_path, IMAGES | {"labels.csv": LISTS, "classes.txt": "dog\ncow\ncat\n"})
    plan = plan_source("folder", tmp_path)
    assert plan.classes == ("dog", "cow", "cat")
    assert plan.labels.sum(axis=0).tolist() == [6, 0, 3]
    write_tree(tmp_path, {"classes.txt": "dogs\ncat\n"})
    with pytest.raises(InputError, match=r"unknown label 'dog' in row 1\. Did you mean 'dogs'"):
        plan_source("folder", tmp_path)


def test_a_folder_in_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for name, content in (IMAGES | {"labels.csv": ONE_HOT}).items():
            archive.writestr(f"top/{name}", content)
    info = prepare_source("folder", tmp_path / "pets.zip", out=tmp_path / "out", size=8)
    assert (info.name, info.rows) == ("pets", 6)


def test_encodings(tmp_path):
    text = "file,labels\nimg/0.png,Bär\nimg/1.png,Kuh\n"
    write_tree(tmp_path, IMAGES | {"labels.csv": text.encode("latin-1")})
    with pytest.raises(InputError, match=r"labels\.csv is not utf-8: .*name another encoding"):
        plan_source("folder", tmp_path)
    assert plan_source("folder", tmp_path, encoding="latin-1").classes == ("Bär", "Kuh")
    with pytest.raises(InputError, match="encoding is 'latein'"):
        plan_source("folder", tmp_path, encoding="latein")
    write_tree(tmp_path, {"labels.csv": b"\xef\xbb\xbf" + text.encode()})  # as spreadsheets save it
    assert plan_source("folder", tmp_path).classes == ("Bär", "Kuh")


def test_one_of_several_tables(tmp_path):
    write_tree(tmp_path, IMAGES | {"a.csv": ONE_HOT, "b.csv": LISTS})
    with pytest.raises(InputError, match=r"2 \.csv files.*a\.csv, b\.csv; say which with the option table"):
        plan_source("folder", tmp_path)
    assert plan_source("folder", tmp_path, table="a.csv").train == 4
    with pytest.raises(InputError, match=r"c\.csv was looked for"):
        plan_source("folder", tmp_path, table="c.csv")


def test_validation_rows_beside_test_rows_are_left_out(tmp_path):
    text = ONE_HOT.replace("img/0.png,train", "img/0.png,val")
    plan = plan_source("folder", write_tree(tmp_path, IMAGES | {"labels.csv": text}))
    assert (plan.train, len(plan.ids), dict(plan.dropped)) == (3, 5, {"validation rows": 1})
    assert np.array_equal(plan.labels[:, 0], [1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected the names of its columns"),
        ("file,cat\n", "has no rows"),
        ("name,cat\nimg/0.png,1\n", "one named 'file' was expected"),
        ("file,cat\nimg/0.png,1\nimg/1.png,2\n", "has 2 in row 2 of column 'cat', but 0 or 1"),
        ("file,cat\nimg/0.png,1\nimg/1.png\n", "1 cells in line 3, but its first line has 2"),
        ('file,cat\n"img/0.png,1\n', "cannot be read from line 2 on"),
        ("file,cat\nimg/0.png,1\nimg/0.png,0\n", "id 'img/0.png' twice"),
        ("file,cat\nimg/0.png,1\nimg/9.png,0\n", r"9\.png was looked for"),
        ("file,cat\nimg/0.png,1\n/etc/passwd,0\n", "relative path"),
        ("file,cat\nimg/0.png,1\n../x.png,0\n", "relative path"),
        ("file,cat\nimg/0.png,1\n,0\n", "a name that is not blank"),
        ('file,cat\nimg/0.png,1\n"a\nb.png",0\n', r"a\?b\.png was looked for"),
        ("file,cat,cat\nimg/0.png,1,1\nimg/1.png,1,1\n", "each once"),
        ("file\nimg/0.png\nimg/1.png\n", "no column of labels"),
        ("file,labels\nimg/0.png,\nimg/1.png,\n", "0 classes"),
        ("file,split,cat\nimg/0.png,train,1\nimg/1.png,exam,1\n", "split 'exam'"),
        ("file,split,cat\nimg/0.png,train,1\nimg/1.png,train,1\n", "no test items"),
        ("file,cat\nimg/0.png,1\n", "no test items"),
        ("file,cat\nimg/0.png,1\nimg/1.png\0,1\n", "NUL|relative path"),
    ],
)
def test_bad_tables_are_named(tmp_path, text, words):
    write_tree(tmp_path / "raw", IMAGES | {"labels.csv": text})
    with pytest.raises(InputError, match=words):
        prepare_source("folder", tmp_path / "raw", out=tmp_path / "out", size=8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_bad_options(tmp_path):
    write_tree(tmp_path, IMAGES | {"labels.csv": LISTS})
    with pytest.raises(InputError, match=r"test_fraction is 1\.5"):
        plan_source("folder", tmp_path, test_fraction=1.5)
    with pytest.raises(InputError, match="split_seed is -1"):
        plan_source("folder", tmp_path, split_seed=-1)
    with pytest.raises(InputError, match=r"0 \.csv files"):
        plan_source("folder", tmp_path / "img")
    with pytest.raises(InputError, match="separator"):
        plan_source("folder", tmp_path, separator="")


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (("cat|dog", "dog", ""), "|"),
        (("cat,dog", "dog", ""), ","),
        (("cat; dog", "dog", ""), ";"),
        (("['cat', 'dog']", "['dog']", "[]"), "|"),
        (('["cat", "dog"]', '["dog"]', ""), "|"),
        (("{'cat', 'dog'}", "{'dog'}", "set()"), None),
        (("('cat', 'dog')", "('dog',)", "()"), "|"),
        (("[cat, dog]", "[dog]", "[]"), "|"),
        (("['cat' 'dog']", "['dog']", "[]"), "|"),
    ],
)
def test_tags_in_one_cell_are_recognised(tmp_path, cells, separator):
    if separator is None:
        cells = (*cells[:2], "{}")
    rows = "".join(f'img/{i}.png,"{cells[i % 3].replace(chr(34), 2 * chr(34))}"\n' for i in range(6))
    plan = plan_source("folder", write_tree(tmp_path, IMAGES | {"labels.csv": f"file,tags\n{rows}"}))
    assert plan.classes == ("cat", "dog")
    for name, row in zip(plan.ids, plan.labels.tolist(), strict=True):
        assert row == [[1, 1], [0, 1], [0, 0]][int(name[4]) % 3]
    assert plan.options.get("separator", "|") == (separator or "|")


def test_two_separators_are_asked_about(tmp_path, capsys):
    text = 'file,tags\nimg/0.png,"salt, pepper; cat"\nimg/1.png,cat\n'
    write_tree(tmp_path / "raw", IMAGES | {"labels.csv": text})
    with pytest.raises(InputError, match=r"has ';' in .* and ',' in .*; say what .* option separator"):
        plan_source("folder", tmp_path / "raw")
    assert plan_source("folder", tmp_path / "raw", separator=";").classes == ("cat", "salt, pepper")
    words = ["data", "prepare", "folder", "--root", str(tmp_path / "raw"), "--out", str(tmp_path / "out")]
    assert main([*words, "--separator", ",", "--size", "8"]) == 0
    assert "labels are separated by ','; --separator overrides" in capsys.readouterr().err


def test_a_known_name_with_a_comma_is_one_label(tmp_path):
    text = 'file,tags\nimg/0.png,"salt, pepper"\nimg/1.png,"cat,dog"\n'
    write_tree(tmp_path, IMAGES | {"labels.csv": text, "classes.txt": "cat\ndog\nsalt, pepper\n"})
    plan = plan_source("folder", tmp_path)
    assert dict(zip(plan.ids, plan.labels.tolist(), strict=True)) == {
        "img/0.png": [0, 0, 1],
        "img/1.png": [1, 1, 0],
    }


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, mark):
    text = ONE_HOT.replace(",", mark)
    plan = plan_source("folder", write_tree(tmp_path, IMAGES | {"labels.csv": text}))
    assert (plan.classes, plan.train, plan.labels[:, 0].tolist()) == (("cat", "dog"), 4, [0, 1, 0, 1, 0, 1])


def test_a_table_with_tabs_may_be_a_tsv(tmp_path):
    write_tree(tmp_path, IMAGES | {"labels.tsv": "image\ttags\nimg/0.png\tcat,dog\nimg/1.png\tdog\n"})
    assert plan_source("folder", tmp_path).classes == ("cat", "dog")


def test_an_unquoted_comma_is_explained(tmp_path):
    write_tree(tmp_path, IMAGES | {"labels.csv": "file,tags\nimg/0.png,cat,dog\n"})
    with pytest.raises(
        InputError, match=r"3 cells in line 2, but its first line has 2 \(a cell with ',' or a line"
    ):
        plan_source("folder", tmp_path)


def test_labels_that_differ_only_in_case_or_spaces_are_reported(tmp_path):
    tags = ["Cat|traffic light", "cat", "cat", "trafficlight", "dog", "dog"]
    text = "file,tags\n" + "".join(f"img/{i}.png,{tag}\n" for i, tag in enumerate(tags))
    write_tree(tmp_path, IMAGES | {"labels.csv": text})
    with pytest.warns(
        UserWarning, match=r"'Cat' \(1 row\) and 'cat' \(2 rows\); 'traffic light' \(1 row\) and 'traffi"
    ):
        assert len(plan_source("folder", tmp_path).classes) == 5  # reported, not merged
    write_tree(tmp_path, {"labels.csv": LISTS})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_source("folder", tmp_path)


def test_images_in_subfolders_are_found_by_name(tmp_path):
    files = {f"photos/{i % 2}/{i}.PNG": encoded_image(i, kind="PNG") for i in range(4)}
    rows = "0.PNG,cat\n1,dog\n0/2.PNG,cat\nphotos/1/3.PNG,dog\n"  # a name, a name without extension, parts of a path
    write_tree(tmp_path / "raw", files | {"labels.csv": f"file,tags\n{rows}", "notes/1.txt": "not an image"})
    prepare_source("folder", tmp_path / "raw", out=tmp_path / "out", size=18)
    data = open_store(tmp_path / "out")
    pixels = dict(
        zip(read_ids(tmp_path / "out"), np.concatenate([data.train.inputs, data.test.inputs]), strict=True)
    )
    for name, i in {"0.PNG": 0, "1": 1, "0/2.PNG": 2, "photos/1/3.PNG": 3}.items():
        assert np.array_equal(pixels[name], decode_image(encoded_image(i, kind="PNG"), size=18))


def test_a_name_in_two_subfolders_is_asked_about(tmp_path):
    files = {f"{place}/0.png": encoded_image(0, kind="PNG") for place in "ab"}
    write_tree(tmp_path, files | {"labels.csv": "file,tags\n0.png,cat\na/0.png,dog\n"})
    with pytest.raises(
        InputError, match=r"'a/0\.png' and 'b/0\.png' for the file '0\.png', but one was expected"
    ):
        plan_source("folder", tmp_path)


def test_images_in_subfolders_of_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for i in range(3):
            archive.writestr(f"deep/er/{i}.png", encoded_image(i, kind="PNG"))
    write_tree(tmp_path, {"labels.csv": "file,tags\n0.png,cat\n1,dog\n2.png,dog\n"})
    assert prepare_source("folder", tmp_path, out=tmp_path / "out", size=8).rows == 3


def test_skipped_images_are_listed(tmp_path, capsys):
    text = "file,tags\n" + "".join(f"img/{i}.png,cat|dog\n" for i in range(8))
    write_tree(tmp_path / "raw", IMAGES | {"labels.csv": text, "img/3.png": b"not an image"})
    listing = tmp_path / "skipped.txt"
    words = ["data", "prepare", "folder", "--root", str(tmp_path / "raw"), "--size", "8", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "out"), "--skip-bad", str(listing)]) == 0
    lines = dict(line.split("\t") for line in listing.read_text().splitlines())
    assert sorted(lines) == ["img/3.png", "img/6.png", "img/7.png"]
    assert lines["img/3.png"] == "is not an image that can be read"
    assert lines["img/7.png"] == "was looked for and does not exist"
    assert sorted(read_ids(tmp_path / "out")) == [f"img/{i}.png" for i in (0, 1, 2, 4, 5)]
    assert main([*words, "--out", str(tmp_path / "new"), "--skip-bad", str(listing)]) == 2  # the list is kept
    assert "skipped.txt exists" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert main([*words, "--out", str(tmp_path / "new"), "--skip-bad"]) == 0
    assert main([*words, "--out", str(tmp_path / "x"), "--skip-bad", str(tmp_path / "no" / "f")]) == 2


def test_an_empty_cell_is_not_known(tmp_path):
    write_tree(tmp_path, IMAGES | {"labels.csv": "file,cat\nimg/0.png,1\nimg/1.png,\nimg/2.png,0\n"})
    plan = plan_source("folder", tmp_path, test_fraction=0.5)
    # Nobody looked for any label in the second image, so nothing of it is known.
    order = np.argsort(plan.ids)
    assert plan.labels[order].ravel().tolist() == [1, 0, 0]
    assert plan.known[order].ravel().tolist() == [True, False, True]


def test_labels_that_nobody_looked_for_in_an_image_are_unknown(tmp_path):
    text = "file,tags,annotated\nimg/0.png,cat,cat|dog\nimg/1.png,,dog\nimg/2.png,cow,\n"
    write_tree(tmp_path, IMAGES | {"labels.csv": text, "classes.txt": "cat\ncow\ndog\nhen\n"})
    plan = plan_source("folder", tmp_path, test_fraction=0.5)
    order = np.argsort(plan.ids)
    assert plan.labels[order].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert plan.known[order].astype(int).tolist() == [[1, 0, 1, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
