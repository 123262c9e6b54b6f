"""Features on a Ray cluster: actors with one encoder each, to which ranges of rows are given."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets.decoding import Chunk
from mlcl.errors import InputError, one_line
from mlcl.runs.encoders import Recipe
from mlcl.training.cluster import EngineFailure, connected, cores_of

Features = NDArray[np.float32]


class Actor:
    """An encoder on a node, which loads store and weights there."""

    def __init__(self, recipe: Recipe, sha256: str | None) -> None:
        warnings.simplefilter("ignore", UserWarning)  # the first process shows them
        self.problem: InputError | None = None
        try:
            self.embedder = recipe.open()
        except InputError as error:
            self.problem = InputError(f"a node cannot load what this machine can: {error}")
            return
        if self.embedder.encoder.provenance.get("sha256") != sha256:
            self.problem = InputError(
                f"a node has other weights of {recipe.model} than this machine; expected the same files on all nodes"
            )

    def embed(self, start: int, stop: int) -> Features | InputError:
        """Return the features of rows, or what is wrong."""
        if self.problem is not None:
            return self.problem
        try:
            return self.embedder(start, stop)
        except InputError as error:
            return error


def embed_on_ray(
    recipe: Recipe, ranges: Sequence[Chunk], *, sha256: str | None, jobs: int | None, address: str | None
) -> Iterator[tuple[Chunk, Features]]:
    """Yield ranges of rows with their features, in any order.

    An actor that is lost with its node gives its ranges to the others.

    Args:
        recipe: of store and encoder; the nodes must find both under the same names and paths.
        ranges: first row and row after the last of each.
        sha256: of the encoder's weights here.
        jobs: number of actors at most; one per GPU of the cluster, or per core, if not given.
        address: of the cluster; one is started on this machine if not given.
    """
    with connected(address=address, jobs=jobs) as ray:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        actor: Any = ray.remote(Actor).options(num_cpus=1, num_gpus=1 if gpus else 0)
        places = gpus or cores_of(ray)  # an actor without one would never answer
        count = min(jobs or places, places, len(ranges))
        team = [actor.remote(recipe, sha256) for _ in range(count)]
        queue = deque(ranges)
        busy: dict[Any, tuple[Any, Chunk]] = {}
        reason = ""
        while queue or busy:
            for one in team:
                if queue and one not in [owner for owner, _ in busy.values()]:
                    chunk = queue.popleft()
                    busy[one.embed.remote(*chunk)] = (one, chunk)
            if not busy:
                raise EngineFailure(f"all encoders on the cluster were lost: {reason}")
            ready, _ = ray.wait(list(busy), num_returns=1)
            one, chunk = busy.pop(ready[0])
            try:
                found = ray.get(ready[0])
            except ray.exceptions.RayError as error:
                reason = one_line(error)
                team.remove(one)
                queue.appendleft(chunk)
                continue
            if isinstance(found, InputError):
                raise found
            yield chunk, found
