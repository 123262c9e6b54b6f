"""Targets of ExactTagger: forms of y, names of classes, and the errors for bad ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.preprocessing import MultiLabelBinarizer

from mlcl.errors import InputError
from mlcl.metrics import macro_auc
from mlcl.sklearn import ExactTagger
from taggers import problem


def test_names_follow_their_columns():
    x, y = problem()
    tagger = ExactTagger()
    tagger.partial_fit(x, y[:, [2, 0]], classes=["two", "zero"])
    tagger.partial_fit(x, y[:, [1, 2, 3]], classes=np.array(["one", "two", "three"]))
    assert tagger.classes_.tolist() == ["two", "zero", "one", "three"]
    test, truth = problem(seed=1)
    columns = [2, 0, 1, 3]
    assert tagger.score(test, truth[:, columns]) > 0.85
    named = tagger.score(test, truth, classes=["zero", "one", "two", "three"])
    assert tagger.score(test, truth[:, columns]) == pytest.approx(named, rel=1e-12)  # a mean in another order
    decision = tagger.decision_function(test)
    assert tagger.score(test, truth[:, [3]], classes=["three"]) == macro_auc(decision[:, [3]], truth[:, [3]])


def test_all_forms_of_labels_give_the_same_tagger():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x, y = problem()

    class Frame:
        columns = ("a", "b", "c", "d")

        def __array__(self, dtype=None, copy=None):
            return y.astype(object)

    expected = ExactTagger().fit(x, y, classes=["a", "b", "c", "d"]).decision_function(x)
    for labels, names in (
        (y.tolist(), ("a", "b", "c", "d")),
        (scipy_sparse.csr_matrix(y), ["a", "b", "c", "d"]),
        (torch.from_numpy(y).float(), np.array(["a", "b", "c", "d"])),
        (Frame(), None),
        (Frame(), list("abcd")),
    ):
        tagger = ExactTagger().fit(x, labels, classes=names)
        assert tagger.classes_.tolist() == list("abcd")
        assert np.array_equal(tagger.decision_function(x), expected)
    sets = [{name for name, one in zip("abcd", row, strict=True) if one} for row in y]
    for tags in (sets, [sorted(tags) for tags in sets], [tuple(tags) for tags in sets]):
        tagger = ExactTagger().fit(x, tags)
        assert tagger.classes_.tolist() == list("abcd")
        assert np.array_equal(tagger.decision_function(x), expected)
    binarizer = MultiLabelBinarizer()
    tagger = ExactTagger().fit(x, binarizer.fit_transform(sets), classes=binarizer.classes_)
    assert np.array_equal(tagger.decision_function(x), expected)


def test_without_names_columns_are_numbers_and_stay():
    x, y = problem()
    tagger = ExactTagger().partial_fit(x, y)
    assert tagger.classes_.tolist() == [0, 1, 2, 3]
    assert tagger.partial_fit(x, y).classes_.tolist() == [0, 1, 2, 3]
    assert tagger.partial_fit(x, y[:, :1], classes=[7]).classes_.tolist() == [0, 1, 2, 3, 7]


@pytest.mark.parametrize(
    ("labels", "classes", "sentence"),
    [
        (np.zeros(240), None, r"y has shape \(240,\), but a matrix"),
        (np.zeros((240, 2, 2)), None, r"y has shape \(240, 2, 2\)"),
        (np.zeros((3, 2)), ["a", "b"], "y has 3 rows and X has 240"),
        (np.full((240, 2), 0.5), ["a", "b"], "y has the value 0.5 at row 0, column 0"),
        (np.full((240, 2), np.nan), ["a", "b"], "y has the value nan at row 0, column 0"),
        ([["b"]] * 240, ["a"], "y has the tag 'b' at row 0"),
        ([["a"]] * 3, ["a"], "y has 3 rows and X has 240"),
        ([[0], [0, 1]] * 120, ["a"], "y is not a matrix of 0 and 1"),
        (np.zeros((240, 2)), ["a"], "classes has 1 names and y has 2 columns"),
        (np.zeros((240, 2)), ["a", "a"], "classes has the name 'a' twice"),
        (np.zeros((240, 2)), ["a", " "], "classes has the entry ' '"),
        (np.zeros((240, 2)), ["a", 3], "classes has the entry 3, but names of one type"),
        (np.zeros((240, 2)), [1.5, 2.5], "classes has the entry 1.5"),
        (np.zeros((240, 2)), [-1, 2], "classes has the entry -1"),
        (np.zeros((240, 2)), "ab", "classes is 'ab', but a list of names"),
        (np.zeros((240, 0)), [], "at least one"),
        (None, None, "requires y to be passed"),
    ],
)
def test_bad_labels_raise_one_sentence(labels, classes, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        ExactTagger().partial_fit(problem()[0], labels, classes=classes)
    assert "\n" not in str(caught.value)


def test_names_that_do_not_fit_what_is_known():
    x, y = problem()
    tagger = ExactTagger().fit(x, y, classes=["c0", "c1", "c2", "c3"])
    with pytest.raises(InputError, match="y has 2 columns without names and 4 classes are known"):
        tagger.partial_fit(x, y[:, :2])
    with pytest.raises(
        InputError, match="the entry 0, but names of one type were expected: the others are strings"
    ):
        tagger.partial_fit(x, y[:, :1], classes=[0])
    with pytest.raises(InputError, match=r"classes has \['new'\], but only these are known"):
        tagger.score(x, y[:, :1], classes=["new"])
