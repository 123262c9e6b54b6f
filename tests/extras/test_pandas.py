"""ExactTagger with data frames."""

from __future__ import annotations

import numpy as np
import pytest

from mlcl.errors import InputError
from mlcl.sklearn import ExactTagger

pandas = pytest.importorskip("pandas", reason="pandas is not installed: make test-extras")


def frames(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.random((n, 3)) < 0.4
    x = y + rng.normal(0, 0.3, y.shape)
    labels = pandas.DataFrame(y, columns=["cat", "dog", "car"]).astype({"dog": int, "car": "Int64"})
    return pandas.DataFrame(x, columns=["a", "b", "c"]), labels


def test_columns_name_classes_and_features():
    x, y = frames()
    tagger = ExactTagger().partial_fit(x, y[["dog", "cat"]]).partial_fit(x, y[["car"]])
    assert tagger.classes_.tolist() == ["dog", "cat", "car"]
    assert tagger.feature_names_in_.tolist() == ["a", "b", "c"]
    test, truth = frames(seed=1)
    assert tagger.score(test, truth) > 0.95
    assert tagger.score(test, truth) == pytest.approx(tagger.score(test, truth[["car", "cat", "dog"]]))
    arrays = ExactTagger()
    arrays.partial_fit(x.to_numpy(), y[["dog", "cat"]].to_numpy(int), classes=["dog", "cat"])
    arrays.partial_fit(x.to_numpy(), y[["car"]].to_numpy(int), classes=["car"])
    assert np.array_equal(tagger.decision_function(test), arrays.decision_function(test.to_numpy()))


def test_names_survive_saving_and_are_checked(tmp_path):
    x, y = frames()
    ExactTagger().fit(x, y).save(tmp_path / "tagger.safetensors")
    loaded = ExactTagger.load(tmp_path / "tagger.safetensors")
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(x[["b", "a", "c"]])
    with pytest.raises(InputError, match=r"classes is \['x'\], but the columns of y are \['cat'\]"):
        loaded.partial_fit(x, y[["cat"]], classes=["x"])


def test_a_missing_label_is_not_a_negative_one():
    x, y = frames()
    y.loc[3, "car"] = pandas.NA
    with pytest.raises(InputError, match="Unknown label type"):
        ExactTagger().fit(x, y)
