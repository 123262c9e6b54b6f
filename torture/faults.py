"""One fault at every call of the system of a command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torture.scenes import Scene, command, complaint, in_a_child
from torture.shim import DIED, KINDS, Allocations, Shim, places


@dataclass(frozen=True)
class Outcome:
    """What became of one attack.

    Attributes:
        scene: the command.
        kind: of the attack.
        where: the call, the file or the second command.
        wrong: what is wrong with the end; nothing for a survivor.
    """

    scene: str
    kind: str
    where: str
    wrong: str = ""


def attack(scene: Scene, root: Path, *, kinds: tuple[str, ...] = KINDS, every: int = 1) -> Iterator[Outcome]:
    """Let a command fail at each ``every``-th place in each way, and yield what became of it."""
    scene.begin(root)
    before = scene.worth(root)
    for kind in kinds:
        scene.begin(root)
        with _shim(root, kind).installed() as shim:
            end = scene.run(root)
        if end[0]:
            raise RuntimeError(f"{scene.name}: {end[1]}")
        after = scene.worth(root)
        for at in places(shim.calls, kind)[::every]:
            yield Outcome(scene.name, kind, shim.calls[at], _one(scene, root, at, kind, before, after))


def _shim(root: Path, kind: str, at: int = -1) -> Shim | Allocations:
    return Allocations(at) if kind == "memory" else Shim(root, at=at, kind=kind)


def _one(scene: Scene, root: Path, at: int, kind: str, before: str, after: str) -> str:
    scene.begin(root)
    shim = _shim(root, kind, at)
    if kind == "die":

        def work() -> tuple[int, str]:
            with shim.installed():
                return scene.run(root)

        if (code := in_a_child(work)) != DIED:
            return f"ended with {code} before it died"
    else:
        with shim.installed():
            code, said = scene.run(root)
        if wrong := complaint(code, said):
            return wrong
        if kind == "short" and code:
            return f"a short write was not continued: {said}"
        left = [str(path.relative_to(root)) for path in root.rglob(".mlcl-*.tmp")]
        if left and not shim.calls[at].startswith("unlink"):
            return f"left {left}"
    return _mended(scene, root, before, after)


def _mended(scene: Scene, root: Path, before: str, after: str) -> str:
    """Return what is wrong with a folder after a fault, and after the command was repeated."""
    now = scene.worth(root) if root.exists() else before
    if scene.start is not None and now not in (before, after):
        return f"does not load: {now}"
    if root.exists() and (wrong := complaint(*command("check", root, "--repair"))):
        return f"check: {wrong}"
    if now != after:
        code, said = scene.repeat(root)
        if code or scene.worth(root) != after:
            return f"repeated, it ended with {code}, as {scene.worth(root)} instead of {after}: {said}"
    return ""
