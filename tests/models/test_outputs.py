"""A compiled network trains, stops and goes on as one that is not; files know nothing of it.

The tests compile with the backend ``aot_eager``, which traces forward and backward pass but makes no kernels: those
take half a minute and are torch's.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from helpers import SMALL_IMAGES, small_benchmark
from mlcl.config.resolve import config_from
from mlcl.errors import InputError
from mlcl.models import Outputs, build_model
from mlcl.runs.run import resume, run
from mlcl.runs.trained import load_trained
from mlcl.training.callbacks import Callback, Interrupted


@pytest.fixture
def counter(monkeypatch):
    torch._dynamo.reset()
    found = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr("mlcl.models.outputs.torch.compile", partial(torch.compile, backend=found))
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
    monkeypatch.setattr("mlcl.models.outputs.shutil.which", lambda name: None)
    with pytest.raises(InputError, match=r"train\.compile needs a C\+\+ compiler"):
        Outputs(build_model("linear", (3,), 2), compile=True)
