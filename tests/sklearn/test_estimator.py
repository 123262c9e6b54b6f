"""ContinualTagger as a scikit-learn estimator: its checks, parameters, searches and pipelines."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from estimator_checks import EXCEPTIONS
from mlcl.errors import InputError
from mlcl.metrics import macro_auc
from mlcl.sklearn import ContinualTagger
from taggers import SMALL, fitted, problem


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "linear"])
def test_scikit_learns_checks(model):
    """All pass except for those listed, and those listed do fail: a check that begins to pass must leave the list.

    Without held-out rows: check_classifier_multioutput expects a threshold of 0.5, and chosen ones may be any.
    """
    quick = {"epochs": 1} if model == "mlp" else {}
    tagger = ContinualTagger(**quick, model=model, held_out=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(tagger, expected_failed_checks=EXCEPTIONS, on_fail=None, on_skip=None)
    found = {
        status: [r for r in results if r["status"] == status] for status in ("passed", "failed", "xfail")
    }
    assert [(r["check_name"], r["exception"]) for r in found["failed"]] == []
    assert {r["check_name"] for r in found["xfail"]} == set(EXCEPTIONS)
    assert not {r["check_name"] for r in found["passed"]} & set(EXCEPTIONS)
    assert len(found["passed"]) > 40


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_features_of_any_type(dtype):
    """What check_estimators_dtypes requires, with multi-label targets."""
    x, y = problem()
    tagger = ContinualTagger(**SMALL).fit((10 * x).astype(dtype), y)
    assert tagger.predict((10 * x).astype(dtype)).shape == y.shape


def test_another_number_of_features_is_refused_in_every_method():
    """What check_n_features_in_after_fitting and check_estimators_partial_fit_n_features require."""
    x, y = problem()
    tagger = ContinualTagger(**SMALL).partial_fit(x, y)
    for method in ("predict", "decision_function", "predict_proba"):
        with pytest.raises(ValueError, match="X has 3 features, but ContinualTagger is expecting 4"):
            getattr(tagger, method)(x[:, :3])
    for method in ("partial_fit", "score"):
        with pytest.raises(ValueError, match="X has 3 features, but ContinualTagger is expecting 4"):
            getattr(tagger, method)(x[:, :3], y)


def test_outputs_agree():
    """What check_decision_proba_consistency and check_classifiers_train require: one order, a threshold per class."""
    tagger, (x, y) = fitted(), problem(seed=1)
    decision, probability = tagger.decision_function(x), tagger.predict_proba(x)
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-decision)), rtol=1e-12)
    assert np.array_equal(tagger.predict(x), probability > tagger.thresholds_)
    plain = fitted(held_out=0.0)
    assert np.array_equal(plain.predict(x), plain.predict_proba(x) > 0.5)
    assert tagger.score(x, y) == macro_auc(decision, y) > 0.85


def test_parameters():
    tagger = ContinualTagger(**SMALL)
    assert clone(tagger).get_params() == tagger.get_params()
    assert set(tagger.get_params()) == {
        "model", "hidden", "depth", "memory_size", "margin", "epochs", "batch_size", "lr", "weight_decay",
        "random_state", "held_out", "decide", "decide_value",
    }  # fmt: skip


def test_in_a_search_and_in_a_pipeline():
    x, y = problem()
    search = GridSearchCV(ContinualTagger(**SMALL), {"model": ["mlp"], "lr": [1e-6, 0.05]}, cv=2).fit(x, y)
    assert search.best_params_["lr"] == 0.05
    pipeline = make_pipeline(StandardScaler(), ContinualTagger(**SMALL)).fit(x, y)
    assert pipeline.score(x, y) > 0.85
    assert cross_val_score(ContinualTagger(**SMALL), x, y, cv=2, scoring="roc_auc").mean() > 0.8


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"model": "resnet8"}, "model is 'resnet8'"),
        ({"model": "linear", "hidden": 3}, "takes no option 'hidden'"),
        ({"hidden": 0}, "hidden is 0"),
        ({"depth": 1.5}, "depth is 1.5"),
        ({"memory_size": -1}, "memory_size is -1"),
        ({"margin": -1.0}, "margin is -1.0"),
        ({"model": "mlp", "epochs": 0}, "epochs is 0"),
        ({"model": "mlp", "batch_size": "32"}, "batch_size is '32'"),
        ({"model": "mlp", "lr": float("nan")}, "lr is nan"),
        ({"lr": 0.1}, "lr is 0.1, but model='linear' is solved without it; expected None"),
        ({"weight_decay": -1}, "weight_decay is -1"),
    ],
)
def test_bad_parameters_raise_one_sentence(params, sentence):
    x, y = problem()
    with pytest.raises(InputError, match=sentence):
        ContinualTagger(**{"random_state": 0} | params).fit(x, y)


def test_the_network_cannot_change_between_calls():
    x, y = problem()
    with pytest.raises(InputError, match="the first partial_fit had"):
        fitted().set_params(hidden=8).partial_fit(x, y[:, :1], classes=["new"])
