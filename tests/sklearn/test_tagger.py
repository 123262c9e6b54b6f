"""ContinualTagger: scikit-learn's contract, what a call means, and that nothing is lost on disk."""

from __future__ import annotations

import copy
import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from estimator_checks import EXCEPTIONS
from mlcl.config.schema import TrainConfig
from mlcl.errors import InputError
from mlcl.labels import LabelCounts
from mlcl.losses import margin_loss
from mlcl.metrics import macro_auc
from mlcl.seeds import derive_seed, numpy_generator
from mlcl.sklearn import ContinualTagger
from mlcl.sklearn.learning import Settings, begin, learn, new_network
from mlcl.training.batches import plan_epoch
from mlcl.training.optimisation import TrainingError

SMALL = {"hidden": 16, "depth": 1, "epochs": 4, "memory_size": 40, "random_state": 0}


def problem(n=240, classes=4, *, seed=0, noise=0.4):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, classes)) < np.linspace(0.5, 0.2, classes)).astype(np.uint8)
    return (y + noise * rng.standard_normal(y.shape)).astype(np.float32), y


def taught(*, calls=2, **params):
    x, y = problem()
    tagger = ContinualTagger(**SMALL | params)
    for call in range(calls):
        tagger.partial_fit(x, y[:, 2 * call : 2 * call + 2], classes=[f"c{2 * call}", f"c{2 * call + 1}"])
    return tagger


@pytest.mark.parametrize("model", ["mlp", "linear"])
def test_scikit_learns_checks(model):
    """All pass but those listed, and those listed do fail: a check that begins to pass must leave the list."""
    tagger = ContinualTagger(epochs=1, model=model)
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
    """What check_estimators_dtypes asks, with labels that are labels."""
    x, y = problem()
    tagger = ContinualTagger(**SMALL).fit((10 * x).astype(dtype), y)
    assert tagger.predict((10 * x).astype(dtype)).shape == y.shape


def test_another_number_of_features_is_refused_in_every_method():
    """What check_n_features_in_after_fitting and check_estimators_partial_fit_n_features ask."""
    x, y = problem()
    tagger = ContinualTagger(**SMALL).partial_fit(x, y)
    for method in ("predict", "decision_function", "predict_proba"):
        with pytest.raises(ValueError, match="X has 3 features, but ContinualTagger is expecting 4"):
            getattr(tagger, method)(x[:, :3])
    for method in ("partial_fit", "score"):
        with pytest.raises(ValueError, match="X has 3 features, but ContinualTagger is expecting 4"):
            getattr(tagger, method)(x[:, :3], y)


def test_outputs_agree():
    """What check_decision_proba_consistency and check_classifiers_train ask: one order, one threshold."""
    tagger, (x, y) = taught(), problem(seed=1)
    decision, probability = tagger.decision_function(x), tagger.predict_proba(x)
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-decision)), rtol=1e-12)
    assert np.array_equal(tagger.predict(x), probability > 0.5)
    assert tagger.score(x, y) == macro_auc(decision, y) > 0.85


def test_names_follow_their_columns():
    x, y = problem()
    tagger = ContinualTagger(**SMALL)
    tagger.partial_fit(x, y[:, [2, 0]], classes=["two", "zero"])
    tagger.partial_fit(x, y[:, [1, 2, 3]], classes=np.array(["one", "two", "three"]))
    assert tagger.classes_.tolist() == ["two", "zero", "one", "three"]
    test, truth = problem(seed=1)
    columns = [2, 0, 1, 3]
    assert tagger.score(test, truth[:, columns]) > 0.85
    assert tagger.score(test, truth[:, columns]) == tagger.score(
        test, truth, classes=["zero", "one", "two", "three"]
    )
    decision = tagger.decision_function(test)
    assert tagger.score(test, truth[:, [3]], classes=["three"]) == macro_auc(decision[:, [3]], truth[:, [3]])


def test_kinds_of_labels_are_one():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x, y = problem()

    class Frame:
        columns = ("a", "b", "c", "d")

        def __array__(self, dtype=None, copy=None):
            return y.astype(object)

    expected = ContinualTagger(**SMALL).fit(x, y, classes=["a", "b", "c", "d"]).decision_function(x)
    for labels, names in (
        (y.tolist(), ("a", "b", "c", "d")),
        (scipy_sparse.csr_matrix(y), ["a", "b", "c", "d"]),
        (torch.from_numpy(y).float(), np.array(["a", "b", "c", "d"])),
        (Frame(), None),
        (Frame(), list("abcd")),
    ):
        tagger = ContinualTagger(**SMALL).fit(x, labels, classes=names)
        assert tagger.classes_.tolist() == list("abcd")
        assert np.array_equal(tagger.decision_function(x), expected)
    sets = [{name for name, one in zip("abcd", row, strict=True) if one} for row in y]
    binarizer = MultiLabelBinarizer()
    tagger = ContinualTagger(**SMALL).fit(x, binarizer.fit_transform(sets), classes=binarizer.classes_)
    assert np.array_equal(tagger.decision_function(x), expected)


def test_without_names_columns_are_numbers_and_stay():
    x, y = problem()
    tagger = ContinualTagger(**SMALL).partial_fit(x, y)
    assert tagger.classes_.tolist() == [0, 1, 2, 3]
    assert len(tagger.partial_fit(x, y).memory_.tasks) == 1
    assert tagger.partial_fit(x, y[:, :1], classes=[7]).classes_.tolist() == [0, 1, 2, 3, 7]


def test_one_call_against_an_explicit_loop():
    """The weights after two calls are those of a loop written out: every loss by itself, group by group."""
    x, y = problem()
    train = TrainConfig(epochs=2, batch_size=16, lr=0.1, weight_decay=0.0)
    how = Settings({"kind": "mlp", "hidden": 8, "depth": 1}, 30, 0.7, train)
    first = learn(begin(x, how, seed=3), x, y[:, :2], np.array([0, 1]), classes=2, settings=how)
    second = learn(first, x, y[:, [0, 2]], np.array([0, 2]), classes=3, settings=how)
    third = learn(second, x, y[:, [3]], np.array([3]), classes=4, settings=how)

    network = copy.deepcopy(third.network)
    wide = {**second.network.state_dict()}
    # The weights that the third call began with: old rows, and the row of a fresh network for the new class.
    fresh = new_network(how.model, 4, 4, derive_seed(3, "model", 2)).state_dict()
    for name in ("head.linear.weight", "head.linear.bias"):
        wide[name] = torch.cat([wide[name], fresh[name][3:]])
    network.load_state_dict(wide)
    stored = second.inputs
    labels = {0: np.zeros((len(stored), 4)), 1: np.zeros((len(stored), 4))}
    for part in second.memory.tasks:
        labels[part.task][np.ix_(part.rows, part.classes)] = part.labels
    positive = torch.tensor(
        [int(y[:, 0].sum()) * 2, int(y[:, 1].sum()), int(y[:, 2].sum()), int(y[:, 3].sum())]
    )
    total = torch.tensor([2 * len(x), len(x), len(x), len(x)])
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    mean, deviation = x.astype(np.float64).mean(0), x.astype(np.float64).std(0)
    for epoch in range(2):
        for group in optimiser.param_groups:
            group["lr"] = (
                0.1 * 0.4**epoch
            )  # of two epochs, 3/8 are over after the first, 5/8 after the second
        plan = plan_epoch(
            len(stored) + np.arange(len(x)), second.memory, numpy_generator(3, "batches", 2, epoch),
            task=2, batch_size=16, memory_batch=16, sampling="uniform",
        )  # fmt: skip
        for step in range(len(plan)):
            rows, tasks, _ = plan.step(step)
            loss = torch.zeros(())
            for task, weight, columns in ((2, 1.0, [3]), (0, 0.5, [0, 1]), (1, 0.5, [0, 2])):
                mine = rows[tasks == task]
                raw = x[mine - len(stored)] if task == 2 else stored[mine]
                truth = y[mine - len(stored)] if task == 2 else labels[task][mine]
                logits = network(torch.from_numpy((raw - mean) / deviation).float())[:, columns]
                one = margin_loss(
                    logits, torch.from_numpy(truth[:, columns].astype(np.float32)),
                    positive[columns], (total - positive)[columns], margin=0.7, reweight="batch",
                )  # fmt: skip
                loss = loss + weight * one
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(third.network.state_dict()[name], value, rtol=2e-3, atol=2e-4)


@pytest.mark.slow
def test_replay_holds_what_was_learnt():
    """Calls on inputs that mean something else: without a memory the old classes are forgotten."""
    x, y = problem(400)
    flipped = -x  # the second call's inputs undo what the shared layer has learnt
    test, truth = problem(400, seed=1)
    kept = {}
    for size in (0, 100):
        tagger = ContinualTagger(hidden=8, depth=1, epochs=15, memory_size=size, random_state=0)
        tagger.partial_fit(x, y[:, :2], classes=["a", "b"]).partial_fit(flipped, y[:, 2:], classes=["c", "d"])
        kept[size] = tagger.score(test, truth[:, :2], classes=["a", "b"])
        assert tagger.score(-test, truth[:, 2:], classes=["c", "d"]) > 0.9
    assert kept[100] > 0.9 > kept[0] + 0.02


@pytest.mark.slow
def test_what_is_not_annotated_is_unknown_and_not_negative():
    x, y = problem(400)
    test, truth = problem(400, seed=1)
    honest, false = (
        ContinualTagger(**SMALL | {"memory_size": 0, "epochs": 20}).partial_fit(
            x, y[:, :2], classes=["a", "b"]
        )
        for _ in range(2)
    )
    before = honest.predict_proba(test)[truth[:, 0] == 1, 0].mean()
    honest.partial_fit(x, y[:, 2:3], classes=["c"])
    false.partial_fit(x, np.c_[np.zeros(len(x)), y[:, 2]], classes=["a", "c"])
    assert honest.predict_proba(test)[truth[:, 0] == 1, 0].mean() > 0.7 * before
    assert false.predict_proba(test)[truth[:, 0] == 1, 0].mean() < 0.7 * before


def test_a_label_set_that_comes_again_goes_on():
    """Its counts add up, and its stored rows come from both calls in proportion, whatever the order of columns."""
    x, y = problem(600)
    x[:, 0] = np.arange(600)  # who a row is
    tagger = ContinualTagger(**SMALL | {"epochs": 1, "memory_size": 60})
    tagger.partial_fit(x[:200], y[:200, :2], classes=["a", "b"])
    tagger.partial_fit(x[:200], y[:200, 2:3], classes=["c"])
    tagger.partial_fit(x[200:], y[200:, [1, 0]], classes=["b", "a"])
    again = next(part for part in tagger.memory_.tasks if part.task == 0)
    assert again.counts == LabelCounts.of(y[:, :2])
    who = tagger.memory_inputs_[again.rows, 0].astype(int)
    assert np.array_equal(again.labels, y[who][:, :2])
    assert len(set(who)) == len(who) == 30
    assert 3 <= (who < 200).sum() <= 17  # a third of 30, within chance
    np.testing.assert_allclose(again.labels.mean(0), y[:, :2].mean(0), atol=0.05)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=5),
    st.integers(0, 25),
    st.integers(0, 2**31),
)
def test_memory_and_counts_after_any_calls(label_sets, size, seed):
    """Never more rows than allowed, each with its own labels, and counts over exactly what was annotated."""
    rng = np.random.default_rng(seed)
    tagger = ContinualTagger(model="linear", epochs=1, memory_size=size, random_state=0)
    seen, counted = [], {}
    for ids in label_sets:
        columns = rng.permutation(sorted(ids))
        x = rng.random((12, 3)).astype(np.float32)
        x[:, 0] = np.arange(12) + 12 * len(seen)
        y = rng.integers(0, 2, (12, 5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tagger.partial_fit(x, y[:, columns], classes=[int(k) for k in columns])
        seen.append(y)
        for k in columns:
            counted[int(k)] = counted.get(int(k), 0) + y[:, k].sum()
    truth, names = np.concatenate(seen), tagger.classes_
    memory, rows = tagger.memory_, tagger.memory_inputs_
    assert len(memory) == len(rows) <= size
    assert len(memory) == min(size, 12 * len(seen))
    assert np.array_equal(memory.rows, np.arange(len(rows)))
    for part in memory.tasks:
        who = rows[part.rows, 0].astype(int)
        assert np.array_equal(part.labels, truth[who][:, names[part.classes].astype(int)])
        assert {int(names[k]) for k in part.classes} == label_sets[who[0] // 12] if len(who) else True
    assert {int(n): int(p) for n, p in zip(names, tagger._learnt.counts.positive, strict=True)} == counted
    assert len(memory.tasks) == len({frozenset(ids) for ids in label_sets})


def test_probabilities_know_how_rare_a_class_is():
    """Two Gaussians: the true probability is known. The loss alone would say it as if the class were common."""
    rng = np.random.default_rng(0)
    y = (rng.random((4000, 1)) < 0.1).astype(int)
    x = rng.standard_normal((4000, 1)) + 2 * y
    tagger = ContinualTagger(model="linear", margin=0.0, batch_size=200, random_state=0).fit(x, y)
    grid = np.linspace(-1, 3, 9)[:, None]
    true = 1 / (1 + np.exp(-(2 * grid - 2 + np.log(1 / 9))))
    np.testing.assert_allclose(tagger.predict_proba(grid), true, atol=0.06)
    assert abs(tagger.predict_proba(x).mean() - 0.1) < 0.02


def test_calls_repeat_exactly_and_seeds_differ():
    x, _ = problem(seed=1)
    one = taught().decision_function(x)
    assert np.array_equal(one, taught().decision_function(x))
    assert not np.array_equal(one, taught(random_state=1).decision_function(x))
    states = [taught(random_state=np.random.RandomState(5)).decision_function(x) for _ in range(2)]
    assert np.array_equal(*states)
    assert not np.array_equal(*(taught(random_state=None).decision_function(x) for _ in range(2)))


def test_fit_forgets():
    x, y = problem()
    tagger = taught().fit(x, y[:, :1], classes=["new"])
    fresh = ContinualTagger(**SMALL).fit(x, y[:, :1], classes=["new"])
    assert tagger.classes_.tolist() == ["new"]
    assert np.array_equal(tagger.decision_function(x), fresh.decision_function(x))


def test_a_call_that_fails_changes_nothing():
    x, y = problem()
    tagger = taught()
    before = tagger.decision_function(x)
    tagger.set_params(lr=1e30)
    with pytest.raises(TrainingError, match="nothing was learnt from this call"):
        tagger.partial_fit(x, y[:, :1], classes=["new"])
    with pytest.raises(InputError):
        tagger.set_params(lr=0.1).partial_fit(x, y[:, :1] + 1, classes=["new"])
    assert tagger.classes_.tolist() == ["c0", "c1", "c2", "c3"]
    assert np.array_equal(tagger.decision_function(x), before)


def test_parameters():
    tagger = ContinualTagger(**SMALL)
    assert clone(tagger).get_params() == tagger.get_params()
    assert set(tagger.get_params()) == {
        "model", "hidden", "depth", "memory_size", "margin", "epochs", "batch_size", "lr", "weight_decay",
        "random_state",
    }  # fmt: skip


def test_the_memory_may_shrink_between_calls():
    x, y = problem()
    tagger = taught().set_params(memory_size=10)
    assert len(tagger.memory_) == 40
    assert len(tagger.partial_fit(x, y[:, :1], classes=["new"]).memory_inputs_) == 10


def test_in_a_search_and_in_a_pipeline():
    x, y = problem()
    search = GridSearchCV(ContinualTagger(**SMALL), {"model": ["mlp"], "lr": [1e-6, 0.05]}, cv=2).fit(x, y)
    assert search.best_params_["lr"] == 0.05
    pipeline = make_pipeline(StandardScaler(), ContinualTagger(**SMALL)).fit(x, y)
    assert pipeline.score(x, y) > 0.85
    assert cross_val_score(ContinualTagger(**SMALL), x, y, cv=2, scoring="roc_auc").mean() > 0.8


@pytest.mark.parametrize(
    ("labels", "classes", "sentence"),
    [
        (np.zeros(240), None, r"y has shape \(240,\), but a matrix"),
        (np.zeros((240, 2, 2)), None, r"y has shape \(240, 2, 2\)"),
        (np.zeros((3, 2)), ["a", "b"], "y has 3 rows and X has 240"),
        (np.full((240, 2), 0.5), ["a", "b"], "y has the value 0.5 at row 0, column 0"),
        (np.full((240, 2), np.nan), ["a", "b"], "y has the value nan at row 0, column 0"),
        ([["a"]] * 240, ["a"], "y has dtype <U1"),
        ([[0], [0, 1]] * 120, ["a"], "y is not a matrix of 0 and 1"),
        (np.zeros((240, 2)), ["a"], "classes has 1 names and y has 2 columns"),
        (np.zeros((240, 2)), ["a", "a"], "classes has the name 'a' twice"),
        (np.zeros((240, 2)), ["a", " "], "classes has the entry ' '"),
        (np.zeros((240, 2)), ["a", 3], "classes has the entry 3, but names of one kind"),
        (np.zeros((240, 2)), [1.5, 2.5], "classes has the entry 1.5"),
        (np.zeros((240, 2)), [-1, 2], "classes has the entry -1"),
        (np.zeros((240, 2)), "ab", "classes is 'ab', but a list of names"),
        (np.zeros((240, 0)), [], "at least one"),
        (None, None, "requires y to be passed"),
    ],
)
def test_bad_labels_are_told_in_a_sentence(labels, classes, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        ContinualTagger(**SMALL).partial_fit(problem()[0], labels, classes=classes)
    assert "\n" not in str(caught.value)


def test_names_that_do_not_fit_what_is_known():
    x, y = problem()
    tagger = taught()
    with pytest.raises(InputError, match="y has 2 columns without names and 4 classes are known"):
        tagger.partial_fit(x, y[:, :2])
    with pytest.raises(InputError, match="the entry 0, but names of one kind were expected, as the others"):
        tagger.partial_fit(x, y[:, :1], classes=[0])
    with pytest.raises(InputError, match=r"classes has \['who'\], but only these are known"):
        tagger.score(x, y[:, :1], classes=["who"])


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"model": "resnet8"}, "model is 'resnet8'"),
        ({"model": "linear", "hidden": 3}, "takes no option 'hidden'"),
        ({"hidden": 0}, "hidden is 0"),
        ({"depth": 1.5}, "depth is 1.5"),
        ({"memory_size": -1}, "memory_size is -1"),
        ({"margin": -1.0}, "margin is -1.0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": "32"}, "batch_size is '32'"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"weight_decay": -1}, "weight_decay is -1"),
    ],
)
def test_bad_parameters_are_told_in_a_sentence(params, sentence):
    x, y = problem()
    with pytest.raises(InputError, match=sentence):
        ContinualTagger(**{"random_state": 0} | params).fit(x, y)


def test_the_network_cannot_change_between_calls():
    x, y = problem()
    with pytest.raises(InputError, match="partial_fit began with"):
        taught().set_params(hidden=8).partial_fit(x, y[:, :1], classes=["new"])


def test_a_class_without_a_sign_is_named_and_learnt_later():
    x, y = problem()
    tagger = ContinualTagger(**SMALL)
    with pytest.warns(UserWarning, match=r"the classes \['b'\] have no positive or no negative row so far"):
        tagger.partial_fit(x, np.c_[y[:, 0], np.zeros(len(y))], classes=["a", "b"])
    assert np.isfinite(tagger.predict_proba(x)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger.partial_fit(x, y[:, :2], classes=["a", "b"])
    assert tagger.score(x, y[:, 1:2], classes=["b"]) > 0.85


# Saving


def test_a_saved_tagger_is_the_same_and_goes_on_as_if_it_had_stayed(tmp_path):
    x, y = problem()
    tagger = taught(random_state=np.random.RandomState(1))
    tagger.save(tmp_path / "tagger.safetensors")
    loaded = ContinualTagger.load(str(tmp_path / "tagger.safetensors"))
    assert np.array_equal(loaded.decision_function(x), tagger.decision_function(x))
    assert loaded.get_params() == tagger.get_params() | {"random_state": None}
    for one in (tagger, loaded):
        one.partial_fit(x, y[:, [1, 0]], classes=["c1", "c0"]).partial_fit(x, y[:, 3:], classes=["new"])
    assert loaded.classes_.tolist() == tagger.classes_.tolist() == ["c0", "c1", "c2", "c3", "new"]
    assert np.array_equal(loaded.decision_function(x), tagger.decision_function(x))
    assert np.array_equal(loaded.memory_inputs_, tagger.memory_inputs_)


def test_saving_overwrites_nothing_unasked(tmp_path):
    path = tmp_path / "mine"
    path.write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        taught().save(path)
    assert path.read_text() == "precious"
    taught().save(path, overwrite=True)
    assert ContinualTagger.load(path).classes_.tolist() == ["c0", "c1", "c2", "c3"]


def test_files_that_are_no_tagger_are_told_in_a_sentence(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(InputError, match="no such file"):
        ContinualTagger.load(path)
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(InputError, match="is no tagger, or damaged"):
        ContinualTagger.load(path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="but not one of a ContinualTagger"):
        ContinualTagger.load(path)


def test_damage_is_noticed(tmp_path):
    path = tmp_path / "tagger"
    taught().save(path)
    good = bytearray(path.read_bytes())
    good[-1] ^= 1
    path.write_bytes(good)
    with pytest.raises(InputError, match="its checksum is not that of its content"):
        ContinualTagger.load(path)


def header_of(path):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["mlcl"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("params", {"model": "linear", "hidden": 3}),
        ("params", {"unknown": 3}),
        ("params", None),
        ("classes", ["a"]),
        ("classes", ["c0", "c1", "c2", "c2"]),
        ("classes", [{}, 1, 2, 3]),
        ("label_sets", [[0, 1], [2, 9]]),
        ("label_sets", [[0, 1]]),
        ("model", {"kind": "mlp", "hidden": 17, "depth": 1}),
        ("model", {"kind": "resnet8"}),
        ("model", {"kind": "mlp", "hidden": 10**12, "depth": 1}),
        ("seed", -1),
        ("seed", "x"),
        ("calls", 0),
        ("total", 0),
        ("feature_names", ["a"]),
        ("sha256", "0" * 64),
    ],
)
def test_a_header_that_contradicts_its_tensors_is_refused(tmp_path, field, value):
    path = tmp_path / "tagger"
    taught().save(path)
    header, tensors = header_of(path), load_file(path)
    save_file(tensors, path, {"mlcl": json.dumps(header)})
    ContinualTagger.load(path)  # as it was, it can be read
    save_file(tensors, path, {"mlcl": json.dumps(header | {field: value})})
    with pytest.raises(InputError) as caught:
        ContinualTagger.load(path)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("tagger") / "good"
    taught(calls=1, model="linear", hidden=None, depth=None, memory_size=4).save(path)
    return path


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_bytes_load_or_are_refused(written, data):
    raw = bytearray(written.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    bad = written.with_name("bad")
    bad.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
    try:
        ContinualTagger.load(bad).predict(problem()[0])
    except InputError as error:
        assert "\n" not in str(error)
