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
from mlcl.training.cluster import PATIENCE, EngineFailure, connected, cores_of

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

    def ready(self) -> InputError | None:
        """Return what is wrong, if anything; an actor without a place on a node never answers."""
        return self.problem

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
        queue = deque(ranges)
        free: list[Any] = []
        # Rows are given to actors that have answered: the cluster may still count a node that was lost, and an actor
        # without a place would keep its rows for ever.
        team = [actor.remote(recipe, sha256) for _ in range(count)]
        asked: dict[Any, tuple[Any, Chunk | None]] = {one.ready.remote(): (one, None) for one in team}
        reason = "no actor answered"
        while queue or any(chunk for _, chunk in asked.values()):
            while queue and free:
                one, chunk = free.pop(), queue.popleft()
                asked[one.embed.remote(*chunk)] = (one, chunk)
            if not asked:
                raise EngineFailure(f"all encoders on the cluster were lost: {reason}")
            working = any(chunk for _, chunk in asked.values())
            answers, _ = ray.wait(list(asked), num_returns=1, timeout=None if working else PATIENCE)
            if not answers:
                raise EngineFailure(
                    f"no encoder was ready on the cluster within {PATIENCE:g} s: there is no free place, or weights "
                    "are still being loaded"
                )
            one, done = asked.pop(answers[0])
            try:
                found = ray.get(answers[0])
            except ray.exceptions.RayError as error:
                reason = one_line(error)
                if done:
                    queue.appendleft(done)
                continue
            if isinstance(found, InputError):
                raise found
            free.append(one)
            if done:
                yield done, found
