"""Plugins: parts of a user's own, from outside the package.

A plugin is a Python file or an importable module that registers at least one part. It is loaded by ``--plugin`` (or
`load_plugin`), or by the entry-point group ``mlcl.plugins`` of an installed package. Loading runs its code, so a run
folder only *records* its plugins: one that was never given on this machine is not loaded because a file names it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
import types
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from mlcl.errors import InputError, one_line
from mlcl.files import cache_dir, read_object, write_json
from mlcl.registry import REGISTRATIONS

GROUP = "mlcl.plugins"
"""The entry-point group that installed packages announce their plugins in."""
TRUSTED = "plugins.json"
"""In the cache: the plugins that were given by hand on this machine, by their SHA-256."""
MAX_BYTES = 16 << 20
RULES = "expected parts registered with a decorator such as @MEMORIES.register(...); see docs/extending.md"


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
_entry_points_loaded = False


def loaded_plugins() -> tuple[Plugin, ...]:
    """Return the plugins that were loaded in this process."""
    return tuple(_loaded.values())


def load_plugin(source: str | Path) -> Plugin:
    """Load ``FILE.py`` or ``package.module``, once; what is wrong with it is an `InputError` with file and line."""
    plugin = find_plugin(source)
    ensure_loaded(plugin)
    _trust(plugin)
    return plugin


def find_plugin(source: str | Path) -> Plugin:
    """Return a plugin without running any of its code."""
    name = str(source)
    if name.endswith(".py"):
        path = Path(name).expanduser().absolute()
        try:
            if path.stat().st_size > MAX_BYTES:
                raise InputError(f"plugin {path}: larger than {MAX_BYTES} bytes; expected a Python file.")
            code = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"plugin {path}: cannot be read: {error.strerror}; expected a Python file."
            ) from None
        return Plugin(str(path), hashlib.sha256(code).hexdigest(), code)
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"plugin {name!r} is neither FILE.py nor package.module.")
    return Plugin(name, _module_digest(name))


def _module_digest(name: str) -> str:
    """Return the SHA-256 of a module's file, or of all Python files of a package."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise InputError(f"plugin {name!r} cannot be imported: {one_line(error)}.") from None
    if spec is None or spec.origin is None:
        raise InputError(
            f"plugin {name!r} was not found; expected FILE.py, or a module that can be imported."
        )
    origin = Path(spec.origin)
    files = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


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
    count, REGISTRATIONS.owner = len(REGISTRATIONS), plugin.source
    try:
        _execute(plugin)
        if len(REGISTRATIONS) == count:
            raise InputError(f"plugin {plugin.source} registers nothing; {RULES}.")
    except InputError as error:
        REGISTRATIONS.undo_to(count)
        named = Path(plugin.source).name in str(error)
        raise error if named else InputError(f"plugin {_place(plugin, error)} {error}") from None
    except Exception as error:  # somebody's code: whatever it raises, this is where
        REGISTRATIONS.undo_to(count)
        raise InputError(
            f"plugin {_place(plugin, error)} cannot be loaded: {type(error).__name__}: {one_line(error)}."
        ) from None
    finally:
        REGISTRATIONS.owner = ""
    _loaded[plugin.source] = plugin


def _execute(plugin: Plugin) -> None:
    if plugin.code is None:
        sys.modules.pop(plugin.source, None)  # imported before it was a plugin: its parts are registered now
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


def _place(plugin: Plugin, error: Exception) -> str:
    """Return file and line of an error in a plugin's own code."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.filename}, line {error.lineno},"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == plugin.source]
    if plugin.code is None:
        frames = traceback.extract_tb(error.__traceback__)
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
            if given.sha256 != digest:
                warnings.warn(_changed(folder, given, digest), UserWarning, stacklevel=3)
            continue
        if source.endswith(".py") and not Path(source).is_file():
            raise InputError(
                f"{folder} was made with the plugin {source}, which is missing now; give the file with --plugin FILE.py"
            )
        if digest not in _trusted():
            raise InputError(
                f"{folder} was made with the plugin {source}, which was never given on this machine; to run its code, "
                f"give it with --plugin {source}"
            )
        plugin = find_plugin(source)
        if plugin.sha256 != digest:
            raise InputError(
                f"{_changed(folder, plugin, digest)}; to use it as it is now, give it with --plugin {source}"
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


def _trusted() -> set[str]:
    try:
        return set(read_object(cache_dir() / TRUSTED, limit=MAX_BYTES))
    except InputError:
        return set()


def _trust(plugin: Plugin) -> None:
    """Note that a plugin was given by hand here; without a cache to write to, it has to be given again."""
    if plugin.sha256 in _trusted():
        return
    path = cache_dir() / TRUSTED
    try:
        known = read_object(path, limit=MAX_BYTES) if path.is_file() else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, known | {plugin.sha256: plugin.source})
    except (InputError, OSError):
        return
