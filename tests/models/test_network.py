"""Networks, the linear head and `build_model`."""

from __future__ import annotations

import copy
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from helpers import SMALL_IMAGES, small_benchmark
from mlcl.config.resolve import config_from
from mlcl.errors import InputError
from mlcl.models import MODELS, LinearHead, Outputs, build_model
from mlcl.models.network import pool, seeded
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.training.callbacks import Callback, Interrupted

SMALL = ["resnet8", "resnet14", "resnet20"]
LARGE = ["resnet18", "resnet34", "resnet50"]


@pytest.fixture(autouse=True)
def _fixed_draws() -> None:
    torch.manual_seed(0)


def _same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_all_models_are_registered_with_a_summary() -> None:
    encoders = ["mobilenetv2", "efficientnet-lite0"]
    assert MODELS.names() == sorted(
        [*SMALL, *LARGE, *encoders, "mlp", "linear", "patches", "fixed", "random-relu"]
    )
    assert all(MODELS.summary(name) for name in MODELS.names())


def test_linear_head_is_pooling_and_an_affine_map() -> None:
    features = torch.randn(3, 4, 2, 5)
    head = LinearHead(4, 6)
    expected = torch.zeros(3, 6)
    for b in range(3):
        for k in range(6):
            expected[b, k] = head.linear.bias[k]
            for c in range(4):
                expected[b, k] += head.linear.weight[k, c] * features[b, c].sum() / 10
    torch.testing.assert_close(head(features), expected)
    torch.testing.assert_close(head(pool(features)), expected)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet8", (3, 16, 16)), ("resnet18", (1, 32, 40)), ("mlp", (12,)), ("linear", (12,))],
)
def test_one_pass_gives_what_the_separate_calls_give(name: str, shape: tuple[int, ...]) -> None:
    network = build_model(name, shape, 5).eval()
    inputs = torch.randn(3, *shape)
    logits, embeddings = network.forward_with_embeddings(inputs)
    assert logits.shape == (3, 5)
    assert network.features(inputs).shape == (3, network.backbone.width)
    torch.testing.assert_close(network(inputs), logits)
    torch.testing.assert_close(network.features(inputs), embeddings[:, 0])


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(SMALL), st.sampled_from([1, 3]), st.integers(8, 21), st.integers(8, 21), st.integers(1, 4)
)
def test_map_size_is_what_the_backbone_gives(name: str, channels: int, h: int, w: int, width: int) -> None:
    shape = (channels, h, w)
    backbone = build_model(name, shape, 2, width=width).backbone
    assert backbone.kind == "map"
    assert backbone(torch.zeros(1, *shape)).shape == (1, backbone.width, *backbone.map_size(shape))


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("size", [(32, 32), (65, 33)])
def test_map_size_of_large_models(name: str, size: tuple[int, int]) -> None:
    backbone = build_model(name, (3, *size), 2).backbone.eval()
    assert backbone(torch.zeros(1, 3, *size)).shape == (1, backbone.width, *backbone.map_size((3, *size)))


@pytest.mark.parametrize(
    ("name", "shape", "head"),
    [("resnet8", (3, 16, 16), "linear"), ("resnet8", (3, 16, 16), "attention"), ("mlp", (9,), "linear")],
)
def test_seed_decides_the_weights_and_global_state_is_untouched(
    name: str, shape: tuple[int, ...], head: str
) -> None:
    before = torch.get_rng_state()
    first = build_model(name, shape, 4, seed=3, head=head)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert _same(first, build_model(name, shape, 4, seed=3, head=head))
    assert not _same(first, build_model(name, shape, 4, seed=4, head=head))


def test_the_backbone_does_not_depend_on_the_head() -> None:
    linear, attention = (
        build_model("resnet8", (3, 16, 16), 4, seed=1, head=h) for h in ("linear", "attention")
    )
    assert _same(linear.backbone, attention.backbone)


def test_seeded_restores_the_state_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(KeyError), seeded(1):
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_keys_give_different_draws() -> None:
    draws = set()
    for key in [(0,), (1,), (0, 1), (1, 1), (0, 2)]:
        with seeded(*key):
            draws.add(torch.rand(1).item())
    assert len(draws) == 5


def test_channels_last_gives_the_same_logits_and_gradients() -> None:
    plain = build_model("resnet8", (3, 16, 16), 4)
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    inputs = torch.randn(8, 3, 16, 16)
    one, two = plain(inputs), last(inputs.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    one.square().sum().backward()
    two.square().sum().backward()
    for a, b in zip(plain.parameters(), last.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), [("resnet8", (3, 8, 8)), ("mlp", (6,))])
def test_a_model_learns_a_batch_by_heart(name: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, *shape, generator=generator)
    labels = (torch.rand(24, 3, generator=generator) < 0.4).float()
    network = build_model(name, shape, 3, hidden=64 if name == "mlp" else None)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(80):
        optimiser.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(inputs), labels)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.05


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("resnet8", (12,), 3), {}, r"'resnet8' takes images .* \(12,\)"),
        (("resnet50", (12,), 3), {}, r"'resnet50' takes images .* \(12,\)"),
        (("mlp", (3, 16, 16), 3), {}, r"'mlp' takes feature vectors .* \(3, 16, 16\)"),
        (("linear", (3, 16, 16), 3), {}, r"'linear' takes feature vectors"),
        (("resnet8", (16, 16), 3), {}, r"'resnet8' takes images"),
        (("resnet8", (2, 16, 16), 3), {}, "1 or 3 channels, not 2"),
        (("resnet8", (3, 7, 16), 3), {}, "at least 8 x 8 pixels, not 7 x 16"),
        (("resnet18", (3, 31, 64), 3), {}, "at least 32 x 32 pixels, not 31 x 64"),
        (("resnet8", (3, 0, 16), 3), {}, "input_shape is"),
        (("linear", (), 3), {}, "input_shape is"),
        (("resnet8", (3, 16, 16), 0), {}, "classes is 0"),
        (("resnet9", (3, 16, 16), 3), {}, "unknown model 'resnet9'.*Did you mean"),
        (("resnet8", (3, 16, 16), 3), {"width": 0}, "width is 0; expected a whole number of at least 1"),
        (("resnet8", (3, 16, 16), 3), {"hidden": 5}, "'resnet8' takes no option 'hidden'"),
        (("resnet18", (3, 64, 64), 3), {"width": 5}, "'resnet18' takes no option 'width'"),
        (("mlp", (5,), 3), {"hidden": 0}, "hidden is 0; expected"),
        (("mlp", (5,), 3), {"depth": 0}, "depth is 0; expected"),
        (("mlp", (5,), 3), {"seed": -1}, "seed is -1"),
        (
            ("mlp", (5,), 3),
            {"head": "lineer"},
            "unknown head 'lineer'; known are: .*Did you mean 'linear'",
        ),
        (("mlp", (5,), 3), {"head": "attention"}, "needs a feature map; model 'mlp' gives vectors"),
        (
            ("resnet8", (3, 16, 16), 3),
            {"head": "attention", "width": 3},
            "is 12, expected a multiple of its 8",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, options, message) -> None:
    with pytest.raises(InputError, match=message):
        build_model(*arguments, **options)


@pytest.mark.slow
def test_what_only_several_processes_need_is_not_loaded() -> None:
    code = "import mlcl.models, sys; print('mlcl.engines.batch_norm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("model", "options"), [("mlp", {"hidden": 30_000}), ("resnet8", {"width": 20_000})])
def test_options_that_ask_for_gigabytes_are_refused_before_they_are_taken(model, options):
    """In a process that may not take the memory: it would end in another error."""
    code = (
        "import resource\n"
        "from mlcl.errors import InputError\n"
        "from mlcl.models import build_model\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))\n"
        f"shape = (64,) if 'mlp' in {model!r} else (3, 16, 16)\n"
        "try:\n"
        f"    build_model({model!r}, shape, 5, **{options!r})\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "the options ask for a network of more than 536,870,912 numbers" in found.stdout


@pytest.fixture
def counter(monkeypatch):
    torch._dynamo.reset()
    found = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr("mlcl.models.network.torch.compile", partial(torch.compile, backend=found))
    yield found
    torch._dynamo.reset()


class Stop(Callback):
    def on_step(self, learner, loss):
        if (learner.task_index, learner.step) == (1, 2):
            raise Interrupted


@pytest.mark.slow
def test_a_compiled_run_is_a_run(counter, tmp_path):
    short = {"epochs": 1, "batch_size": 16, "lr": 0.01}
    plain = {**SMALL_IMAGES, "method": "distilled-replay", "train": short}
    compiled = {**plain, "train": {**short, "compile": True}}
    benchmark = small_benchmark(images=True, n=70)
    alone = run(plain, benchmark=benchmark)
    assert counter.frame_count == 0
    with pytest.raises(Interrupted):
        run(compiled, benchmark=benchmark, out=tmp_path / "run", callback=Stop())
    result = resume(tmp_path / "run", benchmark=benchmark)
    assert np.allclose(result.matrix, alone.matrix, atol=1e-3)
    # The passes of training alone, once for the first number of rows and once for any other, in each of both parts.
    assert 2 <= counter.frame_count <= 6
    inputs = benchmark.dataset.test.inputs
    assert np.array_equal(load_trained(tmp_path / "run").logits(inputs), result.learner.predict(inputs))
    assert config_from(tmp_path / "run/config.yaml").train.compile


@pytest.mark.slow
def test_gradients_of_compiled_outputs(counter):
    inputs = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    found = []
    for compiled in (False, True):
        network = build_model("resnet8", (3, 16, 16), 4)
        logits, embeddings = Outputs(network, compile=compiled)(inputs)
        (logits.square().sum() + embeddings.sum()).backward()
        found.append([p.grad for p in network.parameters()])
    assert counter.frame_count == 1
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(*found, strict=True))


def test_without_a_compiler_it_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("mlcl.models.network.shutil.which", lambda name: None)
    with pytest.raises(InputError, match=r"train\.compile needs a C\+\+ compiler"):
        Outputs(build_model("linear", (3,), 2), compile=True)
