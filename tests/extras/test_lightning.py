"""The LightningModule example makes the same steps as the plain loop; the sampler with several devices."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from children import complete
from mlcl.training.replay import ReplaySampler, replay_loader

lightning = pytest.importorskip("lightning", reason="the extra lightning is not installed: make test-extras")
pytest.importorskip("torchmetrics", reason="the extra torchmetrics is not installed: make test-extras")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_example_learns_what_the_plain_loop_learns():
    """Equal numbers mean the same batches: Lightning has called ``set_epoch`` before each epoch."""
    small = {"train_size": 500, "epochs": 2}
    plain, module = (
        runpy.run_path(str(EXAMPLES / name))["main"](100, **small)
        for name in ("pytorch_loop.py", "lightning_module.py")
    )
    assert module == pytest.approx(plain, abs=1e-6)


def test_the_example_runs_as_a_script(tmp_path):
    """As it stands, but with fewer images."""
    script = tmp_path / "lightning_module.py"
    text = (EXAMPLES / script.name).read_text(encoding="utf-8")
    script.write_text(text.replace("train_size: int = 6000", "train_size: int = 400"), encoding="utf-8")
    done = complete([sys.executable, str(script), "50"])
    assert done.returncode == 0, done.stderr
    assert "after task 5: Macro-AUC" in done.stdout
    assert "50 rows stored" in done.stdout


class Recorder(lightning.LightningModule):  # type: ignore[name-defined]  # from importorskip
    """Records the rows and tasks of each epoch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.epochs = []

    def on_train_epoch_start(self):
        self.epochs.append([])

    def training_step(self, batch, number):
        (rows,), tasks = batch
        self.epochs[-1].append((rows.tolist(), tasks.tolist()))
        return self.weight * 0.0

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_epoch_has_its_own_draw(workers):
    sampler = ReplaySampler(np.arange(5, 25), np.arange(5), batch_size=4, memory_batch=2)
    loader = replay_loader(TensorDataset(torch.arange(25)), sampler, num_workers=workers)
    recorder = Recorder()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(max_epochs=3, accelerator="cpu", enable_model_summary=False, **quiet).fit(
        recorder, loader
    )
    expected = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        plan = sampler.plan()
        expected.append(
            [tuple(part.tolist() for part in plan.step(number)[:2]) for number in range(len(plan))]
        )
    assert recorder.epochs == expected
    assert expected[0] != expected[1] != expected[2]


def test_two_devices_share_the_rows(tmp_path):
    script = Path(__file__).with_name("lightning_devices.py")
    done = complete([sys.executable, str(script), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for epoch in range(2):
        for rank in range(2):
            sampler = ReplaySampler(
                range(4, 25), range(4), batch_size=4, memory_batch=2, rank=rank, world_size=2
            )
            sampler.set_epoch(epoch)
            assert found[rank][epoch] == list(sampler)
        seen = [row for one in found for batch in one[epoch] for row in batch if row >= 4]
        assert sorted(set(seen)) == list(range(4, 25))
        assert len(seen) == 22  # one row twice, so that both make the same number of steps
