"""Plugins: parts of a user's own, from outside the package.

A plugin is a Python file or an importable module that registers at least one part. It is loaded by ``--plugin`` (or
`load_plugin`), or by the entry-point group ``mlcl.plugins`` of an installed package. Loading runs its code, so a run
folder only *records* its plugins: one that was never given on this machine is not loaded because a file names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import shlex
import sys
import traceback
import types
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from mlcl.errors import InputError, one_line
from mlcl.files import cache_dir, read_bounded
from mlcl.registry import REGISTRATIONS

GROUP = "mlcl.plugins"
"""The entry-point group that installed packages announce their plugins in."""
TRUSTED = "plugins"
"""In the cache: one empty file for each plugin that was given by hand on this machine; see `_trust_file`."""
MAX_BYTES = 16 << 20
RULES = (
    "expected parts registered with a decorator such as @MEMORIES.register(...); see docs/howto/own-part.md"
)


@dataclass(frozen=True)
class Plugin:
    """A plugin.

    Attributes:
        source: the absolute path of a file, or the name of a module.
        sha256: of the file's content; of a package, of all its Python files.
        code: the content of a file, so that a worker elsewhere runs what was loaded here; None for a module.
    """

    source: str
    sha256: str
    code: bytes | None = field(default=None, repr=False, compare=False)

    def record(self) -> dict[str, str]:
        """Return what a run folder keeps of it."""
        return {"source": self.source, "sha256": self.sha256}


_loaded: dict[str, Plugin] = {}
_warned: set[str] = set()
_entry_points_loaded = False


def loaded_plugins() -> tuple[Plugin, ...]:
    """Return the plugins that were loaded in this process."""
    return tuple(_loaded.values())


def load_plugin(source: str | Path) -> Plugin:
    """Load ``FILE.py`` or ``package.module``, once; a plugin that cannot be loaded is an `InputError` with its line.

    >>> load_plugin("my parts")
    Traceback (most recent call last):
    mlcl.errors.InputError: plugin 'my parts' is neither FILE.py nor package.module.
    """
    plugin = find_plugin(source)
    ensure_loaded(plugin)
    _trust(plugin)
    return plugin


def find_plugin(source: str | Path) -> Plugin:
    """Return a plugin without running any of its code."""
    name = str(source)
    if name.lower().endswith(".py"):
        path = Path(name).expanduser().resolve()
        try:
            code = read_bounded(path, limit=MAX_BYTES, expected="a Python file")
        except InputError as error:
            raise InputError(f"plugin {error}") from None
        return Plugin(str(path), hashlib.sha256(code).hexdigest(), code)
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"plugin {name!r} is neither FILE.py nor package.module.")
    digest = hashlib.sha256()
    for label, file in _module_files(name):
        digest.update(label.encode() + b"\0" + file.read_bytes())
    return Plugin(name, digest.hexdigest())


def _module_files(name: str) -> list[tuple[str, Path]]:
    """Return the file of a module, or all Python files of a package, found without importing a parent of it."""
    parts = name.split(".")
    try:
        spec = importlib.util.find_spec(parts[0])  # by all finders, those of editable installs too
    except (ImportError, ValueError):
        spec = None
    path = list(spec.submodule_search_locations or []) if spec is not None else []
    for count in range(2, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), path) if path else None
        path = list(spec.submodule_search_locations or []) if spec is not None else []
    if spec is None or spec.origin is None:
        raise InputError(
            f"plugin {name!r} was not found; expected FILE.py, or a module that can be imported."
        )
    origin = Path(spec.origin)
    if not path:
        return [(origin.name, origin)]
    return [
        (file.relative_to(origin.parent).as_posix(), file) for file in sorted(origin.parent.rglob("*.py"))
    ]


def ensure_loaded(plugin: Plugin) -> None:
    """Load a plugin unless it is; also in a worker, which runs the code that was loaded where the run was planned."""
    before = _loaded.get(plugin.source)
    if before is not None:
        if before.sha256 != plugin.sha256:
            raise InputError(
                f"plugin {plugin.source} was loaded with another content (sha256 {before.sha256[:12]}, now "
                f"{plugin.sha256[:12]}); expected a new process."
            )
        return
    if plugin.code is not None and any(known.sha256 == plugin.sha256 for known in _loaded.values()):
        return  # a copy of a file that is loaded
    count, REGISTRATIONS.owner = len(REGISTRATIONS), plugin.source
    try:
        _execute(plugin)
        found = len(REGISTRATIONS) - count
        if plugin.code is None:  # it may have been imported before it was given
            found = REGISTRATIONS.adopt(plugin.source, plugin.source)
        if not found:
            raise InputError(f"plugin {plugin.source} registers nothing; {RULES}.")
    except BaseException as error:  # somebody's code: whatever it raises, nothing of it stays
        REGISTRATIONS.undo_to(count)
        if not isinstance(error, Exception | SystemExit):
            raise
        raise InputError(_failure(plugin, error)) from None
    finally:
        REGISTRATIONS.owner = ""
    _loaded[plugin.source] = plugin


def _execute(plugin: Plugin) -> None:
    if plugin.code is None:
        importlib.import_module(plugin.source)
        return
    name = f"mlcl_plugin_{Path(plugin.source).stem}_{plugin.sha256[:8]}"
    module = types.ModuleType(name)
    module.__file__ = plugin.source
    sys.modules[name] = module  # before it runs: pickle, dataclasses and type hints look it up
    try:
        exec(compile(plugin.code, plugin.source, "exec"), module.__dict__)  # noqa: S102  (that is what a plugin is)
    except BaseException:
        del sys.modules[name]
        raise


def _failure(plugin: Plugin, error: BaseException) -> str:
    """Return a sentence with file and line of an error in a plugin's own code."""
    if isinstance(error, InputError):
        named = Path(plugin.source).name in str(error)
        return str(error) if named else f"plugin {_place(plugin, error)} {error}"
    what = f"{type(error).__name__}: {one_line(error)}"
    return f"plugin {_place(plugin, error)} cannot be loaded: {what}."


def _place(plugin: Plugin, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.filename}, line {error.lineno},"
    files = {plugin.source} if plugin.code is not None else {str(f) for _, f in _module_files(plugin.source)}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}, line {frames[-1].lineno}," if frames else plugin.source


def load_entry_points() -> None:
    """Load the plugins of installed packages, once per process."""
    global _entry_points_loaded
    if _entry_points_loaded:
        return
    _entry_points_loaded = True
    for entry in metadata.entry_points(group=GROUP):
        try:
            ensure_loaded(find_plugin(entry.value))
        except InputError as error:
            package = entry.dist.name if entry.dist else "an installed package"
            raise InputError(f"{error} (entry point {entry.name!r} of {package})") from None


def load_recorded(records: Iterable[Mapping[str, Any]], *, folder: Path) -> None:
    """Make sure that the plugins a run was made with are loaded; a missing or changed one is an `InputError`.

    A plugin that was given by ``--plugin`` is used as it is, with a warning if it has changed. Another one is loaded
    from where it was, if it was given by hand on this machine before; a record alone never makes code run.

    Args:
        records: what the run folder holds of each plugin.
        folder: of the run, for messages.
    """
    for record in records:
        source, digest = str(record.get("source")), str(record.get("sha256"))
        given = _loaded.get(source) or _loaded_elsewhere(source)
        if given is not None:
            sentence = _changed(folder, given, digest)
            if given.sha256 != digest and sentence not in _warned:
                _warned.add(sentence)
                warnings.warn(sentence, UserWarning, stacklevel=3)
            continue
        if source.endswith(".py") and not Path(source).is_file():
            raise InputError(
                f"{folder} was made with the plugin {source}, which is missing now; give the file with --plugin FILE.py"
            )
        if not _trust_file(digest, source).is_file():
            raise InputError(
                f"{folder} was made with the plugin {source}, which was never given on this machine; to run its code, "
                f"give it with --plugin {shlex.quote(source)}"
            )
        plugin = find_plugin(source)
        if plugin.sha256 != digest:
            raise InputError(
                f"{_changed(folder, plugin, digest)}; to use it as it is now, give it with --plugin "
                f"{shlex.quote(source)}"
            )
        ensure_loaded(plugin)


def _changed(folder: Path, plugin: Plugin, digest: str) -> str:
    return (
        f"the plugin {plugin.source} has changed since {folder} was made (sha256 {digest[:12]}, now "
        f"{plugin.sha256[:12]})"
    )


def _loaded_elsewhere(source: str) -> Plugin | None:
    """Return a loaded file of the same name: the plugin has moved, with its run or to another machine."""
    name = Path(source).name
    found = [plugin for key, plugin in _loaded.items() if key.endswith(".py") and Path(key).name == name]
    return found[0] if source.endswith(".py") and found else None


def _trust_file(digest: str, source: str) -> Path:
    """Return the file that is there if a plugin of this content was given by hand here, from this very source."""
    return cache_dir() / TRUSTED / hashlib.sha256(f"{digest} {source}".encode()).hexdigest()


def _trust(plugin: Plugin) -> None:
    """Note that a plugin was given by hand here; without a cache to write to, it has to be given again."""
    path = _trust_file(plugin.sha256, plugin.source)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
