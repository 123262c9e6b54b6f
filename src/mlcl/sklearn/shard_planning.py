"""Before shards are counted: what is fixed by the first one, and which files are new, known, changed or copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.datasets.shards import (
    Shard,
    ShardColumns,
    choose_columns,
    describe_shard,
    fetched,
    read_batches,
    shard_sha256,
)
from mlcl.errors import InputError
from mlcl.exact.digits import Seen
from mlcl.exact.features import squares_of
from mlcl.exact.moments import packed_size
from mlcl.sklearn.exact import ExactTagger
from mlcl.sklearn.shard_folder import Begun, holds_counts, read_begun, write_begun
from mlcl.sklearn.shard_parts import Counted

FIRST = 2**16
"""At most so many rows of the first shard determine the feature map."""
RATIO = 2
"""Shards are counted in one go until their files have so many times the bytes of their sums."""


MOST_HELD = 4000
"""So many rows are held out at most of the shards of the first call, and the same share of later ones."""


def check_params(params: Mapping[str, Any]) -> ExactTagger:
    """Return a tagger with the parameters that were given; refuse those that it could not be loaded with."""
    tagger = ExactTagger(**{name: value for name, value in params.items() if value is not None})
    tagger._options()
    return tagger


def begin(
    out: Path, given: list[str], wanted: dict[str, str], params: dict[str, Any], held_out: float
) -> Begun:
    """Return what is fixed, or fix it: columns, feature map, parameters, and the share of rows that are held out.

    While nothing is counted, nothing is fixed: a first shard that turned out to be bad may be left out.
    """
    begun = read_begun(out) if holds_counts(out) else None
    if begun is not None:
        for name, value in wanted.items():
            if value != getattr(begun.columns, name):
                raise InputError(
                    f"--{name} is {value!r}, but {out} was begun with {getattr(begun.columns, name)!r}; "
                    f"expected the same, or --overwrite to begin anew"
                )
        for name in ("dimensions", "form"):
            if params.get(name) not in (None, fixed := begun.params.get(name)):
                raise InputError(
                    f"--{name} is {params[name]}, but {out} was begun with {fixed}; expected the same, or --overwrite "
                    f"to begin anew"
                )
        return begun
    columns = choose_columns(given[0], **wanted)
    shards = [describe_shard(address, columns) for address in given]
    first = next((shard for shard in shards if shard.rows), None)
    if first is None:
        raise InputError(f"{given[0]} and all other shards have no rows, but at least one was expected")
    _check_alike(shards, first.kind, first.width, first.address)
    rows, labels = _first_rows(first, columns)
    _check_alike(shards, first.kind, rows.shape[1], first.address)  # where its type does not say
    tagger = check_params(params)
    learner = tagger._begin(rows, fixed=True)
    d, seen = learner.features.dimension, Seen(squares_of(learner.features, rows), float(len(rows)))
    lead = learner.sums.lead
    own = d + (0 if lead is None else packed_size(lead.shape[1])) if learner.sums.shared else packed_size(d)
    group = RATIO * 8 * (2 * (1 + d + packed_size(d)) + labels * (1 + d + own))
    share = min(held_out, MOST_HELD / sum(shard.rows for shard in shards))
    params, width = tagger.get_params(), rows.shape[1]
    begun = Begun(learner, params, columns, first.kind, width, group, first.address, seen, share)
    write_begun(out, begun)
    return begun


def _first_rows(shard: Shard, columns: ShardColumns) -> tuple[Any, int]:
    """Return the first rows of a shard, and how many labels they have."""
    taken, labels, held = [], set(), 0
    with fetched(shard.address) as (path, _):
        for batch in read_batches(path, columns, address=shard.address, width=shard.width):
            taken.append(batch.rows[: FIRST - held])
            labels |= set(batch.names)
            held += len(taken[-1])
            if held >= FIRST:
                break
    return np.concatenate(taken), len(labels)


def check(given: list[str], known: list[Counted], begun: Begun) -> tuple[list[Shard], dict[str, str]]:
    """Return the shards to count, and files with the content of another one; refuse what has changed."""
    record = {one.address: one for one in known}
    new: list[Shard] = []
    for address in given:
        shard = describe_shard(address, begun.columns)
        if address not in record:
            new.append(shard)
        elif _changed(shard, record[address]):
            raise InputError(
                f"{address} has changed since it was counted: it has another fingerprint; expected the same file, "
                f"a new name for new rows, or --overwrite to begin anew"
            )
    _check_alike(new, begun.kind, begun.width, begun.first, ", or --overwrite to begin anew")
    # Files of equal content have equal footers: only for those the content is read.
    alike: dict[tuple[int, str], dict[str, str | None]] = {}
    for one in known:
        alike.setdefault((one.size, one.footer), {})[one.address] = one.fingerprint
    for shard in new:
        alike.setdefault((shard.size, shard.footer), {})[shard.address] = None
    duplicates: dict[str, str] = {}
    for group in alike.values():
        if len(group) == 1 or all(group.values()):
            continue
        owner: dict[str, str] = {}
        for name, found in sorted(group.items(), key=lambda item: (item[1] is None, item[0])):
            first = owner.setdefault(found or shard_sha256(name), name)
            if first != name:
                duplicates[name] = first
    return [shard for shard in new if shard.address not in duplicates], duplicates


def _changed(shard: Shard, counted: Counted) -> bool:
    if (shard.size, shard.footer) != (counted.size, counted.footer):
        return True
    return shard.version != counted.version and shard_sha256(shard.address) != counted.fingerprint


def _check_alike(
    shards: Sequence[Shard], kind: str, width: int | None, first: str, otherwise: str = ""
) -> None:
    for shard in shards:
        if shard.kind != kind:
            raise InputError(
                f"{shard.address} has vectors of {shard.kind}, but {first} has {kind}; expected one type in all shards"
                f"{otherwise}"
            )
        if None not in (shard.width, width) and shard.width != width:
            raise InputError(
                f"{shard.address} has vectors of length {shard.width}, but {first} has {width}; expected one length "
                f"in all shards{otherwise}"
            )
