"""The documentation's code runs as it stands: examples of pages, and notebooks; links lead somewhere."""

from __future__ import annotations

import doctest
import hashlib
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mlcl
import mlcl.testing
from mlcl import plugins
from mlcl.cli.main import main
from mlcl.config.parts import REGISTRIES
from mlcl.datasets import SOURCES
from mlcl.memories import MEMORIES
from mlcl.methods.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))

import site_pages  # noqa: E402
from site_pages import (  # noqa: E402
    ROOT_PAGES,
    expand_nav,
    loaded_from_elsewhere,
    notebook_page,
    page_name,
    site_links,
)

PAGES = [ROOT / name for name in ROOT_PAGES] + sorted(DOCS.rglob("*.md"))
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
OWN = ("part", "loss", "memory", "dataset", "method", "model")
EXTENDING = "\n".join((DOCS / "howto" / f"own-{name}.md").read_text(encoding="utf-8") for name in OWN)
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in ("index.md", "howto/own-part.md")
    for number, block in enumerate(
        re.findall(r"```python[^\n]*\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    )
]
PLUGIN = re.findall(r'```python title="my_parts.py"\n(.*?)```', EXTENDING, re.DOTALL)[0]
COMMANDS = "\n".join(re.findall(r"```sh\n(.*?)```", EXTENDING, re.DOTALL)).splitlines()


@pytest.fixture
def own_registries(monkeypatch):
    """Let an example register what it likes, without a trace in other tests."""
    for registry in (*REGISTRIES.values(), SOURCES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(plugins, "_loaded", {})
    before = dict(PRESETS)
    yield
    PRESETS.clear()
    PRESETS.update(before)


@pytest.fixture
def my_parts(tmp_path, monkeypatch):
    """The plugin of docs/howto/own-memory.md, in the current folder, on a machine where no plugin was given yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "home"))
    (tmp_path / "my_parts.py").write_text(PLUGIN, encoding="utf-8")
    return tmp_path / "my_parts.py"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own, with the package under test."""
    path = os.pathsep.join([str(Path(mlcl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "mlcl", *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
    )


@pytest.mark.slow
@pytest.mark.usefixtures("own_registries", "my_parts")
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_a_page_runs(block):
    exec(compile(block, "docs", "exec"), {"__name__": "example"})


def test_there_is_an_example_for_each_part_that_can_be_added():
    for name in ("LOSSES", "MEMORIES", "SOURCES", "REGULARISERS", "MODELS"):
        assert f"@{name}.register(" in EXTENDING
    assert "PRESETS[" in EXTENDING
    for check in (name for name in mlcl.testing.__all__ if name.startswith("check_")):
        assert f"#mlcl.testing.{check})" in EXTENDING


FEWER = ["--stream.tasks", "2", "--train.epochs", "1", "--train.batch_size", "256", "--model.width", "2"]
"""What a run of a page is given here, to be short."""


@pytest.mark.slow
@pytest.mark.usefixtures("my_parts")
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_with_a_plugin_runs(line, tmp_path, capsys, monkeypatch):
    """What is trained is trained in a process of its own, as a user does; what is only shown, in this one."""
    program, *words = shlex.split(line)
    assert program == "mlcl"
    if "run" not in words or "--help" in words:
        monkeypatch.setenv("COLUMNS", "200")
        assert main(words) == 0
        assert ("richest" if "ls" in words else "--memory.fraction X") in capsys.readouterr().out
        return
    done = command(*words, *FEWER, "--out", "out")
    assert done.returncode == 0, done.stderr
    recorded = json.loads((tmp_path / "out" / "environment.json").read_text())["plugins"]
    digest = hashlib.sha256(PLUGIN.encode()).hexdigest()
    assert recorded == [{"source": str(tmp_path / "my_parts.py"), "sha256": digest}]
    config = json.loads((tmp_path / "out" / "result.json").read_text())["config"]
    assert (config["memory"]["kind"], config["memory"]["fraction"]) == ("richest", 0.5)


def test_the_commands_of_the_page_are_found():
    assert {line.split()[1] for line in COMMANDS} == {"ls", "run", "explain"}
    assert all("--plugin my_parts.py" in line for line in COMMANDS)


@pytest.mark.usefixtures("my_parts")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory", "wru", "--memory.fraction", "0.5"], "its options are: candidates, criterion, shrink"),
        (["--memory", "richest", "--memory.fraction", "2"], "error: memory.fraction is 2"),
    ],
)
def test_options_of_a_plugin_are_checked_before_anything_is_trained(options, message, capsys):
    assert main(["run", "--plugin", "my_parts.py", *options]) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.fixture
def opened(my_parts, own_registries, monkeypatch):
    """A function that opens a run made with my_parts.py in a new process of this machine, as `mlcl predict` does."""
    plugin = plugins.load_plugin(my_parts)

    def open_run(*given: Path) -> None:
        monkeypatch.setattr(plugins, "_loaded", {})
        for registry in REGISTRIES.values():
            names = [name for name in registry.names() if registry.owner(name)]
            monkeypatch.setattr(
                registry, "_entries", {k: v for k, v in registry._entries.items() if k not in names}
            )
        for path in given:
            plugins.load_plugin(path)
        plugins.load_recorded([plugin.record()], folder=Path("out"))
        assert "richest" in MEMORIES.names()

    return open_run


def test_a_plugin_that_was_given_before_is_loaded_from_the_recorded_path(opened):
    opened()


def test_a_plugin_that_was_never_given_here_is_refused(opened, monkeypatch, tmp_path):
    monkeypatch.setenv("MLCL_HOME", str(tmp_path / "another-machine"))
    with pytest.raises(mlcl.InputError, match=r"never given on this machine; .* --plugin .*my_parts\.py"):
        opened()
    assert "richest" not in MEMORIES.names()


def test_a_missing_plugin_is_named_and_taken_from_where_it_is_now(opened, my_parts, tmp_path):
    moved = tmp_path / "elsewhere" / "my_parts.py"
    moved.parent.mkdir()
    my_parts.rename(moved)
    with pytest.raises(mlcl.InputError, match=rf"{re.escape(str(my_parts))}, which is missing now"):
        opened()
    opened(moved)


def test_a_changed_plugin_is_refused_unless_it_is_given(opened, my_parts):
    my_parts.write_text(PLUGIN + "\n", encoding="utf-8")
    with pytest.raises(mlcl.InputError, match=r"has changed since .*sha256 [0-9a-f]{12}, now [0-9a-f]{12}"):
        opened()
    with pytest.warns(UserWarning, match="has changed since"):
        opened(my_parts)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_of_this_name", r"bad\.py, line 1, cannot be loaded: ModuleNotFoundError"),
        ("x = 1", r"bad\.py registers nothing"),
        (
            PLUGIN.replace('"richest"', '"wru"'),
            r"bad\.py:\d+: memory 'wru' is registered already, in .*wru\.py",
        ),
        (PLUGIN + "\n1 / 0\n", r"bad\.py, line \d+, cannot be loaded: ZeroDivisionError"),
    ],
    ids=["import", "nothing", "twice", "late"],
)
@pytest.mark.usefixtures("own_registries", "my_parts")
def test_nothing_of_a_bad_plugin_stays_registered(code, message):
    before = MEMORIES.names()
    Path("bad.py").write_text(code, encoding="utf-8")
    with pytest.raises(mlcl.InputError, match=message):
        plugins.load_plugin("bad.py")
    assert MEMORIES.names() == before


def test_the_entry_point_of_the_page_is_the_group_that_is_read():
    (snippet,) = re.findall(r"```toml\n(.*?)```", EXTENDING, re.DOTALL)
    assert list(tomllib.loads(snippet)["project"]["entry-points"]) == [plugins.GROUP]


def cells(notebook: Path, kind: str) -> list[dict]:
    return [
        cell
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == kind
    ]


SMALLER = {
    "quick-start": (
        '{"epochs": 2, "batch_size": 64}',
        '{"epochs": 1, "batch_size": 256}, "model": {"width": 2}',
    ),
    "compare-methods": ('"epochs": 10,', '"epochs": 2,'),
}
"""The line of a notebook that says how much is trained, and what it is here."""


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:.*hardly learnt")
def test_a_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    space = {"__name__": "__main__"}
    large, small = SMALLER.get(notebook.stem, ("", ""))
    sources = {cell["id"]: "".join(cell["source"]) for cell in cells(notebook, "code")}
    assert not large or sum(source.count(large) for source in sources.values()) == 1
    for name, source in sources.items():
        text = source.replace(large, small) if large else source
        exec(compile(text, f"{notebook.name}:{name}", "exec"), space)


def test_the_quick_start_needs_no_path_of_a_machine_and_installs_a_wheel():
    (notebook,) = (path for path in NOTEBOOKS if path.stem == "quick-start")
    text = "".join("".join(cell["source"]) for cell in cells(notebook, "code"))
    assert not re.search(r"[\"'](?:/|~|file:|https?:)", text)
    assert "mlcl-*.whl" in text


def test_notebooks_are_stored_without_outputs():
    assert {path.stem for path in NOTEBOOKS} >= {
        "quick-start",
        "the-loss-in-your-loop",
        "compare-methods",
    }
    for notebook in NOTEBOOKS:
        assert all(
            cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(notebook, "code")
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_inside_the_repository_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    for target in targets:
        path = target.partition("#")[0]
        assert not path or ":" in path or (page.parent / path).exists(), target


def test_the_api_has_a_page_for_every_public_name():
    """A name of `mlcl` is documented where it is defined, and a room's page documents the room."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("api/*.md"))
    documented = set(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
    index = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    for name in set(mlcl.__all__) - {"__version__"}:
        room = mlcl._HOME[name]
        assert room in documented, room
        assert f"#{room}.{name})" in index, name
        exported = getattr(importlib.import_module(room), "__all__", None)
        assert exported is None or name in exported


def test_links_of_the_repository_become_links_of_the_site():
    text = "[a](../../README.md#results) [b](results.md) ![c](../images/gallery/run.png) [d](../../Makefile) [e](https://x.org/y)"
    assert site_links(text, file="docs/evidence/verdicts.md", page="evidence/verdicts.md", root=ROOT) == (
        "[a](../readme.md#results) [b](results.md) ![c](../images/gallery/run.png) d [e](https://x.org/y)"
    )
    text = "[a](docs/reference/methods.md) ![b](docs/images/gallery/run.png) [c](CONTRIBUTING.md) [d](no.md) [e](#here)"
    assert site_links(text, file="README.md", page="readme.md", root=ROOT) == (
        "[a](reference/methods.md) ![b](images/gallery/run.png) [c](contributing.md) [d](no.md) [e](#here)"
    )
    text = "[a](../results.md) [b](../../CHANGELOG.md) [c](compare-methods.ipynb)"
    found = site_links(text, file="docs/notebooks/x.ipynb", page="notebooks/x.md", root=ROOT)
    assert found == "[a](../results.md) [b](../changelog.md) [c](compare-methods.md)"
    text = "[a](../../examples/pytorch_loop.py) [b](../../examples/nowhere.py)"
    found = site_links(text, file="docs/guides/x.md", page="guides/x.md", root=ROOT)
    assert found == "[a](../examples/pytorch_loop.md) [b](../../examples/nowhere.py)"
    code = "```\n[a](../README.md)\n```\n"
    assert site_links(code, file="docs/x.md", page="x.md", root=ROOT) == code


def test_a_page_is_found_by_one_pattern_only():
    nav = ["index.md", {"A": ["a/first.md", "a/*.md"]}, {"B": "b.md"}, "*.md", "none/*.md"]
    found = expand_nav(nav, ["index.md", "b.md", "c.md", "a/first.md", "a/x.md", "a/n.ipynb"])
    assert found == ["index.md", {"A": ["a/first.md", "a/x.md"]}, {"B": "b.md"}, "c.md"]


def test_a_notebook_is_a_page_that_holds_all_of_it():
    for notebook in NOTEBOOKS:
        page = notebook_page(notebook.read_text(encoding="utf-8"), notebook.name)
        for kind in ("markdown", "code"):
            assert all("".join(cell["source"]) in page for cell in cells(notebook, kind))
        assert page.startswith("# ")
        assert page_name(notebook.name) == f"{notebook.stem}.md"


@pytest.mark.parametrize(
    ("html", "foreign"),
    [
        ('<script src="https://x.org/a.js"></script>', True),
        ("<script src=//x.org/a.js></script>", True),
        ('<link rel="stylesheet" href="https://x.org/a.css">', True),
        ('<img alt="" src="https://x.org/a.png">', True),
        ('<link rel="canonical" href="https://x.org/">', False),
        ('<a href="https://x.org/">x</a><script src="assets/a.js"></script>', False),
    ],
)
def test_what_a_browser_would_fetch_elsewhere_is_found(html, foreign):
    assert bool(loaded_from_elsewhere(html)) is foreign


def test_examples_of_the_sites_functions():
    found = doctest.testmod(site_pages)
    assert found.attempted > 5
    assert not found.failed


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"\b(?:tests|src/mlcl|tools|benches)/[\w/]+\.py\b", page.read_text(encoding="utf-8"))
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_rows_of_tables_have_the_cells_of_their_head(page):
    """A bar that is not escaped, outside code, would begin a cell of its own."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"(?:^[ ]*\|.*\n)+", text, re.MULTILINE):
        rows = [re.sub(r"`[^`]*`|\\\|", "", line).count("|") for line in block.splitlines()]
        assert set(rows) == {rows[0]}, block.splitlines()[next(i for i, n in enumerate(rows) if n != rows[0])]


def test_every_link_of_the_notebook_leads_somewhere():
    """`lab` is kept as it is, except for links to what has moved."""
    for page in (ROOT / "lab").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert ":" in target or (page.parent / target).exists(), (page, target)
