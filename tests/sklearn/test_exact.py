"""ExactTagger as a scikit-learn estimator: its checks, parameters, searches, pipelines, kinds of input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from estimator_checks import EXACT_EXCEPTIONS
from mlcl.errors import InputError
from mlcl.metrics import macro_auc
from mlcl.sklearn import ExactTagger
from taggers import problem


class Frame:
    """As much of a data frame as the tagger looks at."""

    def __init__(self, values, columns):
        self.values, self.columns = np.asarray(values), columns

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)

    def __len__(self):
        return len(self.values)


def two_calls(**params):
    x, y = problem()
    return (
        ExactTagger(**params)
        .partial_fit(x[:120], y[:120, :2], classes=["c0", "c1"])
        .partial_fit(x[120:], y[120:, 2:], classes=["c2", "c3"])
    )


@pytest.mark.slow
def test_scikit_learns_checks():
    """All pass except for those listed, and those listed do fail: a check that begins to pass must leave the list."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            ExactTagger(), expected_failed_checks=EXACT_EXCEPTIONS, on_fail=None, on_skip=None
        )
    found = {
        status: [r for r in results if r["status"] == status] for status in ("passed", "failed", "xfail")
    }
    assert [(r["check_name"], r["exception"]) for r in found["failed"]] == []
    assert {r["check_name"] for r in found["xfail"]} == set(EXACT_EXCEPTIONS)
    assert not {r["check_name"] for r in found["passed"]} & set(EXACT_EXCEPTIONS)
    assert len(found["passed"]) > 40


def test_it_learns_labels_over_time():
    x, y = problem(seed=1)
    tagger = two_calls()
    assert tagger.classes_.tolist() == ["c0", "c1", "c2", "c3"]
    assert tagger.score(x, y) == macro_auc(tagger.decision_function(x), y) > 0.9
    assert tagger.score(x, y[:, [3, 0]], classes=["c3", "c0"]) > 0.9


def test_outputs_agree():
    x, _ = problem(seed=1)
    tagger = two_calls()
    odds = tagger.decision_function(x)
    np.testing.assert_allclose(
        odds, x.astype(float) @ tagger.coef_.T + tagger.intercept_, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(tagger.predict_proba(x), 1 / (1 + np.exp(-odds)), rtol=1e-12)
    assert np.array_equal(tagger.predict(x), tagger.predict_proba(x) > tagger.thresholds_)


def test_predictions_follow_the_goal_that_is_set_without_learning():
    x, _ = problem(seed=1, n=2000)
    tagger = two_calls()
    before = tagger.predict_proba(x)
    for kind, value in (
        ("cost", 5.0),
        ("f1-overall", None),
        ("f1", None),
    ):
        tagger.set_params(decide=kind, decide_value=value)
        assert np.array_equal(tagger.predict(x), before > tagger.thresholds_)
    with pytest.raises(InputError, match="precision is 90"):
        tagger.set_params(decide="precision", decide_value=90).predict(x)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, np.asfortranarray, np.float32])
@pytest.mark.parametrize("dimensions", [256, 3])
def test_any_kind_of_features_gives_the_same(kind, dimensions):
    x, y = problem()
    rows = np.where(np.abs(x) < 0.3, 0, x)
    plain = ExactTagger(dimensions=dimensions).fit(rows.astype(float), y)
    other = ExactTagger(dimensions=dimensions).fit(kind(rows), y)
    np.testing.assert_allclose(other.coef_, plain.coef_, rtol=1e-7)
    np.testing.assert_allclose(
        other.decision_function(kind(rows)), plain.decision_function(rows), rtol=1e-6, atol=1e-8
    )


def test_any_kind_of_labels_gives_the_same():
    x, y = problem()
    names = np.array(["c0", "c1", "c2", "c3"])
    expected = ExactTagger().fit(x, y, classes=names).coef_
    tags = [names[row == 1].tolist() for row in y]
    for labels, classes in (
        (y.astype(bool), names),
        (y.tolist(), list(names)),
        (sparse.csr_matrix(y), names),
        (Frame(y, list(names)), None),
        (tags, None),
        (tags, names),
        ([set(row) for row in tags], None),
        (np.array([*tags, None], dtype=object)[:-1], None),
    ):
        tagger = ExactTagger().fit(x, labels, classes=classes)
        assert tagger.classes_.tolist() == list(names)
        assert np.array_equal(tagger.coef_, expected)


def test_tags_add_classes_and_the_classes_name_what_rows_were_annotated_for():
    x, _ = problem()
    tagger = ExactTagger().partial_fit(x[:4], [["b"], [], ["a"], ["a", "b"]])
    tagger.partial_fit(x[4:6], [["c"], ["b"]])
    assert tagger.classes_.tolist() == ["a", "b", "c"]
    tagger.partial_fit(x[6:8], [["b"], []], classes=["b"])
    assert [tagger.learner_.sums.annotated_for(k).count for k in range(3)] == [6, 8, 2]
    tagger.partial_fit(x[8:9], [[]])  # a row without tags is a negative of all classes
    assert [tagger.learner_.sums.annotated_for(k).count for k in range(3)] == [7, 9, 3]
    with pytest.raises(InputError, match="y has the tag 'z' at row 1; expected tags of classes"):
        tagger.partial_fit(x[:2], [[], ["z"]], classes=["a"])
    with pytest.raises(InputError, match="y has 1 rows and X has 2"):
        tagger.partial_fit(x[:2], [["a"]])


def test_a_mask_is_the_same_as_calls_for_each_kind_of_row():
    x, y = problem()
    known = np.random.default_rng(0).random(y.shape) < 0.6
    once = ExactTagger(unlabelled=0.2).fit(x, y, annotated=known)
    many = ExactTagger(unlabelled=0.2).fit(x, y, annotated=known & False)
    many.forget(x, y, annotated=known & False)
    for pattern in np.unique(known, axis=0):
        rows = (known == pattern).all(1)
        if pattern.any():
            many.partial_fit(x[rows], y[rows][:, pattern], classes=np.flatnonzero(pattern))
        else:
            many.partial_fit(x[rows], y[rows], annotated=known[rows])
    np.testing.assert_allclose(many.coef_, once.coef_, rtol=1e-9)
    hidden = np.where(known, y, 1 - y)  # labels that are not known are not read
    assert np.array_equal(ExactTagger(unlabelled=0.2).fit(x, hidden, annotated=known).coef_, once.coef_)


def test_weights_of_rows():
    x, y = problem()
    times = np.random.default_rng(0).integers(0, 3, len(x))
    weighted = ExactTagger().fit(x, y, sample_weight=times)
    repeated = ExactTagger().fit(np.repeat(x, times, axis=0), np.repeat(y, times, axis=0))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-8)
    before = weighted.coef_
    weighted.partial_fit(x[:5], y[:5], sample_weight=np.full(5, 0.5))
    weighted.forget(x[:5], y[:5], sample_weight=np.full(5, 0.5))
    np.testing.assert_allclose(weighted.coef_, before, rtol=1e-9)


def test_parameters():
    tagger = ExactTagger(unlabelled=0.1)
    assert clone(tagger).get_params() == tagger.get_params()
    assert set(tagger.get_params()) == {
        "form", "spread", "goal", "unlabelled", "ridge", "exponent", "dimensions", "decide", "decide_value",
        "random_state", "calibrate",
    }  # fmt: skip


def test_in_a_search_and_in_a_pipeline():
    x, y = problem()
    search = GridSearchCV(ExactTagger(), {"ridge": [1e4, 0.1]}, cv=2).fit(x, y)
    assert set(search.cv_results_["param_ridge"]) == {1e4, 0.1}
    pipeline = make_pipeline(StandardScaler(), ExactTagger()).fit(x, y)
    assert pipeline.score(x, y) > 0.9
    assert cross_val_score(ExactTagger(), x, y, cv=2, scoring="roc_auc").mean() > 0.9


def test_a_changed_parameter_is_used_at_once():
    x, _ = problem()
    tagger = two_calls()
    before = tagger.decision_function(x)
    assert not np.allclose(tagger.set_params(unlabelled=0.0).decision_function(x), before)
    assert np.array_equal(tagger.set_params(unlabelled=1.0).decision_function(x), before)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"unlabelled": 1.5}, "unlabelled is 1.5; expected a number from 0 to 1"),
        ({"unlabelled": "atuo"}, "unlabelled is 'atuo'; expected one of: in-task, pooled"),
        ({"goal": "pool"}, "goal is 'pool'; expected one of: auc, ap, both"),
        ({"ridge": -1}, "ridge is -1; expected a number of at least 0"),
        ({"ridge": float("nan")}, "ridge is nan"),
        ({"exponent": "one"}, "exponent is 'one'"),
        ({"dimensions": 0}, "dimensions is 0; expected a whole number of at least 1"),
        ({"dimensions": 2.5}, "dimensions is 2.5"),
    ],
)
def test_bad_parameters_raise_one_sentence(params, sentence):
    x, y = problem()
    with pytest.raises(InputError, match=sentence):
        ExactTagger(**params).fit(x, y)


def test_a_score_over_no_defined_class_is_said():
    x, y = problem()
    tagger = ExactTagger().fit(x, y)
    with pytest.warns(
        UserWarning, match="^no class has both positives and negatives in y, so the score is undefined"
    ):
        assert np.isnan(tagger.score(x[:5], np.zeros((5, y.shape[1]), int)))


def test_a_projection_that_loses_much_says_so():
    x = np.random.default_rng(0).normal(size=(80, 20)) * np.repeat([1.0, 0.01], 10)
    y = (x[:, :2] > 0).astype(int)
    with pytest.warns(UserWarning, match="20 features to 5 leaves out 35% of their variance"):
        ExactTagger(dimensions=5).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ExactTagger(dimensions=12).fit(x, y)


def test_a_class_with_positives_only_has_about_its_share_of_all_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 5))
    tagger = ExactTagger().fit(x[:1980], (x[:1980, :1] > 0).astype(int), classes=["a"])
    tagger.partial_fit(x[1980:] + np.eye(5)[1] * 2, np.ones((20, 1), int), classes=["rare"])
    with pytest.warns(UserWarning, match=r"\['rare'\] have positive rows only"):
        chances = tagger.predict_proba(x)[:, 1]
    assert chances.mean() < 0.05


def test_sparse_labels_stay_sparse_and_the_surest_of_many_are_found_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 70)), rng.random((300, 500)) < 0.02
    expected = ExactTagger(form="shared").fit(x, y).forget(x[:9], y[:9])
    tags = [set(np.flatnonzero(row).tolist()) for row in y]
    monkeypatch.setattr("mlcl.sklearn.targets.MANY", 0)
    for kind in (sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix):
        with monkeypatch.context() as patch:
            patch.setattr(kind, "toarray", None)
            patch.setattr(sparse.csr_matrix, "toarray", None)
            found = ExactTagger(form="shared").partial_fit(x[:200], kind(y[:200]))
            found = found.partial_fit(x[200:], kind(y[200:]))
        found = found.forget(x[:9], kind(y[:9]))
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6, atol=1e-10)
        assert found.score(x, kind(y)) == pytest.approx(found.score(x, y))
    found = ExactTagger(form="shared").fit(x, tags, classes=list(range(500))).forget(x[:9], y[:9])
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6, atol=1e-10)
    monkeypatch.setattr("mlcl.exact.features.BLOCK", 20)
    monkeypatch.setattr("mlcl.exact.features.ROWS", 1)
    for rows in (x[:7], sparse.csr_matrix(x[:7])):
        names, values = found.predict_top(rows, 3)
        order = np.argsort(-found.predict_proba(x[:7]), axis=1)[:, :3]
        assert np.array_equal(names, order)
        np.testing.assert_allclose(values, np.take_along_axis(found.predict_proba(x[:7]), order, axis=1))
    assert found.predict_top(x[:2], 9999)[0].shape == (2, 500)
    with pytest.raises(InputError, match="n is 0"):
        found.predict_top(x, 0)
    with pytest.raises(InputError, match="y has the value 2 at row 3, column 4"):
        found.partial_fit(x[:9], sparse.coo_matrix(([1, 2], ([0, 3], [1, 4])), (9, 500)))
    with pytest.raises(InputError, match="y has 9 rows and X has 8"):
        found.partial_fit(x[:8], sparse.csr_matrix(y[:9]))
