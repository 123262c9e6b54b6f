"""Hostile files: every reader loads or refuses in one sentence. ``make fuzz`` does the same on many more inputs."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SPEC = importlib.util.spec_from_file_location(
    "fuzz_readers", Path(__file__).resolve().parents[2] / "fuzz/readers.py"
)
readers = importlib.util.module_from_spec(SPEC)
NAMES = (
    "config",
    "checkpoint manifest",
    "checkpoint tensors",
    "result.json",
    "result.json in use",
    "weights",
    "memory",
    "extends.json",
    "store manifest",
    "store labels",
    "store inputs",
    "store ids",
)


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    import sys

    sys.modules["fuzz_readers"] = readers
    SPEC.loader.exec_module(readers)
    return readers.make_targets(tmp_path_factory.mktemp("fuzz"))


def test_the_fuzzer_knows_all_readers_and_its_seeds_load(targets):
    assert set(NAMES) <= set(targets)
    for target in targets.values():
        assert all(readers.judge(target, seed) == "loaded" for seed in target.seeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_changed_files_load_or_are_refused(name, targets):
    @settings(max_examples=40, deadline=None)
    @given(seed=st.integers(0, 2**32))
    def check(seed):
        (data,) = readers.mutants(targets[name], 1, seed)
        assert readers.judge(targets[name], data) in ("loaded", "refused")

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_anything_at_all_loads_or_is_refused(name, targets):
    @settings(max_examples=25, deadline=None)
    @given(data=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
    def check(data):
        assert readers.judge(targets[name], data) in ("loaded", "refused")

    check()


class Bomb:
    """Would run code if anything unpickled it."""

    def __reduce__(self):
        return pytest.fail, ("a file ran code",)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_unpickles(name, targets):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert readers.judge(targets[name], pickle.dumps(Bomb(), protocol)) == "refused"
