"""The order in which parts are added."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlcl.sklearn.shard_tree import bundles, fitting_tree, grow_tree, nodes_of, to_count

# Names of files need be no Unicode.
sizes = st.dictionaries(st.text("ab\udcff", min_size=1, max_size=6), st.integers(0, 20), max_size=40)


@given(sizes=sizes, group=st.integers(1, 40), fan=st.integers(2, 5))
def test_every_shard_is_in_the_tree_once_and_in_order(sizes, group, fan):
    root = grow_tree(sizes, group=group, fan=fan)
    if root is None:
        assert not sizes
        return
    assert list(root.addresses) == sorted(sizes)
    for node in nodes_of(root):
        assert len(node.children) <= fan
        if node.children:
            assert node.addresses == sum((child.addresses for child in node.children), ())
    groups = list(to_count(root, []))
    assert sum((node.addresses for node in groups), ()) == root.addresses
    assert all(sum(sizes[name] for name in node.addresses) >= group for node in groups[:-1])


@given(sizes=sizes, group=st.integers(1, 10), data=st.data())
def test_after_an_interruption_the_tree_is_the_same(sizes, group, data):
    root = grow_tree(sizes, group=group)
    if root is None:
        return
    left = data.draw(st.lists(st.sampled_from(list(nodes_of(root))), unique_by=lambda node: node.key))
    parts = {node.key: node.addresses for node in left}
    again, loose = fitting_tree(sizes, parts, group=group)
    assert (again, loose) == (root, [])
    missing = sum((node.addresses for node in to_count(root, parts)), ())
    assert set(missing) == set(sizes) - {name for names in parts.values() for name in names}


@given(sizes=sizes, group=st.integers(1, 10), most=st.integers(0, 200), data=st.data())
def test_bundles_are_the_same_groups_and_each_is_a_node(sizes, group, most, data):
    root = grow_tree(sizes, group=group)
    if root is None:
        return
    nodes = list(nodes_of(root))
    there = {node.key for node in data.draw(st.lists(st.sampled_from(nodes)))}
    found = list(bundles(root, there, sizes, most=most))
    assert [node for bundle in found for node in bundle] == list(to_count(root, there))
    known = {node.addresses for node in nodes}
    for bundle in found:
        together = sum((node.addresses for node in bundle), ())
        assert together in known
        assert len(bundle) == 1 or sum(sizes[name] for name in together) <= most


@given(sizes=sizes, group=st.integers(1, 10), data=st.data())
def test_parts_that_have_no_place_any_more_are_kept_apart(sizes, group, data):
    root = grow_tree(sizes, group=group)
    if root is None:
        return
    nodes = data.draw(st.lists(st.sampled_from(list(to_count(root, []))), unique_by=lambda node: node.key))
    parts = {node.key: node.addresses for node in nodes}
    more = data.draw(st.dictionaries(st.text("abcd", min_size=1, max_size=6), st.integers(0, 20), max_size=9))
    again, loose = fitting_tree({**more, **sizes}, parts, group=group)
    inside = () if again is None else again.addresses
    outside = [name for key in loose for name in parts[key]]
    assert sorted([*inside, *outside]) == sorted({**more, **sizes})
