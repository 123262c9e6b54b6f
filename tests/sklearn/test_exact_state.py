"""ExactTagger over time: merge, forget, remove, rename, save and load; and what it refuses."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from scipy import sparse

from mlcl.errors import InputError
from mlcl.sklearn import ExactTagger
from taggers import problem


def fitted(**params):
    x, y = problem()
    tagger = ExactTagger(**params).partial_fit(x[:120], y[:120, :2], classes=["c0", "c1"])
    return tagger.partial_fit(x[120:], y[120:, 1:], classes=["c1", "c2", "c3"])


def state(tagger):
    return {name: value.copy() for name, value in tagger.learner_.arrays().items()}


def unchanged(tagger, before):
    after = tagger.learner_.arrays()
    return before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)


@given(st.integers(0, 10**6), st.lists(st.integers(0, 240), max_size=4))
@settings(max_examples=15)
def test_any_order_and_cut_into_calls(seed, cuts):
    x, y = problem()
    once = ExactTagger().fit(x, y)
    pieces = [
        part for part in np.split(np.random.default_rng(seed).permutation(240), sorted(cuts)) if len(part)
    ]
    many = ExactTagger()
    for piece in pieces:
        many.partial_fit(x[piece], y[piece])
    assert np.linalg.norm(many.coef_ - once.coef_) <= 1e-9 * np.linalg.norm(once.coef_)


def test_one_row_at_a_time():
    x, y = problem(n=60)
    tagger = ExactTagger()
    for row, labels in zip(x, y, strict=True):
        tagger.partial_fit(row[None], labels[None])
    np.testing.assert_allclose(tagger.coef_, ExactTagger().fit(x, y).coef_, rtol=1e-8)


@pytest.mark.parametrize("dimensions", [256, 3])
def test_merged_taggers_are_one_tagger_on_all_rows(dimensions):
    x, y = problem()
    first = ExactTagger(dimensions=dimensions).fit(x[:100], y[:100, :2], classes=["a", "b"])
    other = first.spawn()
    assert other.learner_.sums.total.count == 0
    other.partial_fit(x[100:], y[100:, 1:3], classes=["b", "c"])
    once = first.spawn().partial_fit(x[:100], y[:100, :2], classes=["a", "b"])
    once.partial_fit(x[100:], y[100:, 1:3], classes=["b", "c"])
    kept = state(other)
    merged = first.merge(other)
    assert merged is first
    assert unchanged(other, kept)
    assert merged.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(merged.coef_, once.coef_, rtol=1e-9)


def test_without_a_projection_any_two_taggers_merge():
    x, y = problem()
    merged = ExactTagger().fit(x[:100], y[:100]).merge(ExactTagger().fit(x[100:], y[100:]))
    np.testing.assert_allclose(merged.coef_, ExactTagger().fit(x, y).coef_, rtol=1e-8)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda x, y: object(), "other is a object; expected an ExactTagger"),
        (lambda x, y: ExactTagger().fit(x[:, :3], y), "other has 3 features, but this tagger has 4"),
        (lambda x, y: ExactTagger(dimensions=3).fit(x[:50], y[:50]), "different feature maps"),
        (lambda x, y: ExactTagger(dimensions=2).fit(x, y), "different feature maps"),
        (lambda x, y: ExactTagger().fit(x, y), "different feature maps"),
        (
            lambda x, y: ExactTagger(dimensions=3).fit(x, y, classes=list("abcd")),
            "names of one type were expected",
        ),
    ],
)
def test_taggers_that_do_not_go_together_are_refused(other, sentence):
    x, y = problem()
    tagger = ExactTagger(dimensions=3).fit(x, y)
    before = state(tagger)
    with pytest.raises(InputError, match=sentence):
        tagger.merge(other(x, y))
    assert unchanged(tagger, before)


def test_forgotten_rows_were_never_seen():
    x, y = problem()
    tagger = fitted().forget(x[120:150], y[120:150, 1:], classes=["c1", "c2", "c3"])
    never = ExactTagger().partial_fit(x[:120], y[:120, :2], classes=["c0", "c1"])
    never.partial_fit(x[150:], y[150:, 1:], classes=["c1", "c2", "c3"])
    np.testing.assert_allclose(tagger.coef_, never.coef_, rtol=1e-9)


def test_rows_that_were_not_learnt_are_refused_and_nothing_changes():
    x, y = problem()
    tagger = fitted()
    before = state(tagger)
    for rows, labels, classes, sentence in (
        (x, y[:, :1], ["c0"], "120 rows were learnt, but 240 are to be forgotten"),
        (100 + x[:1], y[:1, :1], ["c0"], "these rows were not learnt"),
        (x[:1], y[:1, :1], ["new"], "only these are known"),
        (x[:120], 1 - y[:120, :2], ["c0", "c1"], "rows positive for 'c0'"),
    ):
        with pytest.raises(InputError, match=sentence):
            tagger.forget(rows, labels, classes=classes)
        assert unchanged(tagger, before)


def test_removed_and_renamed_classes():
    x, y = problem()
    tagger = fitted()
    scores = tagger.decision_function(x)
    tagger.rename({"c0": "zero", "c3": "c0"})
    assert tagger.classes_.tolist() == ["zero", "c1", "c2", "c0"]
    assert np.array_equal(tagger.decision_function(x), scores)
    tagger.remove("c1")
    assert tagger.classes_.tolist() == ["zero", "c2", "c0"]
    never = ExactTagger(ridge=1.0).partial_fit(x[:120], y[:120, :1], classes=["zero"])
    never.partial_fit(x[120:], y[120:, 2:], classes=["c2", "c0"])
    np.testing.assert_allclose(tagger.set_params(ridge=1.0).coef_, never.coef_, rtol=1e-9)
    with pytest.raises(InputError, match="label is 'c1'; expected one of"):
        tagger.remove("c1")
    with pytest.raises(InputError, match="'c2' twice"):
        tagger.rename({"zero": "c2"})
    with pytest.raises(InputError, match="label is 'none'"):
        tagger.rename({"none": "c9"})
    assert tagger.classes_.tolist() == ["zero", "c2", "c0"]


@pytest.mark.parametrize("dimensions", [256, 3])
@pytest.mark.parametrize("ending", ["", ".safetensors"])
def test_a_loaded_tagger_is_equal_and_continues_as_the_original(tmp_path, dimensions, ending):
    x, y = problem()
    tagger = fitted(dimensions=dimensions, random_state=np.random.RandomState(1))
    path = tmp_path / f"tagger{ending}"
    tagger.save(path)
    loaded = ExactTagger.load(str(path))
    assert loaded.get_params() == tagger.get_params() | {"random_state": None}
    assert loaded.nbytes_ == tagger.nbytes_
    for one in (tagger, loaded):
        one.partial_fit(x, y[:, [1, 0]], classes=["c1", "c0"]).partial_fit(x, y[:, 3:], classes=["new"])
    assert loaded.classes_.tolist() == tagger.classes_.tolist() == ["c0", "c1", "c2", "c3", "new"]
    assert np.array_equal(loaded.decision_function(x), tagger.decision_function(x))


def test_saving_overwrites_only_on_request(tmp_path):
    path = tmp_path / "mine.safetensors"
    path.write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        fitted().save(path)
    assert path.read_text() == "precious"
    fitted().save(path, overwrite=True)
    assert ExactTagger.load(path).n_features_in_ == 4


def rewritten(path, **changes):
    """Change arrays or the header of a saved tagger, without its checksum."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["mlcl"])
    arrays = load_file(path)
    save_file({**arrays, **changes.pop("arrays", {})}, path, {"mlcl": json.dumps({**header, **changes})})


def test_files_of_another_kind_or_corrupt_raise_one_sentence(tmp_path):
    path = tmp_path / "file.safetensors"
    with pytest.raises(InputError, match="No such file"):
        ExactTagger.load(path)
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(InputError, match="or corrupt: "):
        ExactTagger.load(path)
    save_file({"a": np.zeros(2)}, path)
    with pytest.raises(InputError, match="but not one of an ExactTagger"):
        ExactTagger.load(path)
    for changes, sentence in (
        ({"version": 9}, "format version 9, but this mlcl reads 1"),
        ({"classes": ["x", "y", "z", "w"]}, "checksum"),
        ({"params": {}}, "checksum"),
        ({"arrays": {"sums.counts": np.zeros(3)}}, "checksum"),
    ):
        fitted().save(path, overwrite=True)
        rewritten(path, **changes)
        with pytest.raises(InputError, match=sentence):
            ExactTagger.load(path)


@given(st.data())
@settings(max_examples=25)
def test_a_changed_byte_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("saved") / "tagger.safetensors"
    fitted().save(path)
    good = bytearray(path.read_bytes())
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(good))
    with pytest.raises(InputError):
        ExactTagger.load(path)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.nan, "NaN"),
        (np.inf, "infinity"),
        (-np.inf, "infinity"),
        (1e155, r"1e\+155"),
        (-2e40, r"-2e\+40"),
    ],
)
def test_values_that_cannot_be_summed_in_squares_are_named(value, kind):
    x, y = problem()
    tagger = ExactTagger().fit(x, y)
    before = state(tagger)
    bad = x.astype(np.float64)
    bad[7, 2] = value
    for rows in (bad, sparse.csr_matrix(bad)):
        with pytest.raises(InputError, match=f"X contains {kind} at row 7, column 2"):
            tagger.partial_fit(rows, y)
        with pytest.raises(InputError, match=f"X contains {kind} at row 7, column 2"):
            tagger.predict(rows)
        with pytest.raises(InputError, match=f"X contains {kind} at row 7, column 2"):
            tagger.forget(rows, y)
        with pytest.raises(InputError, match=f"X contains {kind} at row 7, column 2"):
            tagger.fit(rows[:, :3], y)
        assert tagger.n_features_in_ == 4  # of the state, not of the rows that were refused
    assert unchanged(tagger, before)
    with pytest.raises(InputError, match=f"X contains {kind} at row 7, column 2"):
        (fresh := ExactTagger()).fit(bad, y)
    assert not hasattr(fresh, "n_features_in_")


@given(st.integers(0, 10**6), st.sampled_from([None, 3]), st.booleans(), st.booleans())
@settings(max_examples=50, deadline=None)
def test_no_accepted_input_has_sums_or_scores_that_are_not_finite(seed, dimensions, weighted, narrow):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((40, 6)), rng.random((40, 2)) < 0.4
    y[:2] = [[True, True], [False, False]]
    # Columns and rows of any size that is accepted, the largest among them; the second part beside a map of the first.
    low, high = (-5, 5) if narrow else (-60, 42)
    x = np.clip(x * 10.0 ** rng.uniform(low, high, (1, 6)) * 10.0 ** rng.uniform(-3, 3, (40, 1)), -1e40, 1e40)
    if not narrow:
        x[20:, rng.integers(6)] = 1e40 * rng.choice([-1.0, 1.0], 20)
    weights = 10.0 ** rng.uniform(-3, 4 if narrow else 40, 40) if weighted else None
    tagger = ExactTagger(dimensions=dimensions)
    for part in (slice(0, 20), slice(20, 40)):
        own = None if weights is None else weights[part]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # components that 20 rows do not determine
            try:
                tagger.partial_fit(x[part], y[part].astype(int), sample_weight=own)
            except InputError:  # digits would be lost
                return
        sums = tagger.learner_.sums
        for moments in (sums.total, *sums.annotated, *sums.positive):
            assert np.isfinite(moments.count)
            assert np.isfinite(moments.sum).all()
            assert np.isfinite(moments.second).all()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes without positives so far
            assert np.isfinite(tagger.predict_proba(x)).all()


def test_a_column_that_hardly_varied_at_first_cannot_overflow_later():
    x, y = problem()
    x = x.astype(np.float64)
    small = x[:120] * np.where(np.arange(x.shape[1]) == 1, 1e-160, 1.0)
    with pytest.raises(InputError, match=r"column 1 by .*e-16., of which nothing would be left"):
        ExactTagger(dimensions=3).fit(small, y[:120])
    small = x[:120] * np.where(np.arange(x.shape[1]) == 1, 1e-11, 1.0)
    tagger = ExactTagger(dimensions=3).fit(small, y[:120])
    x[120:, 1] = 1e40
    with pytest.raises(InputError, match=r"at row 0, column 1, .*; expected values of one scale"):
        tagger.partial_fit(x[120:], y[120:])
    assert np.isfinite(tagger.learner_.sums.total.second).all()


def test_other_bad_input_is_refused_and_nothing_changes():
    x, y = problem()
    tagger = ExactTagger().fit(x, y)
    before = state(tagger)
    for call, sentence in (
        (lambda: tagger.partial_fit(x[:, :3], y), "X has 3 features, but ExactTagger is expecting 4"),
        (lambda: tagger.partial_fit(x, 2 * y), "y has the value 2"),
        (lambda: tagger.partial_fit(x, y[:5]), "y has 5 rows and X has 240"),
        (lambda: tagger.partial_fit(x, y, annotated=y[:, :2]), r"annotated has shape \(240, 2\)"),
        (lambda: tagger.partial_fit(x, y, annotated=y + 1), "expected booleans of the shape of y"),
        (lambda: tagger.partial_fit(x, y, sample_weight=-np.ones(240)), "[Nn]egative"),
        (
            lambda: tagger.partial_fit(x, y, sample_weight=np.where(np.arange(240) == 9, 1e200, 1.0)),
            r"sample_weight contains 1e\+200 at row 9; expected finite numbers of at most 1e\+40",
        ),
        (lambda: tagger.partial_fit(x, y, classes=["a"]), "names of one type"),
        (lambda: tagger.partial_fit(x, None), "requires y to be passed"),
        (lambda: tagger.score(x, y, classes=[7, 8, 9, 10]), "only these are known"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
        assert unchanged(tagger, before)


def test_a_failed_fit_leaves_a_tagger_that_works():
    x, y = problem()
    tagger = ExactTagger().fit(x, y)
    expected = tagger.predict(x)
    with pytest.raises(InputError, match="y has the value 2"):
        tagger.fit(x[:, :2], 2 * y)
    assert np.array_equal(tagger.predict(x), expected)


def test_a_class_without_positives_or_negatives_scores_its_prior_and_is_named_once():
    x, y = problem()
    y[:, 1], y[:, 2] = 0, 1
    tagger = ExactTagger().fit(x, y)
    with pytest.warns(UserWarning, match=r"the classes \[1, 2\] have no positive or no negative row"):
        probabilities = tagger.predict_proba(x)
    np.testing.assert_allclose(probabilities[:, 1], 0.5 / 241, rtol=1e-9)
    np.testing.assert_allclose(probabilities[:, 2], 240.5 / 241, rtol=1e-9)
    assert not tagger.predict(x)[:, 1].any()
    assert tagger.predict(x)[:, 2].all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger.partial_fit(x[:9], y[:9]).predict(x)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_strange_features_give_finite_results(scale):
    x, y = problem()
    x = scale * np.column_stack([x, np.full(240, 3.0), x[:, 0], np.zeros(240)]).astype(np.float64)
    for rows, labels in ((x, y), (x[:3], y[:3]), (x[:1], y[:1]), (np.repeat(x[:1], 9, 0), y[:9])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dimensions in (256, 3):
                tagger = ExactTagger(dimensions=dimensions).fit(rows, labels)
                assert np.isfinite(tagger.decision_function(x)).all()
                assert np.isfinite(tagger.predict_proba(x)).all()
                assert tagger.predict(x).shape == y.shape
    good = ExactTagger().fit(x, y)
    assert good.score(x, y) > 0.9


def test_fewer_first_rows_than_dimensions_are_said_and_learnt_from():
    rng = np.random.default_rng(0)
    y = rng.random((300, 2)) < 0.4
    x = y @ rng.normal(size=(2, 40)) + rng.normal(size=(300, 40))
    tagger = ExactTagger(dimensions=20)
    with pytest.warns(UserWarning, match="has 5 rows, which determine 4 of 20 principal components"):
        tagger.partial_fit(x[:5], y[:5])
    assert tagger.partial_fit(x[5:], y[5:]).score(x, y) > 0.9
