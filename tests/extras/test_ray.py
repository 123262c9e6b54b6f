"""On a real Ray cluster of two nodes in this machine: a node is killed in the middle of the work."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import numpy as np
import pytest

import ray_loss
import shard_files
from children import complete
from helpers import small_arrays
from mlcl.datasets import open_store, prepare_source
from mlcl.engines.cluster import connected
from mlcl.runs.features import embed_store
from mlcl.sklearn import ExactTagger
from mlcl.sklearn import shards as shards_module
from mlcl.sklearn.shard_parts import count
from mlcl.sklearn.shards import Stopped, learn_shards
from shard_files import distance, made_up, one_process, write_shards

ray = pytest.importorskip("ray", reason="ray is an extra")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """A head with one core, to which tests add a second node."""
    small = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 2**27}
    found = cluster_utils.Cluster(initialize_head=True, head_node_args=small)
    yield found
    found.shutdown()


@pytest.fixture
def second(cluster):
    """Another node with one core."""
    node = cluster.add_node(num_cpus=1, object_store_memory=2**27)
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node, allow_graceful=False)


def killing(cluster, node, number):
    """A callback for progress that kills a node at its ``number``-th call, while the rest of the work is on its way."""
    calls = []

    def progress(done, total):
        calls.append((done, total))
        if len(calls) == number:
            assert done < total
            cluster.remove_node(node, allow_graceful=False)

    return progress


@contextlib.contextmanager
def occupied_core(cluster):
    """Take a core of the cluster, as the work of somebody else would."""

    class Idle:  # here, so that it is pickled by value: Ray's workers do not have this file
        def ready(self):
            return True

    named = {"name": "idle", "namespace": "tests"}
    with connected(address=cluster.address, jobs=None) as engine:
        idle = engine.remote(Idle).options(num_cpus=1, lifetime="detached", **named).remote()
        engine.get(idle.ready.remote())
    try:
        yield
    finally:
        with connected(address=cluster.address, jobs=None) as engine:
            engine.kill(engine.get_actor(**named))


def test_shards_with_a_node_that_is_killed(cluster, second, tmp_path):
    shards = made_up(24, rows=4000, d=24)
    write_shards(tmp_path / "data", shards)
    found = learn_shards(
        str(tmp_path / "data"),
        tmp_path / "out",
        engine="ray",
        address=cluster.address,
        jobs=2,
        progress=killing(cluster, second, 1),  # eight shards of 24
    )
    assert (found.shards, found.rows) == (24, 96_000)
    assert distance(ExactTagger.load(found.path), one_process(shards)) < 1e-9
    # Worker processes of this machine give the same bits.
    local = learn_shards(str(tmp_path / "data"), tmp_path / "local", jobs=1)
    assert local.path.read_bytes() == found.path.read_bytes()


@pytest.fixture
def embedded(tmp_path):
    """A store of images, the same embedded in this process, and a comparison with what a cluster made of it."""
    train, test = (small_arrays(images=True, n=n, seed=i) for i, n in enumerate((1500, 300)))
    arrays = dict(zip(("x_train", "y_train", "x_test", "y_test"), (*train, *test), strict=True))
    np.savez(tmp_path / "images.npz", **arrays)
    store = prepare_source("arrays", tmp_path / "images.npz", out=tmp_path / "store", jobs=1).path
    here = open_store(embed_store(str(store), "resnet8", out=tmp_path / "here").path)

    def compare(**options):
        made = embed_store(str(store), "resnet8", out=tmp_path / "there", engine="ray", **options)
        there = open_store(made.path)
        for one, other in ((here.train, there.train), (here.test, there.test)):
            np.testing.assert_allclose(one.inputs, other.inputs, atol=1e-5)
            assert np.array_equal(one.labels, other.labels)

    return compare


@pytest.mark.filterwarnings("ignore:model 'resnet8' has random weights")
def test_features_with_a_node_that_is_killed(cluster, second, embedded):
    # More jobs than there are cores.
    embedded(address=cluster.address, jobs=5, progress=killing(cluster, second, 2))


@pytest.mark.filterwarnings("ignore:model 'resnet8' has random weights")
def test_features_where_somebody_else_has_a_core(cluster, second, embedded):
    signal.alarm(600)  # without the fix this would wait for ever
    try:
        with occupied_core(cluster):
            embedded(address=cluster.address, jobs=2)
    finally:
        signal.alarm(0)


def test_a_killed_worker_loses_nothing(cluster, tmp_path, monkeypatch):
    write_shards(tmp_path / "data", made_up(10))
    monkeypatch.setattr(shards_module, "count", _dies(tmp_path / "died", times=2))
    found = learn_shards(str(tmp_path / "data"), tmp_path / "out", engine="ray", address=cluster.address)
    assert len(list((tmp_path / "died").iterdir())) == 2
    monkeypatch.undo()
    local = learn_shards(str(tmp_path / "data"), tmp_path / "local", jobs=1)
    assert local.path.read_bytes() == found.path.read_bytes()


def test_a_worker_that_dies_always_ends_in_a_sentence(cluster, tmp_path, monkeypatch):
    write_shards(tmp_path / "data", made_up(2))
    monkeypatch.setattr(shards_module, "ATTEMPTS", 1)
    monkeypatch.setattr(shards_module, "count", _dies(tmp_path / "died", times=100))
    with pytest.raises(
        Stopped, match=r"000\.parquet, .*001\.parquet could not be counted in 1 attempts: "
    ) as caught:
        learn_shards(str(tmp_path / "data"), tmp_path / "out", engine="ray", address=cluster.address)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert learn_shards(str(tmp_path / "data"), tmp_path / "out", jobs=1).rows == 80


def test_after_a_killed_driver_the_next_one_goes_on(cluster, tmp_path):
    write_shards(tmp_path / "data", made_up(20))
    out = tmp_path / "out"
    done = _in_a_process(shard_files.__file__, "ray", tmp_path / "data", out, cluster.address)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(list((out / "parts").iterdir())) == 1  # the sum of the first eight or so
    steps = []
    found = learn_shards(
        str(tmp_path / "data"),
        out,
        engine="ray",
        address=cluster.address,
        progress=lambda *numbers: steps.append(numbers),
    )
    assert steps[-1][0] == steps[-1][1] < 20
    assert (found.new, found.rows) == (20, 800)
    local = learn_shards(str(tmp_path / "data"), tmp_path / "local", jobs=1)
    assert local.path.read_bytes() == found.path.read_bytes()


def _dies(folder, *, times):
    """Counting in a worker that is killed so many times; pickled by value, as Ray's workers do not have this file."""
    folder.mkdir()

    def attempt(job):
        marks = len(list(folder.iterdir()))
        if marks < times:
            (folder / str(marks)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return count(job)

    return attempt


def test_bad_input_on_a_node_is_one_sentence(cluster, tmp_path):
    shards = made_up(2)
    shards[1].vectors[7, 2] = np.nan
    write_shards(tmp_path / "data", shards)
    with pytest.raises(
        ValueError, match=r"001\.parquet has NaN in row 7, place 2 of column 'vector'"
    ) as caught:
        learn_shards(str(tmp_path / "data"), tmp_path / "out", engine="ray", address=cluster.address)
    assert "\n" not in str(caught.value)


@pytest.fixture
def fragile():
    """A cluster whose head has no core, and its only node that has one."""
    small = {"include_dashboard": False, "object_store_memory": 2**27}
    # A lost node is noticed within a second.
    system = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 200,
        "health_check_timeout_ms": 500,
    }
    found = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": system, **small}
    )
    node = found.add_node(num_cpus=1, object_store_memory=2**27)
    yield found, node
    psutil = pytest.importorskip("psutil")
    ours = psutil.Process().children(recursive=True)
    found.shutdown()
    for one in ours:  # workers that wait for a head that is not there
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        ("node", "the Ray cluster has had no core to work on for 2 s: its nodes were lost"),
        ("head", "the head node of the Ray cluster has not answered for 2 s"),
    ],
)
def test_without_any_node_the_command_to_go_on_is_shown(fragile, lost, sentence, tmp_path):
    cluster, node = fragile
    write_shards(tmp_path / "data", made_up(20))
    victim = {
        "node": node.all_processes["raylet"],
        "head": cluster.head_node.all_processes["gcs_server"],
    }[lost]
    places = [tmp_path / "data", tmp_path / "out", cluster.address]
    # Without the sentence, this would wait for ever, or end without a word.
    done = _in_a_process(ray_loss.__file__, *places, str(victim[0].process.pid))
    assert done.returncode == 3, done.stderr
    assert f"{sentence}; what was counted is kept; to go on: mlcl learn --data" in done.stderr
    assert len(list((tmp_path / "out" / "parts").iterdir())) == 1


def _in_a_process(*words):
    """Run a program of tests/support to its end, with the modules that this process finds."""
    path = os.pathsep.join(path for path in sys.path if path)
    return complete([sys.executable, *words], env={**os.environ, "PYTHONPATH": path})
