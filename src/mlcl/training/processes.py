"""What several processes that train one network must agree on, with Fabric's DDP; one process is the usual case.

Every process draws the same plan of an epoch and sends its own rows of each step through the network. The logits, a
few numbers per row, are then exchanged, and every process computes the loss of the *whole* batch. So whatever a loss, a
label policy or a regulariser does over a batch is what it does in one process, without knowing of others.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

from mlcl.config.schema import Config, TrainConfig
from mlcl.engines import launching
from mlcl.engines.children import ProcessError
from mlcl.errors import InputError, one_line
from mlcl.methods.step import Share

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")
# Statistics of batch normalisation go over all rows, so all processes hold the same and need not send them.
_NAMES = inspect.signature(DistributedDataParallel).parameters
_OWN_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}


def settled(config: Config) -> Config:
    """Return the config with the number of processes that torchrun started, if it did.

    So the config in the run's folder says how many they were, and ``mlcl resume`` starts as many.
    """
    found = launching.torchrun()
    if found is None or found[1] == config.train.devices:
        return config
    if config.train.devices != 1:
        raise InputError(
            f"train.devices is {config.train.devices}, but torchrun started {found[1]} processes; expected the same."
        )
    return replace(config, train=replace(config.train, devices=found[1]))


def join_processes(train: TrainConfig) -> Processes:
    """Return the processes of a run, this one among them; it waits here until all are there."""
    # Loaded here: it takes as long as torch, and most commands train nothing.
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    member, found = launching.member(), launching.torchrun()
    several: dict[str, Any] = {}
    if train.devices > 1:
        if member is None and found is None:
            raise InputError(
                f"train.devices is {train.devices}, but this process is alone; mlcl.run and the command line start the "
                "others, and so does torchrun."
            )
        here = train.devices if found is None else found[2]
        several = {"strategy": DDPStrategy(**_OWN_BUFFERS), "num_nodes": train.devices // here}
        if member is not None:
            several["plugins"] = [
                LightningEnvironment()
            ]  # reads what `launching` has put into the environment
    else:
        here = 1
    try:
        fabric = Fabric(
            accelerator=train.device, devices=here, precision=cast(Any, train.precision), **several
        )
    except (RuntimeError, ValueError, ImportError) as error:
        raise InputError(
            f"train.device {train.device!r} with train.devices {train.devices} cannot be used: {one_line(error)}."
        ) from None
    if member is not None and train.devices > 1:
        member.meet()
    if train.devices > 1:
        log = logging.getLogger("lightning_fabric")
        level = log.level
        log.setLevel(logging.WARNING)  # that processes have met is no news
        fabric.launch()
        log.setLevel(level)
    return Processes(fabric)


class Processes:
    """The processes that train one network, as one of them sees them.

    Every method but `share` and `pieces` must be called by all of them, in the same order.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric

    @property
    def size(self) -> int:
        """How many processes there are; 1 again when the others have ended."""
        return self.fabric.world_size if dist.is_available() and dist.is_initialized() else 1

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        return self.fabric.global_rank if self.size > 1 else 0

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks to the user."""
        return self.rank == 0

    def share(self, total: int) -> Share:
        """Return which of ``total`` rows are this process's."""
        return Share.of(total, self.rank, self.size)

    def pieces(self, pieces: Iterator[slice]) -> Iterator[tuple[slice, list[int]]]:
        """Deal out pieces of a range in rounds: yield this process's piece, and the lengths of all in the round.

        A process that gets none in the last round has an empty piece.
        """
        dealt = list(pieces)
        for start in range(0, len(dealt), self.size):
            turn = dealt[start : start + self.size]
            turn += [slice(turn[-1].stop, turn[-1].stop)] * (self.size - len(turn))
            yield turn[self.rank], [piece.stop - piece.start for piece in turn]

    def gather(self, own: Tensor, counts: list[int] | None = None, *, total: int | None = None) -> Tensor:
        """Return the rows of all processes, one after the other.

        Gradients flow back to this process's own rows, times the number of processes: every process computes the same
        loss from all rows, and DDP takes the mean over processes.

        Args:
            own: this process's rows, [n, ...]; all processes agree in all but n.
            counts: rows of each process.
            total: rows of all, if they were dealt out by `share`.
        """
        if self.size == 1:
            return own
        if counts is None:
            shares = [Share.of(total or 0, rank, self.size) for rank in range(self.size)]
            counts = [share.rows.stop - share.rows.start for share in shares]
        return cast(Tensor, _Gather.apply(own, counts, self.rank))  # type: ignore[no-untyped-call]

    def gather_outputs(self, logits: Tensor, embeddings: Tensor, *, total: int) -> tuple[Tensor, Tensor]:
        """Return logits [B, K] and embeddings [B, S, d] of all ``total`` rows, in one exchange."""
        if self.size == 1:
            return logits, embeddings
        found = self.gather(torch.cat([logits, embeddings.flatten(1)], 1), total=total)
        width = logits.shape[1]
        return found[:, :width], found[:, width:].reshape(-1, *embeddings.shape[1:])

    def on_first(self, function: Callable[[], T]) -> T | None:
        """Let the first process do something; None for the others. Where it fails all fail."""
        done, _ = self._first(function, send=False)
        return done

    def from_first(self, function: Callable[[], T]) -> T:
        """Return what the first process finds; the others get it from there. Where it fails all fail."""
        done, sent = self._first(function, send=True)
        return cast(T, done if self.first else sent)

    def _first(self, function: Callable[[], T], *, send: bool) -> tuple[T | None, Any]:
        done: T | None = None
        failure: Exception | None = None
        if self.first:
            try:
                done = function()
            except Exception as error:
                failure = error
        if self.size == 1:
            sent: Any = (None, done)
        else:
            report = None if failure is None else (isinstance(failure, InputError), str(failure))
            sent = self.fabric.broadcast((report, done if send else None))
        if failure is not None:
            raise failure
        if sent[0] is not None:
            ours, sentence = sent[0]
            raise InputError(sentence) if ours else ProcessError(f"the first process failed: {sentence}")
        return done, sent[1]


class _Gather(torch.autograd.Function):
    """All rows forward; of the gradient, which every process has whole, the own rows back."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: list[int], rank: int) -> Tensor:
        first = sum(counts[:rank])
        ctx.rows, ctx.size = slice(first, first + counts[rank]), len(counts)
        padded = own.new_zeros(max(counts), *own.shape[1:])  # an exchange is of equal parts
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.rows] * ctx.size, None, None
