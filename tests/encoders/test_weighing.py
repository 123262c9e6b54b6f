"""Weights of joined encoders against ridge regression in the open, and where the choice is known."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from mlcl.datasets import plan_source
from mlcl.encoders import Join, Words, from_bytes, join, weighed, weighing
from mlcl.metrics import macro_auc

COLOURS, OTHERS = [f"colour{k}" for k in range(6)], [f"word{k}" for k in range(300)]


def material(rows, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random((rows, len(COLOURS))) < 0.3).astype(np.uint8)
    texts = [
        " ".join([*(COLOURS[k] for k in np.flatnonzero(one)), *rng.choice(OTHERS, 12)]) for one in labels
    ]
    flipped = rng.random(labels.shape) < 0.2  # nobody is always right
    return texts, np.where(flipped, 1 - labels, labels).astype(np.uint8)


def parts(texts):
    """Words that say the labels, and words hashed so narrowly that they say little."""
    plain = Words.fit([" ".join(COLOURS)], words=6, hashed=0)
    return plain, Words.fit(texts, words=0, hashed=64)


def test_what_says_little_weighs_little_and_what_says_all_much():
    texts, labels = material(400)
    telling, noise = parts(texts)
    assert weighed(join(telling, noise), texts, labels).weights[1] < 1
    assert weighed(join(noise, telling), texts, labels).weights[1] > 1


def test_the_dual_form_is_ridge_regression_on_rows_side_by_side(monkeypatch):
    texts, labels = material(120)
    apart, weight, ridge = np.arange(120) >= 80, 4.0, 0.1
    encoders = parts(texts)
    rows = [np.asarray(one.encode(texts).todense(), np.float64) for one in encoders]
    products = [weighing._products(one.encode(texts), apart) for one in encoders]
    monkeypatch.setattr(weighing, "RIDGES", [ridge])
    seen = np.ones_like(labels[apart], np.bool_)
    monkeypatch.setattr(weighing, "average_precision", macro_auc)
    found = weighing._worth(
        products, [1.0, weight], labels[~apart].astype(float), labels[apart] > 0, seen, apart
    )

    # The exact learner's penalty: a weight multiplies a part, and the ridge of a column is the root of its variance.
    z = np.hstack([rows[0], weight * rows[1]])
    deviation = z[~apart].std(0)
    z = np.divide(z, np.sqrt(deviation), out=np.zeros_like(z), where=deviation > 0)
    level = np.square(z[~apart] - z[~apart].mean(0)).sum() / 80
    fitted = Ridge(alpha=ridge * level).fit(z[~apart], labels[~apart])
    assert found == pytest.approx(macro_auc(fitted.predict(z[apart]), labels[apart]), abs=1e-9)


def test_unknown_labels_say_nothing_and_groups_stay_together():
    texts, labels = material(300)
    both = join(*parts(texts)[::-1])
    known = np.ones(labels.shape, np.bool_)
    known[:, 1:] = False
    spoiled = np.where(known, labels, 1 - labels)
    assert weighed(both, texts, labels, known).weights == weighed(both, texts, spoiled, known).weights
    one_group = weighed(both, texts, labels, groups=["all"] * 300)  # nothing is left to choose on
    assert one_group.weights == both.weights


def test_a_table_is_read_with_weights_that_fit_its_tags(tmp_path):
    texts, labels = material(400)
    lines = [
        f"{text},{'|'.join(COLOURS[k] for k in np.flatnonzero(one))}"
        for text, one in zip(texts, labels, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["text,tags", *lines]))
    spec = "words,words=0,hashed=64+words,words=6,hashed=0"
    plan = plan_source("table", tmp_path / "t.csv", encoder=spec)
    encoder = from_bytes(plan.encoder)
    assert isinstance(encoder, Join)
    assert encoder.weights[1] > 1
    assert plan.options["weights"] == list(encoder.weights)
