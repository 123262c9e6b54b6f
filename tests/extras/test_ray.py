"""On a real Ray cluster of two nodes in this machine: a node is killed in the middle of the work."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import small_arrays
from mlcl.datasets import open_store, prepare_source
from mlcl.runs.features import embed_store
from mlcl.sklearn import ExactTagger
from mlcl.sklearn.shards import learn_shards
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


def test_shards_with_a_node_that_is_killed(cluster, second, tmp_path):
    shards = made_up(24, rows=4000, d=24)
    write_shards(tmp_path / "data", shards)
    found = learn_shards(
        str(tmp_path / "data"),
        tmp_path / "out",
        engine="ray",
        address=cluster.address,
        jobs=2,
        progress=killing(cluster, second, 3),
    )
    assert (found.shards, found.rows) == (24, 96_000)
    assert distance(ExactTagger.load(found.path), one_process(shards)) < 1e-9
    # Worker processes of this machine give the same bits.
    local = learn_shards(str(tmp_path / "data"), tmp_path / "local", jobs=1)
    assert local.path.read_bytes() == found.path.read_bytes()


@pytest.mark.filterwarnings("ignore:model 'resnet8' has random weights")
def test_features_with_a_node_that_is_killed(cluster, second, tmp_path):
    train, test = (small_arrays(images=True, n=n, seed=i) for i, n in enumerate((1500, 300)))
    arrays = dict(zip(("x_train", "y_train", "x_test", "y_test"), (*train, *test), strict=True))
    np.savez(tmp_path / "images.npz", **arrays)
    store = prepare_source("arrays", tmp_path / "images.npz", out=tmp_path / "store", jobs=1).path
    here = embed_store(str(store), "resnet8", out=tmp_path / "here")
    there = embed_store(
        str(store),
        "resnet8",
        out=tmp_path / "there",
        engine="ray",
        address=cluster.address,
        jobs=2,
        progress=killing(cluster, second, 2),
    )
    mine, theirs = open_store(here.path), open_store(there.path)
    for one, other in ((mine.train, theirs.train), (mine.test, theirs.test)):
        np.testing.assert_allclose(one.inputs, other.inputs, atol=1e-5)
        assert np.array_equal(one.labels, other.labels)


def test_bad_input_on_a_node_is_one_sentence(cluster, tmp_path):
    shards = made_up(2)
    shards[1].vectors[7, 2] = np.nan
    write_shards(tmp_path / "data", shards)
    with pytest.raises(
        ValueError, match=r"001\.parquet has NaN in row 7, place 2 of column 'vector'"
    ) as caught:
        learn_shards(str(tmp_path / "data"), tmp_path / "out", engine="ray", address=cluster.address)
    assert "\n" not in str(caught.value)
