"""What a run keeps of the past, as arrays by name: all that ``memory.safetensors`` holds and `extend` starts from."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from mlcl.training.batches import gather, reduced
from mlcl.training.learner import Learner
from mlcl.training.state import with_prefix


def kept_arrays(learner: Learner) -> dict[str, NDArray[Any]]:
    """Return the memory with the inputs of its samples, what the regulariser keeps, and the sums of what is solved."""
    found = dict(learner.memory.state())
    stored = gather(learner.data.train.inputs, learner.memory.rows)
    found["inputs"] = reduced(stored, learner.config.memory.downscale).numpy()
    tensors = with_prefix("regulariser", learner.parts.regulariser.state())
    tensors |= with_prefix("exact", learner.head.state())
    return found | {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}


def kept_bytes(learner: Learner) -> int:
    """Return the size of `kept_arrays` in bytes: what methods can be compared by that remember in different ways."""
    return sum(value.nbytes for value in kept_arrays(learner).values())
