"""The plan of the package, held: the order of the rooms, no import cycle, a small root, one reader of run folders.

Imports are read from the syntax, so those inside functions and under ``TYPE_CHECKING`` count like all others. Each
check is a function over a folder, and is shown to fail on a small package that breaks it.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from children import complete
from mlcl.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "mlcl"
FOUNDATIONS = ("_version", "errors", "files", "arrays", "registry", "labels", "seeds", "plugins", "texts")
ROOMS = (
    *(
        "engines",
        "losses",
        "metrics",
        "memories",
        "encoders",
        "datasets",
        "streams",
        "models",
        "exact",
        "methods",
        "config",
        "training",
    ),
    *("runs", "taggers", "sklearn", "theory", "sweeps", "reports", "integrations", "testing", "cli"),
)
ENTRY_POINTS = ("__init__", "__main__")
"""They name things of all rooms; nothing imports them."""
RUN_FILES = (
    *("result.json", "memory.safetensors", "weights.safetensors", "environment.json", "metrics.jsonl"),
    *(
        "extends.json",
        "trackers.json",
        "calibration.json",
        "thresholds.json",
        "held-out.safetensors",
        "encoder.safetensors",
    ),
)

Graph = dict[str, set[str]]


def modules(package: Path) -> dict[str, Path]:
    """The modules of a package by their dotted names."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(package: Path) -> Graph:
    """Which module imports which, in whatever way."""
    known = modules(package)
    graph: Graph = {name: set() for name in known}
    for name, path in known.items():
        inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for target in _targets(node, inside):
                while target not in known and "." in target:  # a name in a module
                    target = target.rpartition(".")[0]
                if target in known and target != name:
                    graph[name].add(target)
    return graph


def _targets(node: ast.AST, inside: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = inside.split(".")[: len(inside.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{source}.{alias.name}" for alias in node.names)


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else "__init__"


def upward_imports(package: Path) -> list[str]:
    """Imports of a later room by an earlier one, and of an entry point by anything."""
    position = {name: number for number, name in enumerate((*FOUNDATIONS, *ROOMS))}
    found = []
    for name, targets in import_graph(package).items():
        if room(name) in ENTRY_POINTS:
            continue
        for target in targets:
            upward = room(target) in ENTRY_POINTS or position[room(target)] > position[room(name)]
            if upward:
                found.append(f"{name} -> {target}")
    return sorted(found)


def import_cycles(package: Path) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan)."""
    graph = import_graph(package)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in number:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], number[target])
        if low[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in number:
            visit(name)
    return found


def names_that_exist_twice(package: Path) -> set[str]:
    """Public functions and classes that several modules define.

    Each verb of the command line is a function that may be called as what it calls, and rules of `mlcl.testing` share a
    name where they say the same of different kinds of parts: it is printed where a part breaks them.
    """
    found: dict[str, set[str]] = {}
    for module, path in modules(package).items():
        where = room(module) if room(module) == "testing" else module
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                if room(module) == "cli" and node.name in VERBS:
                    continue
                found.setdefault(node.name, set()).add(where)
    return {name for name, places in found.items() if len(places) > 1} - {"main"}


def strangers_in_the_root(package: Path) -> list[str]:
    """Modules and folders of the root that the plan does not name."""
    files = {path.stem for path in package.glob("*.py")} - {*FOUNDATIONS, *ENTRY_POINTS}
    folders = {path.parent.name for path in package.glob("*/*.py")} - {*ROOMS}
    return sorted(files | folders)


def spelt_run_files(package: Path) -> list[str]:
    """Names of a run folder's files in string literals, except for docstrings, in other modules than `runs.folder`."""
    found = []
    for name, path in modules(package).items():
        if name in (f"{package.name}.runs.folder", *_help_texts(package)):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prose = set(_docstrings(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
                found += [f"{name}:{node.lineno}: {word}" for word in RUN_FILES if word in node.value]
    return sorted(found)


def safetensors_imports(package: Path) -> list[str]:
    """Modules that import safetensors, except for the one that knows that arrays are kept so."""
    found = []
    for name, path in modules(package).items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        targets = [target for node in ast.walk(tree) for target in _targets(node, name)]
        if name != f"{package.name}.arrays" and any(
            target.split(".")[0] == "safetensors" for target in targets
        ):
            found.append(name)
    return sorted(found)


def _help_texts(package: Path) -> set[str]:
    """Modules of the command line: their texts may name files to the user."""
    return {name for name in modules(package) if room(name) == "cli"}


def _docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    """Expressions that are only a string: docstrings, of attributes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def outside_citations(root: Path) -> list[str]:
    """Lines that cite a section of a document which is not in the repository."""
    files = [path for part in ("src", "docs") for path in sorted((root / part).rglob("*"))]
    found = []
    for path in files:
        if path.suffix in (".py", ".md", ".yaml", ".ipynb", ".html"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if re.search(r"\bSPEC\s+\d", line):
                    found.append(f"{path.relative_to(root)}:{number}")
    return found


def loads_torch(names: list[str], path: Path) -> str:
    """Import modules in a process of their own; return which of them loaded torch first."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'torch' in sys.modules:\n"
        "        sys.exit(name)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = complete([sys.executable, "-c", code, *names], env=environment)
    return done.stderr.strip()


def test_no_room_imports_a_later_one():
    assert not upward_imports(PACKAGE)


def test_no_modules_import_each_other():
    assert not import_cycles(PACKAGE)


def test_no_name_exists_twice():
    assert not names_that_exist_twice(PACKAGE)


def test_the_root_holds_the_foundations_and_the_rooms():
    assert not strangers_in_the_root(PACKAGE)
    assert len(list(PACKAGE.glob("*.py"))) <= 12


def test_the_foundations_do_not_load_torch():
    names = ["mlcl", *(f"mlcl.{name}" for name in FOUNDATIONS)]
    assert loads_torch(names, PACKAGE.parent) == ""


@pytest.mark.slow
def test_one_module_knows_the_files_of_a_run_folder():
    assert not spelt_run_files(PACKAGE)


def test_one_module_knows_how_arrays_are_kept():
    assert not safetensors_imports(PACKAGE)


def test_nothing_cites_a_document_that_is_not_here():
    assert not outside_citations(ROOT)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"mlcl/__init__.py": "", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "mlcl"


LAZY = "def f():\n    from mlcl.cli.run import main\n    return main\n"
TYPE_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mlcl.runs.folder\n"
STORING = "from safetensors.numpy import save\n"
RUN_FILE = 'from pathlib import Path\nx = Path("a") / "result.json"\n'


@pytest.mark.parametrize(
    ("check", "files", "found"),
    [
        (upward_imports, {"losses/margin.py": LAZY}, ["mlcl.losses.margin -> mlcl.cli.run"]),
        (upward_imports, {"labels.py": TYPE_ONLY}, ["mlcl.labels -> mlcl.runs.folder"]),
        (upward_imports, {"cli/run.py": "import mlcl\n"}, ["mlcl.cli.run -> mlcl"]),
        (upward_imports, {"losses/a.py": "from ..cli import run\n"}, ["mlcl.losses.a -> mlcl.cli.run"]),
        (upward_imports, {"cli/run.py": "from mlcl.runs import folder\n"}, []),
        (upward_imports, {"__main__.py": LAZY}, []),
        (
            import_cycles,
            {"cli/run.py": "from mlcl.cli import options\n", "cli/options.py": LAZY},
            [["mlcl.cli.options", "mlcl.cli.run"]],
        ),
        (
            import_cycles,
            {"runs/folder.py": "import mlcl.a\n", "a.py": "import mlcl.b\n", "b.py": TYPE_ONLY},
            [["mlcl.a", "mlcl.b", "mlcl.runs.folder"]],
        ),
        (import_cycles, {"cli/run.py": "from mlcl.runs import folder\n"}, []),
        (
            strangers_in_the_root,
            {"training.py": "", "utils/a.py": "", "exact/a.py": ""},
            ["training", "utils"],
        ),
        (strangers_in_the_root, {"helpers.py": ""}, ["helpers"]),
        (spelt_run_files, {"reports/gather.py": RUN_FILE}, ["mlcl.reports.gather:2: result.json"]),
        (
            spelt_run_files,
            {"sweeps/a.py": '"""Reads result.json."""\nx = f"{1}/metrics.jsonl"\n'},
            ["mlcl.sweeps.a:2: metrics.jsonl"],
        ),
        (
            safetensors_imports,
            {"arrays.py": STORING, "runs/folder.py": f"def f():\n    {STORING}"},
            ["mlcl.runs.folder"],
        ),
        (spelt_run_files, {"runs/folder.py": RUN_FILE, "cli/run.py": RUN_FILE}, []),
    ],
)
def test_a_package_that_breaks_the_plan_is_noticed(
    check: Callable[[Path], list[object]], files: dict[str, str], found: list[object], tmp_path: Path
):
    modules = {"cli/run.py": "", "runs/folder.py": "", **files}
    assert check(write(tmp_path, {f"mlcl/{name}": text for name, text in modules.items()})) == found


def test_a_citation_and_a_foundation_with_torch_are_noticed(tmp_path):
    package = write(
        tmp_path / "src", {"mlcl/labels.py": "import torch\n", "mlcl/a.py": "# SPEC 3: as there\n"}
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("see SPEC 12\nand specification.md, or spectra\n")
    assert outside_citations(tmp_path) == ["src/mlcl/a.py:1", "docs/a.md:1"]
    write(tmp_path / "src", {"torch/__init__.py": ""})
    assert loads_torch(["mlcl", "mlcl.a"], package.parent) == ""
    assert loads_torch(["mlcl", "mlcl.labels", "mlcl.a"], package.parent) == "mlcl.labels"
