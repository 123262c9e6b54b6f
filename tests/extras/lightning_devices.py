"""A script for `test_lightning.py`, with the argument OUT: each of two devices records its rows in OUT/RANK.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from mlcl.training.replay import ReplaySampler, replay_loader


def main(out: Path) -> None:
    """Train two epochs on 21 rows with 4 more in memory."""
    import lightning

    class Recorder(lightning.LightningModule):
        """Records the rows of each epoch."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.epochs = []

        def train_dataloader(self):
            """Return the loader; it is made when the processes exist, so that each knows its rank."""
            place = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
            sampler = ReplaySampler(range(4, 25), range(4), batch_size=4, memory_batch=2, **place)
            return replay_loader(TensorDataset(torch.arange(25)), sampler)

        def on_train_epoch_start(self):
            self.epochs.append([])

        def training_step(self, batch, number):
            (rows,), _ = batch
            self.epochs[-1].append(rows.tolist())
            return self.weight * 0.0

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    recorder = Recorder()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", use_distributed_sampler=False, **quiet
    ).fit(recorder)
    (out / f"{recorder.global_rank}.json").write_text(json.dumps(recorder.epochs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
