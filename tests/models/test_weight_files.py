"""Weights in files: read without running code, fitted by name."""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from mlcl.errors import InputError
from mlcl.models.packages import weights_of_file
from mlcl.models.weight_files import fit_names, is_weight_file, read_weight_file, tensors_sha256


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x.safetensors", True),
        ("X.PTH", True),
        ("a/b", True),
        ("a1_in1k", False),
        ("IMAGENET1K_V2", False),
        (True, False),
    ],
)
def test_files_are_distinguished_from_names(value, expected):
    assert is_weight_file(value) is expected


def layers():
    torch.manual_seed(0)
    return {
        "conv.weight": torch.randn(2, 3),
        "bn.num_batches_tracked": torch.tensor(5),
        "fc.weight": torch.ones(7, 2),
    }


@pytest.mark.parametrize(
    "wrap", [lambda t: t, lambda t: {"state_dict": t, "epoch": 3}, lambda t: {"model": {"model": t}}]
)
def test_wrappers_of_training_scripts_are_taken_off(tmp_path, wrap):
    path = tmp_path / "w.pth"
    torch.save(wrap({f"module.{name}": value for name, value in layers().items()}), path)
    found, digest = read_weight_file(path)
    assert list(found) == list(layers())
    assert all(torch.equal(found[name], value) for name, value in layers().items())
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_safetensors(tmp_path):
    save_file(layers(), tmp_path / "w.safetensors")
    assert set(read_weight_file(tmp_path / "w.safetensors")[0]) == set(layers())


class Evil:
    ran = False

    def __reduce__(self):
        return (setattr, (Evil, "ran", True))


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors", "w.bin"])
def test_what_is_no_weights_is_refused_and_never_run(tmp_path, name):
    path = tmp_path / name
    for content in (b"", b"no weights", pickle.dumps(Evil())):
        path.write_bytes(content)
        with pytest.raises(
            InputError, match=rf"{name}: holds no weights that can be read without running code"
        ):
            read_weight_file(path)
    torch.save({"x": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(InputError, match="without running code"):
        read_weight_file(tmp_path / "evil.pth")
    assert not Evil.ran


def saved(content, path, **options):
    torch.save(content, path, **options)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda path: b"", "it is empty"),
        (lambda path: b"e\x00 of another program", "it is cut short, or not in the format of torch.save"),
        (lambda path: b"<html>404</html>", "it is cut short, or not in the format of torch.save"),
        (
            lambda path: saved(layers(), path)[:-9],
            "it is cut short: the end of the archive that torch.save writes is",
        ),
        (
            lambda path: saved({"w": torch.ones(2**15)}, path)[:70000],
            "it is cut short: the end of the archive",
        ),
        (
            lambda path: saved(layers(), path, _use_new_zipfile_serialization=False)[:-9],
            "it is cut short, or not in the format of torch.save",
        ),
        (
            lambda path: saved(nn.Linear(2, 2), path),
            "it holds objects of code (torch.nn.modules.linear.Linear)",
        ),
        (lambda path: saved([torch.ones(2)], path), "holds one value of type list; expected tensors by name"),
        (lambda path: saved(torch.ones(2), path), "holds one value of type Tensor; expected tensors by name"),
        (lambda path: saved({"epoch": 3}, path), "holds no tensors; expected tensors by name"),
    ],
)
def test_a_bad_file_is_one_sentence_of_our_own(tmp_path, content, reason):
    path = tmp_path / "w.pth"
    path.write_bytes(content(path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as caught:
            read_weight_file(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: holds ")
    assert reason in sentence
    assert sentence.endswith(
        "expected tensors by name, as safetensors or torch.save(model.state_dict(), FILE) write them."
    )


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path, value):
    module = nn.Linear(2, 1)
    tensors = module.state_dict() | {"head": torch.tensor([torch.nan])}  # which nobody needs
    torch.save(tensors, tmp_path / "w.pth")
    weights_of_file("net", tmp_path / "w.pth", module)
    torch.save(tensors | {"weight": torch.tensor([[1, value]])}, tmp_path / "w.pth")
    with pytest.raises(
        InputError, match=r"w\.pth: 1 of 2 values of 'weight' are no finite numbers; expected"
    ):
        weights_of_file("net", tmp_path / "w.pth", module)


def test_files_that_are_not_there_or_empty_of_tensors(tmp_path):
    with pytest.raises(InputError, match=r"none\.pth: cannot be read: No such file"):
        read_weight_file(tmp_path / "none.pth")
    torch.save({"epoch": 3}, tmp_path / "epoch.pth")
    with pytest.raises(InputError, match=r"epoch\.pth: holds no tensors"):
        read_weight_file(tmp_path / "epoch.pth")


@pytest.mark.parametrize("prefix", ["", "backbone.", "backbone.body.", "encoder."])
def test_a_backbone_is_found_below_its_prefix(prefix):
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    given_names = {f"{prefix}{name}": value for name, value in network.state_dict().items()}
    given_names.pop(f"{prefix}1.num_batches_tracked")  # older files have no counters
    head = {
        "roi.cls.weight": torch.zeros(91, 2),
        "roi.cls.bias": torch.zeros(91),
        "temperature": torch.tensor(1.0),
    }
    found, outputs = fit_names(given_names | head, network.state_dict(), where="x.pth", model="net")
    assert set(found) == set(network.state_dict()) - {"1.num_batches_tracked"}
    assert outputs == [91]


def test_missing_tensors_are_counted_and_named():
    wanted = {"a": torch.zeros(1), "b": torch.zeros(1), "n.num_batches_tracked": torch.zeros(())}
    with pytest.raises(
        InputError, match=r"x\.pth: does not fit model 'net': 1 of its 3 tensors are missing, .* 'b'"
    ):
        fit_names({"a": torch.zeros(1)}, wanted, where="x.pth", model="net")


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 3), st.floats(1, 1e4, width=32), st.sampled_from([torch.float32, torch.bfloat16]))
def test_the_hash_sees_names_types_shapes_and_values(place, value, dtype):
    base = {"a": torch.arange(4).to(dtype), "b": torch.tensor(3)}
    same = {name: base[name].clone() for name in reversed(base)}
    assert tensors_sha256(base) == tensors_sha256(same)
    changed = base | {"a": base["a"].clone()}
    changed["a"][place] = value
    assert (tensors_sha256(changed) == tensors_sha256(base)) == torch.equal(changed["a"], base["a"])
    others = [
        {"c": base["a"], "b": base["b"]},
        base | {"a": base["a"].view(2, 2)},
        base | {"b": torch.tensor(4)},
    ]
    assert len({tensors_sha256(other) for other in (base, *others)}) == 4


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "weights.pt")
    with pytest.raises(InputError, match=r"weights\.pt: is a pipe; expected a file"):
        read_weight_file(tmp_path / "weights.pt")
