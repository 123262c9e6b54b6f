"""Parts on the disk: the sums of some shards in one file, with what was counted. Files are untrusted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlcl.arrays import ENDING, Format
from mlcl.datasets.shards import Shard, ShardColumns, describe_shard, fetched, read_batches
from mlcl.errors import InputError, one_line
from mlcl.exact import FeatureMap
from mlcl.exact.counting import Counter
from mlcl.exact.digits import Seen
from mlcl.exact.moments import Floats
from mlcl.exact.parts import Part
from mlcl.files import remove_temporary
from mlcl.sklearn.shard_tree import part_key

SUMS = Format("mlcl-shard-sums", 1, what="the sums of shards")
OWN = re.compile(r"[0-9a-f]{32}\.safetensors(\.tmp)?")
"""The names of parts; an older mlcl wrote them by way of the name and .tmp."""


@dataclass(frozen=True)
class Counted:
    """A shard that was counted.

    Attributes:
        address: of the file.
        size: in bytes.
        version: changes when the file does, without its content being read.
        footer: SHA-256 of its footer.
        rows: number of rows.
        fingerprint: SHA-256 of the whole file, of the very bytes that were counted.
    """

    address: str
    size: int
    version: int
    footer: str
    rows: int
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Job:
    """Shards to count in one go.

    Attributes:
        shards: the shards, in order.
        columns: which columns to read.
        features: the feature map.
        usual: the size of columns, see `Counter`.
        held_out: the share of the rows that are held out.
        shared: the form of the sums.
        lead: leading directions, in the shared form.
    """

    shards: tuple[Shard, ...]
    columns: ShardColumns
    features: FeatureMap
    usual: Seen | None = None
    held_out: float = 0.0
    shared: bool = False
    lead: Floats | None = None

    @property
    def name(self) -> str:
        """Return what it is called in messages."""
        more = f" and {len(self.shards) - 1} more" if len(self.shards) > 1 else ""
        return f"{self.shards[0].address}{more}"


def count(job: Job) -> tuple[Part, list[Counted]]:
    """Count shards, batch by batch; a shard that is not as it was described is an `InputError`."""
    counter = Counter(job.features, job.usual, held_out=job.held_out, shared=job.shared, lead=job.lead)
    counted = []
    for shard in job.shards:
        start, where = 0, f"column {job.columns.vectors!r} of {shard.address}"
        with fetched(shard.address) as (path, fingerprint):
            for batch in read_batches(path, job.columns, address=shard.address, width=job.features.features):
                counter.add(batch.rows, batch.tags, batch.names, batch.annotated, start=start, where=where)
                start += len(batch.rows)
        if describe_shard(shard.address, job.columns) != shard:
            raise InputError(f"{shard.address} was changed while it was counted; it was not counted")
        counted.append(
            Counted(shard.address, shard.size, shard.version, shard.footer, shard.rows, fingerprint)
        )
    return counter.part(), counted


def write_part(folder: Path, part: Part, counted: Sequence[Counted]) -> str:
    """Write a part under the name that its shards give it, whole or not at all; return the name."""
    key = part_key([one.address for one in counted])
    header = {"names": list(part.names), "shards": [asdict(one) for one in counted]}
    SUMS.write(folder / f"{key}{ENDING}", part.arrays(), header)
    return key


def count_into(folder: Path, job: Job) -> list[Counted]:
    """Count shards and write their part; return what was counted."""
    part, counted = count(job)
    write_part(folder, part, counted)
    return counted


def added(one: tuple[Part, list[Counted]], other: tuple[Part, list[Counted]]) -> tuple[Part, list[Counted]]:
    """Return the sum of two parts with all that was counted."""
    return one[0] + other[0], [*one[1], *other[1]]


def read_part(folder: Path, key: str) -> tuple[Part, list[Counted]]:
    """Return a part and what was counted; a damaged file is an `InputError` that says what to do."""
    path = folder / f"{key}{ENDING}"
    try:
        header, arrays = SUMS.read(path)
        return Part.from_arrays(header["names"], arrays), read_counted(header["shards"])
    except (InputError, KeyError, TypeError) as error:
        raise InputError(f"{one_line(error)}; delete {path} to have its shards counted again") from None


def add_parts(folder: Path, keys: Iterable[str]) -> tuple[Part, list[Counted]]:
    """Return the sum of parts, added in the order of their keys as given, and what was counted."""
    total: Part | None = None
    counted: list[Counted] = []
    for key in keys:
        part, more = read_part(folder, key)
        total = part if total is None else total + part
        counted += more
    if total is None:
        raise InputError(f"{folder} has no parts to add")
    return total, counted


def list_parts(folder: Path) -> dict[str, list[Counted]]:
    """Return what the parts in a folder have counted, by key, reading their headers alone.

    What an interruption left behind is removed: half-written files, and parts that a larger one contains.
    """
    remove_temporary(folder)
    found: dict[str, list[Counted]] = {}
    for path in sorted(folder.glob(f"*{ENDING}")):
        try:
            header = SUMS.read_header(path)
            counted = read_counted(header["shards"])
        except (InputError, KeyError, TypeError) as error:
            raise InputError(f"{one_line(error)}; delete {path} to have its shards counted again") from None
        if path.name != f"{part_key([one.address for one in counted])}{ENDING}":
            raise InputError(f"{path} has not the name that its shards give it; delete it")
        found[path.name.removesuffix(ENDING)] = counted
    owner: dict[str, str] = {}
    for key in sorted(found, key=lambda key: -len(found[key])):
        addresses = [one.address for one in found[key]]
        owners = {owner.get(address) for address in addresses}
        if owners == {None}:
            owner |= dict.fromkeys(addresses, key)
        elif len(owners) == 1:
            remove_part(folder, key)
            del found[key]
        else:
            raise InputError(f"{folder / key}{ENDING} shares some shards with another part; delete both")
    return found


def remove_part(folder: Path, key: str) -> None:
    """Remove a part, if it is there."""
    (folder / f"{key}{ENDING}").unlink(missing_ok=True)


def read_counted(content: Sequence[Mapping[str, Any]]) -> list[Counted]:
    """Return records of shards from untrusted values."""
    found = [Counted(**one) for one in content]
    for one in found:
        kinds = (str, int, int, str, int, str)
        if not all(type(value) is kind for value, kind in zip(asdict(one).values(), kinds, strict=True)):
            raise InputError(f"a record of a shard is {str(one)[:120]}; expected texts and whole numbers")
    return found
