"""In which order the sums of shards are added: a tree that depends on the shards alone.

Floating-point sums depend on their order. Here the order is that of the addresses, whoever counts a shard first, so
one worker and many give the same bits. A node of the tree is named after its shards; on the disk it replaces the nodes
below it, so that only a few parts are kept however many shards there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

FAN = 8
"""How many parts are added at once."""


@dataclass(frozen=True)
class Node:
    """Some shards, and of what parts their sums are made.

    Attributes:
        addresses: of the shards, in order.
        children: the parts; none where the shards are counted in one go.
    """

    addresses: tuple[str, ...]
    children: tuple[Node, ...] = ()

    @cached_property
    def key(self) -> str:
        """The name of the part."""
        return part_key(self.addresses)


def part_key(addresses: Sequence[str]) -> str:
    """Return the name of the part that has counted these shards."""
    return hashlib.sha256("\n".join(addresses).encode(errors="surrogateescape")).hexdigest()[:32]


def grow_tree(sizes: Mapping[str, int], *, group: int, fan: int = FAN) -> Node | None:
    """Return the tree over some shards; None if there are none.

    Args:
        sizes: bytes of each shard, by address.
        group: consecutive shards are counted in one go until they have so many bytes: sums that are larger than the
            rows they stand for would cost more to keep than to count again.
        fan: how many parts a node adds.

    >>> root = grow_tree({"b": 9, "a": 9, "c": 9, "d": 2, "e": 2}, group=4, fan=3)
    >>> [child.addresses for child in root.children]
    [('a', 'b', 'c'), ('d', 'e')]
    >>> [child.addresses for child in root.children[0].children]
    [('a',), ('b',), ('c',)]
    """
    level = [Node(addresses) for addresses in _groups(sizes, group)]
    while len(level) > 1:
        above = []
        for start in range(0, len(level), fan):
            children = tuple(level[start : start + fan])
            addresses = tuple(address for child in children for address in child.addresses)
            above.append(children[0] if len(children) == 1 else Node(addresses, children))
        level = above
    return level[0] if level else None


def _groups(sizes: Mapping[str, int], group: int) -> Iterator[tuple[str, ...]]:
    taken: list[str] = []
    held = 0
    for address in sorted(sizes):
        taken.append(address)
        held += sizes[address]
        if held >= group:
            yield tuple(taken)
            taken, held = [], 0
    if taken:
        yield tuple(taken)


def nodes_of(root: Node) -> Iterator[Node]:
    """Yield all nodes of a tree, children before their parents."""
    for child in root.children:
        yield from nodes_of(child)
    yield root


def to_count(root: Node, there: Collection[str]) -> Iterator[Node]:
    """Yield the groups of shards that are still to be counted, in order.

    Args:
        root: the tree.
        there: keys of the parts that are on the disk.
    """
    if root.key in there:
        return
    if not root.children:
        yield root
    for child in root.children:
        yield from to_count(child, there)


def bundles(
    root: Node, there: Collection[str], sizes: Mapping[str, int], *, most: int
) -> Iterator[tuple[Node, ...]]:
    """Yield the same groups, those together that a node adds up and that may be lost together.

    Args:
        root: the tree.
        there: keys of the parts that are on the disk.
        sizes: bytes of each shard, by address.
        most: a bundle has at most so many bytes; larger groups are worth a part of their own.

    >>> sizes = {"a": 9, "b": 9, "c": 9, "d": 2, "e": 2}
    >>> root = grow_tree(sizes, group=4, fan=3)
    >>> [[node.addresses for node in bundle] for bundle in bundles(root, [], sizes, most=30)]
    [[('a',), ('b',), ('c',)], [('d', 'e')]]
    >>> [len(bundle) for bundle in bundles(root, [], sizes, most=20)]
    [1, 1, 1, 1]
    """
    if root.key in there:
        return
    if not root.children:
        yield (root,)
    elif (
        not any(child.children or child.key in there for child in root.children)
        and sum(sizes[address] for address in root.addresses) <= most
    ):
        yield root.children
    else:
        for child in root.children:
            yield from bundles(child, there, sizes, most=most)


def fitting_tree(
    sizes: Mapping[str, int], parts: Mapping[str, Sequence[str]], *, group: int
) -> tuple[Node | None, list[str]]:
    """Return a tree of all shards whose nodes include the parts on the disk, and the parts that fit into none.

    After an interruption every part is a node of the tree, and the result has the same bits as without it. If
    shards have come or gone since, a part may have no place; it stays as it is and is added at the end.

    Args:
        sizes: bytes of each shard that is not in the tagger yet, by address: those to count and those in parts.
        parts: the addresses in each part, by key.
        group: see `grow_tree`.

    >>> part = part_key(["a", "c"])
    >>> root, loose = fitting_tree({"a": 1, "b": 1, "c": 1}, {part: ["a", "c"]}, group=1)
    >>> root.addresses, loose == [part]
    (('b',), True)
    """
    loose: list[str] = []
    while True:
        outside = {address for key in loose for address in parts[key]}
        root = grow_tree({name: size for name, size in sizes.items() if name not in outside}, group=group)
        known = {node.key for node in nodes_of(root)} if root is not None else set()
        more = [key for key in parts if key not in known and key not in loose]
        if not more:
            return root, sorted(loose, key=lambda key: list(parts[key]))
        loose += more
