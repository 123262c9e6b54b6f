"""The embedded digits: the same bytes everywhere, the long tail that was specified, disjoint handwriting."""

import hashlib
import os
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from mlcl.datasets import digits
from mlcl.datasets.digits import CLASSES, load_digits_dataset, make_digits
from mlcl.errors import InputError
from mlcl.files import cache_dir

STORED = ["dfa5259df432690f", "c04d8b9544adf759", "d36848937388a2ed", "db867c359eb8a751"]
TARGETS = 0.5 * 0.02 ** (np.array(digits._RANKS) / 19)  # by class


@pytest.fixture(scope="module")
def data():
    return make_digits()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path))
    return tmp_path


def test_the_same_bytes_on_every_machine(data):
    arrays = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    found = [hashlib.sha256(array.tobytes()).hexdigest()[:16] for array in arrays]
    assert found == STORED
    # A change of these is a change of the dataset: raise digits._RECIPE, or old cache files would be read.
    assert digits._RECIPE == 1


def test_shapes_and_names(data):
    assert data.train.inputs.shape == (6000, 3, 16, 16)
    assert data.test.inputs.shape == (2000, 3, 16, 16)
    assert data.train.inputs.dtype == np.uint8
    assert data.classes == CLASSES
    assert len(set(CLASSES)) == 20
    assert CLASSES[7] == "3-blue"


def test_one_to_four_labels(data):
    for split in (data.train, data.test):
        assert set(np.unique(split.labels.sum(axis=1))) == {1, 2, 3, 4}


def test_frequencies_have_the_long_tail(data):
    assert TARGETS.max() == 0.5
    assert TARGETS.min() == pytest.approx(0.01)
    for split in (data.train, data.test):
        spread = np.sqrt(TARGETS * (1 - TARGETS) / len(split))
        assert (np.abs(split.labels.mean(axis=0) - TARGETS) < 4 * spread).all()


def test_chances_give_the_targets_exactly():
    """Sum over all label sets of one to four classes, by size, class by class: no sampling."""
    chance = np.array(digits._CHANCES)[list(digits._RANKS)] / 1e6
    size = np.zeros((20, 2, 22))  # [class, has it, how many labels]: probability, for all 20 classes at once
    size[:, 0, 0] = 1
    for k, p in enumerate(chance):
        without, with_it = size * (1 - p), np.roll(size, 1, axis=2) * p
        with_it[k, 1] += with_it[k, 0]
        with_it[k, 0] = 0
        size = without + with_it
    kept = size[:, :, 1:5].sum(axis=2)
    np.testing.assert_allclose(kept[:, 1] / kept.sum(axis=1), TARGETS, rtol=1e-4)


def test_rarity_goes_neither_with_digit_nor_with_ink():
    assert sorted(digits._RANKS) == list(range(20))
    for feature in (np.arange(20) // 2, np.arange(20) % 2):
        assert abs(np.corrcoef(np.log(TARGETS), feature)[0, 1]) < 0.1


def test_the_cut_falls_between_two_forms():
    target = load_digits().target
    cut = digits._FIRST_TEST_ROW
    np.testing.assert_array_equal(target[cut : cut + 60], target[:60])  # the form's text starts again
    for part in (target[:cut], target[cut:]):
        assert np.bincount(part, minlength=10).min() > 40


def test_canvases_show_their_labels_with_the_handwriting_of_their_split(monkeypatch):
    """Without noise, every canvas must be redrawable from its labels and its own part's drawings."""
    monkeypatch.setattr(digits, "_PAPER", (200, 200))
    monkeypatch.setattr(digits, "_NOISE", 0)
    small = make_digits(train=60, test=60, seed=3)
    source = load_digits()
    cut = digits._FIRST_TEST_ROW
    for split, rows in ((small.train, slice(None, cut)), (small.test, slice(cut, None))):
        glyphs, target = source.images[rows].astype(int), source.target[rows]
        for image, label in zip(split.inputs.astype(int), split.labels, strict=True):
            # Ink k takes 88 of one channel and 8 of the other: solve for how far each ink covers each pixel.
            red, _, blue = 200 - image
            for ink, most, least in ((0, blue, red), (1, red, blue)):
                strong = most - least > 0
                assert strong.any() == label[ink::2].any()
            alone = np.flatnonzero(label)
            if len(alone) == 1:
                shown = np.maximum(red, blue)
                assert _is_drawn(shown, glyphs[target == alone[0] // 2])


def _is_drawn(shown, glyphs):
    """Whether ``shown`` [16, 16] is one of the drawings in some cell, shifted by up to a pixel."""
    frame = np.pad(shown, 1)
    for top in (0, 1, 2, 8, 9, 10):
        for left in (0, 1, 2, 8, 9, 10):
            rest = frame.copy()
            rest[top : top + 8, left : left + 8] = 0
            if rest.any():
                continue
            wanted = -(-88 * glyphs // 16)
            inside = np.zeros((18, 18), dtype=bool)
            inside[1:17, 1:17] = True
            inside = inside[top : top + 8, left : left + 8]
            if ((frame[top : top + 8, left : left + 8] == wanted) | ~inside).all(axis=(1, 2)).any():
                return True
    return False


def test_seeds_and_sizes():
    one, two = make_digits(train=30, test=10, seed=1), make_digits(train=30, test=10, seed=2)
    assert one.fingerprint != two.fingerprint
    assert one.fingerprint == make_digits(train=30, test=10, seed=1).fingerprint
    assert not np.array_equal(one.train.labels[:10], one.test.labels)
    assert len(make_digits(train=1, test=1).train) == 1


@pytest.mark.parametrize("options", [{"train": 0}, {"test": -1}, {"seed": -1}, {"train": 2.5}])
def test_bad_arguments_are_named(options):
    with pytest.raises(InputError, match=f"{next(iter(options))} is {next(iter(options.values()))}"):
        make_digits(**options)


def test_the_cache_is_written_and_read(home, monkeypatch):
    made = load_digits_dataset(train=40, test=20, seed=5)
    (file,) = home.iterdir()  # no temporary file is left
    monkeypatch.setattr(digits, "make_digits", None)  # must not be called again
    again = load_digits_dataset(train=40, test=20, seed=5)
    assert again.fingerprint == made.fingerprint
    np.testing.assert_array_equal(again.test.inputs, made.test.inputs)
    assert file.suffix == ".npz"


@pytest.mark.slow
@given(where=st.floats(0, 1), flip=st.integers(1, 255), cut=st.booleans())
@settings(deadline=None, max_examples=50)
def test_a_damaged_cache_is_made_again(where, flip, cut):
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setenv("MLCL_HOME", folder)
        expected = load_digits_dataset(train=3, test=2).fingerprint
        path = cache_dir() / f"digits-{digits._RECIPE}-3-2-0.npz"
        content = bytearray(path.read_bytes())
        at = min(int(where * len(content)), len(content) - 1)
        if cut:
            del content[at:]
        else:
            content[at] ^= flip
        path.write_bytes(content)
        again = load_digits_dataset(train=3, test=2)
        assert again.fingerprint == expected
        assert again.train.inputs.shape == (3, 3, 16, 16)


def test_a_cache_with_other_content_is_made_again(home):
    load_digits_dataset(train=3, test=2, seed=1)
    (path,) = home.iterdir()
    with np.load(path) as file:
        arrays = dict(file)
    arrays["y_train"] = 1 - arrays["y_train"]
    np.savez(path, **arrays)
    again = load_digits_dataset(train=3, test=2, seed=1)
    assert again.fingerprint == make_digits(train=3, test=2, seed=1).fingerprint


def test_no_place_for_a_cache_is_no_error(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("MLCL_HOME", str(blocked))
    assert len(load_digits_dataset(train=3, test=2).train) == 3


def test_a_failed_write_leaves_nothing_behind(home, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert len(load_digits_dataset(train=3, test=2).train) == 3
    assert list(home.iterdir()) == []
