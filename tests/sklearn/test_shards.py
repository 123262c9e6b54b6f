"""Learning over shards against one process that sees all rows, through kills at every moment."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import mlcl
import shard_files
from children import child, complete, wait_until
from mlcl.datasets.shards import shard_sha256
from mlcl.errors import InputError
from mlcl.exact.held_rows import held_out
from mlcl.files import FolderLock
from mlcl.metrics import macro_auc
from mlcl.sklearn import ExactTagger, shard_parts
from mlcl.sklearn import shards as shards_module
from mlcl.sklearn.shards import Stopped, learn_shards
from shard_files import Rows, distance, made_up, one_process, write_shard, write_shards

SHARDS = made_up(10)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, SHARDS)
    return folder


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The file that one process writes without any interruption."""
    return learn_shards(str(data), tmp_path_factory.mktemp("whole"), jobs=1).path


def test_the_result_is_that_of_one_process(data, whole):
    tagger, oracle = ExactTagger.load(whole), one_process(SHARDS)
    assert distance(tagger, oracle) < 1e-9
    assert tagger.learner_.sums.total.count == 400
    rows = np.concatenate([rows.vectors for rows in SHARDS])
    np.testing.assert_allclose(tagger.predict_proba(rows), oracle.predict_proba(rows)[:, :4], atol=1e-9)
    assert not (whole.parent / "parts").exists()
    loaded = mlcl.load(whole.parent)
    np.testing.assert_allclose(loaded.predict_proba(rows), oracle.predict_proba(rows)[:, :4], atol=1e-5)


@pytest.mark.slow
def test_order_and_number_of_workers_change_no_bit(data, whole, tmp_path):
    paths = sorted(map(str, data.iterdir()), reverse=True)
    for number, jobs in enumerate((1, 2, 4)):
        found = learn_shards(paths[number:] + paths[:number], tmp_path / str(jobs), jobs=jobs)
        assert found.path.read_bytes() == whole.read_bytes()


def test_new_shards_are_added_and_old_ones_are_not_counted_again(data, tmp_path):
    paths = sorted(map(str, data.iterdir()))
    first = learn_shards(paths[:4], tmp_path / "out", jobs=1)
    assert (first.shards, first.new, first.classes) == (4, 4, 3)
    again = learn_shards(paths[:4], tmp_path / "out", jobs=1)
    assert (again.shards, again.new, again.rows) == (4, 0, 160)
    more = learn_shards(paths, tmp_path / "out", jobs=1)
    assert (more.shards, more.new, more.rows, more.classes) == (10, 6, 400, 4)
    # The label of the last shard alone: rows that were counted before it was known are its negatives.
    assert distance(ExactTagger.load(more.path), one_process(SHARDS)) < 1e-9


def test_shards_at_addresses_of_fsspec(data, tmp_path):
    files = pytest.importorskip("fsspec").filesystem("memory")
    for path in sorted(data.iterdir()):
        files.pipe(f"/learnt/{path.name}", path.read_bytes())
    found = learn_shards("memory://learnt/*.parquet", tmp_path / "out", jobs=1)
    assert distance(ExactTagger.load(found.path), one_process(SHARDS)) < 1e-9
    assert learn_shards("memory://learnt", tmp_path / "out", jobs=1).new == 0
    files.pipe("/learnt/003.parquet", (data / "004.parquet").read_bytes())
    with pytest.raises(InputError, match=r"memory:///learnt/003\.parquet has changed since it was counted"):
        learn_shards("memory://learnt", tmp_path / "out", jobs=1)


@pytest.mark.slow
def test_a_kill_at_every_write_counts_every_shard_once(data, whole, tmp_path):
    """SIGKILL before and after each file gets its name; then the same call goes on."""
    done = complete(
        [sys.executable, shard_files.__file__, "kill", data, tmp_path],
        env={**os.environ, "PYTHONPATH": _path()},
    )
    assert done.returncode == 0, done.stderr
    kills = [line.split() for line in done.stdout.splitlines()]
    # Feature map, 10 groups, sums of 8 and 2 of them and of both, tagger, and the 7 files that verbs need beside it:
    # each before and after.
    assert [word for word, _ in kills] == ["killed"] * (2 * 22)
    for _, folder in kills:
        assert mlcl.load(folder).classes == mlcl.load(whole.parent).classes
        assert (Path(folder) / "tagger.safetensors").read_bytes() == whole.read_bytes()
        assert not (Path(folder) / "parts").exists()


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(data, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("SHARD_MARKS", str(tmp_path))
    monkeypatch.setattr(shards_module, "count_into", shard_files.die_once)
    found = learn_shards(str(data), tmp_path / "out", jobs=2)
    assert {path.name for path in tmp_path.glob("died-*")} == {"died-before", "died-after"}
    assert found.path.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_a_worker_that_dies_always_ends_in_a_sentence(data, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "count_into", shard_files.die)
    monkeypatch.setattr(shards_module, "ATTEMPTS", 2)
    with pytest.raises(Stopped, match=r"parquet could not be counted in 2 attempts: .*signal 9"):
        learn_shards(str(data), tmp_path / "out", jobs=2)
    monkeypatch.undo()
    assert learn_shards(str(data), tmp_path / "out", jobs=1).path.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_a_killed_driver_takes_its_workers_along_and_the_next_one_goes_on(data, whole, tmp_path):
    out = tmp_path / "out"
    with child(
        [sys.executable, shard_files.__file__, "stall", data, out], env={**os.environ, "PYTHONPATH": _path()}
    ) as driver:
        wait_until(lambda: len(list(out.glob("parts/*.safetensors"))) >= 3, driver)
        driver.kill()
        driver.wait()
        there = {path.name for path in out.glob("parts/*.safetensors")}
        assert 3 <= len(there) < 10
        # The lock was the driver's: the next one need not wait for anybody.
        found = learn_shards(str(data), out, jobs=1)
    assert found.new == 10
    assert found.path.read_bytes() == whole.read_bytes()


def test_a_full_disk_ends_in_a_sentence_and_the_next_call_goes_on(data, whole, tmp_path, monkeypatch):
    replace, calls = os.replace, []

    def fail(*names):
        calls.append(names)
        if len(calls) > 5:
            raise OSError(28, "No space left on device")
        replace(*names)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(Stopped, match=r"parts.*could not be written: No space left on device"):
        learn_shards(str(data), tmp_path / "out", jobs=1)
    monkeypatch.undo()
    assert learn_shards(str(data), tmp_path / "out", jobs=1).path.read_bytes() == whole.read_bytes()


def test_a_shard_that_changed_since_it_was_counted_is_refused(tmp_path):
    paths = write_shards(tmp_path / "data", SHARDS[:3])
    learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1)
    before = (tmp_path / "out" / "tagger.safetensors").read_bytes()
    os.utime(paths[1])  # only touched: its content is the same
    assert learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1).new == 0
    write_shard(paths[1], SHARDS[5])
    with pytest.raises(InputError, match=r"001\.parquet has changed since it was counted: .* fingerprint"):
        learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1)
    assert (tmp_path / "out" / "tagger.safetensors").read_bytes() == before
    assert learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1, overwrite=True).rows == 120


def test_the_same_content_counts_once_under_any_name(tmp_path):
    paths = write_shards(tmp_path / "data", SHARDS[:2])
    shutil.copy(paths[0], tmp_path / "data" / "copy.parquet")
    found = learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1)
    assert found.rows == 80
    assert found.duplicates == {str(tmp_path / "data" / "copy.parquet"): str(paths[0])}
    paths[1].rename(tmp_path / "data" / "moved.parquet")
    again = learn_shards(str(tmp_path / "data" / "moved.parquet"), tmp_path / "out", jobs=1)
    assert (again.new, list(again.duplicates.values())) == (0, [str(paths[1])])


def test_after_bad_input_the_good_shards_stay_counted(tmp_path):
    paths = write_shards(tmp_path / "data", SHARDS[:3])
    bad = SHARDS[1].vectors.copy()
    bad[17, 3] = np.nan
    write_shard(paths[1], Rows(bad, SHARDS[1].tags))
    with pytest.raises(InputError, match=r"001\.parquet has NaN in row 17, place 3 of column 'vector'"):
        learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1)
    assert len(list((tmp_path / "out" / "parts").iterdir())) == 1
    paths[1].unlink()  # left out: the part of the first shard has its place
    found = learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1)
    assert (found.shards, found.rows) == (2, 80)
    write_shard(paths[1], SHARDS[1])
    learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1)
    tagger = ExactTagger.load(tmp_path / "out" / "tagger.safetensors")
    assert distance(tagger, one_process(SHARDS[:3])) < 1e-9


def test_a_bad_first_shard_does_not_bind_the_folder(tmp_path):
    good = write_shards(tmp_path / "good", SHARDS[:2])
    wider = made_up(1, d=6)[0]
    bad = write_shard(tmp_path / "bad.parquet", wider, fixed=False)
    both = [str(bad), str(tmp_path / "good")]
    with pytest.raises(
        InputError, match=r"000\.parquet has vectors of length 5, but .*bad\.parquet has 6; .* shards$"
    ):
        learn_shards(both, tmp_path / "out", jobs=1)
    assert learn_shards(both[1], tmp_path / "out", jobs=1).rows == 80
    # Found only while counting, and with columns that were given otherwise.
    broken = wider.vectors.copy()
    broken[20, 1] = np.nan
    write_shard(bad, Rows(broken, wider.tags), fixed=False)
    with pytest.raises(InputError, match=r"bad\.parquet has NaN"):
        learn_shards(str(bad), tmp_path / "other", jobs=1, dimensions=3)
    assert (
        learn_shards(both[1], tmp_path / "other", jobs=1).path.read_bytes()
        == (tmp_path / "out" / "tagger.safetensors").read_bytes()
    )
    # Once it is counted, the sentence says what to do.
    write_shard(bad, wider, fixed=False)
    learn_shards(str(bad), tmp_path / "third", jobs=1)
    with pytest.raises(InputError, match=r"bad\.parquet has 6; .* or --overwrite to begin anew$"):
        learn_shards(str(good[0]), tmp_path / "third", jobs=1)


def test_annotated_labels_are_those_of_a_mask(tmp_path):
    rng = np.random.default_rng(3)
    shards, masks = [], []
    for rows in made_up(3, seed=1):
        mask = rng.random((40, 4)) < 0.7
        own = np.array([[name in row for name in shard_files.NAMES] for row in rows.tags])
        mask |= own
        mask[:5] = True
        listed = [[n for n, m in zip(shard_files.NAMES, row, strict=True) if m] for row in mask]
        shards.append(Rows(rows.vectors, rows.tags, [None, None, *listed[2:]]))
        masks.append(mask)
    write_shards(tmp_path / "data", shards)
    found = learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1)
    labels = [[int(n in row) for n in shard_files.NAMES] for rows in shards for row in rows.tags]
    vectors = np.concatenate([rows.vectors for rows in shards])
    oracle = ExactTagger().fit(vectors, np.array(labels), shard_files.NAMES, annotated=np.concatenate(masks))
    assert distance(ExactTagger.load(found.path), oracle) < 1e-9
    # Added in two steps, the rows that were annotated for everything are negatives of labels that come later.
    learn_shards(str(tmp_path / "data" / "000.parquet"), tmp_path / "two", jobs=1)
    again = learn_shards(str(tmp_path / "data"), tmp_path / "two", jobs=1)
    assert distance(ExactTagger.load(again.path), oracle) < 1e-9


def test_wide_vectors_are_projected_by_the_first_shard(tmp_path):
    shards = made_up(3, d=12, rows=60)
    write_shards(tmp_path / "data", shards)
    found = learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1, dimensions=6, unlabelled=0.5)
    tagger = ExactTagger.load(found.path)
    assert (tagger.dimensions, tagger.unlabelled, tagger.learner_.features.dimension) == (6, 0.5, 6)
    oracle = ExactTagger(dimensions=6, unlabelled=0.5)
    oracle.fit(shards[0].vectors, shards[0].tags, list(shard_files.NAMES))
    for rows in shards[1:]:
        oracle.partial_fit(rows.vectors, rows.tags, list(shard_files.NAMES))
    assert distance(tagger, oracle) < 1e-9
    with pytest.raises(InputError, match=r"--dimensions is 4, but .* was begun with 6"):
        learn_shards(str(tmp_path / "data"), tmp_path / "out", dimensions=4)
    with pytest.raises(InputError, match=r"--form is full, but .* was begun with auto"):
        learn_shards(str(tmp_path / "data"), tmp_path / "out", form="full")
    learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1, goal="ap", spread=0.2)
    oracle.set_params(goal="ap", spread=0.2)
    np.testing.assert_allclose(ExactTagger.load(found.path).coef_, oracle.coef_, rtol=1e-6, atol=1e-9)
    assert (
        ExactTagger.load(
            learn_shards(str(tmp_path / "data"), tmp_path / "out", unlabelled=0.1).path
        ).unlabelled
        == 0.1
    )


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("changed", [{"unlabelled": 3.0}, {"unlabelled": float("nan")}, {"dimensions": 0}])
def test_bad_parameters_are_refused_before_anything_is_written(data, tmp_path, changed, overwrite):
    made = learn_shards(str(data / "000.parquet"), tmp_path / "out", jobs=1)
    before = made.path.read_bytes()
    with pytest.raises(InputError, match=rf"^{next(iter(changed))} is .*; expected "):
        learn_shards(str(data), tmp_path / "out", jobs=1, overwrite=overwrite, **changed)
    assert made.path.read_bytes() == before
    assert ExactTagger.load(made.path).unlabelled == 1.0


def test_what_is_in_the_way_is_not_touched(data, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds other files, such as notes\.txt"):
        learn_shards(str(data), tmp_path)
    out = tmp_path / "out"
    learn_shards(str(data / "000.parquet"), out, jobs=1)
    tagger = ExactTagger.load(out / "tagger.safetensors")
    tagger.remove("ant").save(out / "tagger.safetensors", overwrite=True)
    with pytest.raises(InputError, match="has no record of the shards in it"):
        learn_shards(str(data), out)
    assert "ant" not in ExactTagger.load(out / "tagger.safetensors").classes_


def test_a_damaged_part_is_named_with_what_to_do(data, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_parts, "count", _fails_at(4))
    with pytest.raises(InputError, match="a made-up failure"):
        learn_shards(str(data), tmp_path / "out", jobs=1)
    monkeypatch.undo()
    part = sorted((tmp_path / "out" / "parts").glob("*.safetensors"))[0]
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(InputError, match=rf"corrupt.*; delete {part} to have its shards counted again"):
        learn_shards(str(data), tmp_path / "out", jobs=1)
    part.unlink()
    assert learn_shards(str(data), tmp_path / "out", jobs=1).rows == 400


def _fails_at(number):
    calls, real = [], shard_parts.count

    def count(job):
        calls.append(job)
        if len(calls) == number:
            raise InputError("a made-up failure")
        return real(job)

    return count


def _path() -> str:
    return os.pathsep.join(path for path in sys.path if path)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_parts_that_is_somebodys_or_a_link_is_left_alone(data, tmp_path, overwrite):
    out, mine = tmp_path / "car", tmp_path / "car" / "parts" / "engine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    for beside in ((), ("begun.safetensors",)):
        for name in beside:
            learn_shards(str(data), tmp_path / "other", jobs=1)
            shutil.copy(tmp_path / "other" / name, out / name)
        with pytest.raises(InputError, match=r"car holds other files, such as parts/engine\.txt"):
            learn_shards(str(data), out, jobs=1, overwrite=overwrite)
    mine.rename(tmp_path / "engine.txt")
    mine.parent.rmdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "engine.txt").rename(tmp_path / "docs" / f"{'0' * 32}.safetensors")
    (out / "parts").symlink_to(tmp_path / "docs")
    with pytest.raises(InputError, match="parts is a link, and mlcl writes and deletes nothing through"):
        learn_shards(str(data), out, jobs=1, overwrite=overwrite)
    assert [path.read_text() for path in (tmp_path / "docs").iterdir()] == ["years of work"]


def test_overwrite_begins_anew_only_what_was_learnt(data, whole, tmp_path):
    (tmp_path / "tagger.safetensors").write_bytes(b"somebody's own weights")
    with pytest.raises(InputError, match=r"holds other files, such as tagger\.safetensors"):
        learn_shards(str(data), tmp_path, jobs=1, overwrite=True)
    assert (tmp_path / "tagger.safetensors").read_bytes() == b"somebody's own weights"
    # A tagger that is damaged beside what was begun is ours.
    shutil.copy(whole.parent / "begun.safetensors", tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert learn_shards(str(data), tmp_path, jobs=1, overwrite=True).path.read_bytes() == whole.read_bytes()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_overwrite_removes_nothing_that_another_process_works_on(data, whole, tmp_path):
    shutil.copytree(whole.parent, tmp_path / "out")
    lock = FolderLock(tmp_path / "out")
    with pytest.raises(InputError, match="in use by another process"):
        learn_shards(str(data), tmp_path / "out", jobs=1, overwrite=True)
    lock.release()
    assert (tmp_path / "out" / "tagger.safetensors").read_bytes() == whole.read_bytes()


def test_special_files_in_place_of_a_tagger_are_refused(data, whole, tmp_path):
    for name in ("begun.safetensors", "tagger.safetensors"):
        out = shutil.copytree(whole.parent, tmp_path / name)
        (out / name).unlink()
        os.mkfifo(out / name)
        with pytest.raises(InputError, match=rf"{name}: is a pipe"):
            learn_shards(str(data), out, jobs=1)
    with pytest.raises(InputError, match="is a pipe"):
        ExactTagger.load(out / "tagger.safetensors")
    os.mkfifo(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet: is a pipe"):
        shard_sha256(str(tmp_path / "x.parquet"))


def test_rows_that_are_held_out_do_not_depend_on_the_cut(data, tmp_path):
    paths = sorted(map(str, data.iterdir()))
    whole = learn_shards(paths, tmp_path / "whole", jobs=1, held_out=0.3)
    for path in (paths[:3], paths):
        learn_shards(path, tmp_path / "pieces", jobs=1, held_out=0.3)
    for name in ("weights.safetensors", "held-out.safetensors", "calibration.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes()
    tagger = ExactTagger.load(whole.path)
    rows = np.concatenate([rows.vectors for rows in SHARDS])
    aside = held_out(rows, 0.3)
    assert 80 < aside.sum() < 160
    assert tagger.learner_.sums.total.count == (~aside).sum() == whole.rows - aside.sum()
    tags = [tags for part in SHARDS for tags in part.tags]
    labels = np.array([[name in row for name in tagger.classes_] for row in tags])
    oracle = ExactTagger().fit(rows[~aside], labels[~aside], classes=tagger.classes_.tolist())
    found = macro_auc(oracle.decision_function(rows[aside]), labels[aside])
    assert f"Macro-AUC {100 * found:.1f}" in whole.quality


def test_shards_are_not_added_below_later_versions(data, tmp_path):
    learn_shards(str(data), tmp_path / "out", jobs=1)
    (tmp_path / "out" / "versions").mkdir()
    with pytest.raises(InputError, match="has later versions"):
        learn_shards(str(data), tmp_path / "out", jobs=1)


@pytest.mark.parametrize("where", [0, 3], ids=["the first shard", "a later shard"])
def test_a_nodata_value_is_refused_with_its_place(where, tmp_path):
    shards = made_up(4)
    shards[where].vectors[21, 2] = np.finfo(np.float32).min
    paths = [str(path) for path in write_shards(tmp_path / "data", shards)]
    for number, order in enumerate((paths, paths[::-1])):
        with pytest.raises(
            InputError, match=r"-3\.40282e\+38 at row 21, column 2.*looks like a NoData value"
        ):
            learn_shards(order, tmp_path / f"out{number}", jobs=1)
        assert not (tmp_path / f"out{number}" / "tagger.safetensors").exists()
    # Without the shard the same folder goes on.
    good = [path for number, path in enumerate(paths) if number != where]
    assert learn_shards(good, tmp_path / "out0", jobs=1).shards == 3


def test_shards_of_another_scale_are_refused_when_they_are_added(tmp_path):
    shards = [Rows(rows.vectors - 3.0, rows.tags) for rows in made_up(3)]
    learn_shards([str(path) for path in write_shards(tmp_path / "data", shards)], tmp_path / "out", jobs=1)
    far = write_shard(tmp_path / "far.parquet", Rows(made_up(1)[0].vectors * 1e9, shards[0].tags))
    before = (tmp_path / "out" / "tagger.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"far\.parquet contains .* at row 0, column 0"):
        learn_shards([str(far)], tmp_path / "out", jobs=1)
    assert (tmp_path / "out" / "tagger.safetensors").read_bytes() == before


def test_shards_of_wide_vectors_keep_leading_directions(tmp_path):
    """The first rows of the first shard say which, on every worker and after an interruption."""
    shards = made_up(3, d=300, rows=70)
    write_shards(tmp_path / "data", shards)
    learn_shards(str(tmp_path / "data" / "000.parquet"), tmp_path / "out", jobs=1)
    tagger = ExactTagger.load(learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=2).path)
    assert tagger.learner_.sums.lead.shape == (300, 48)
    oracle = ExactTagger().fit(shards[0].vectors, shards[0].tags, list(shard_files.NAMES))
    for rows in shards[1:]:
        oracle.partial_fit(rows.vectors, rows.tags, list(shard_files.NAMES))
    assert distance(tagger, oracle) < 1e-9
