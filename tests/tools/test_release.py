"""What ``make release-check`` looks for. The check itself builds and installs, and is too long for a test."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mlcl

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("release_check", ROOT / "tools/release_check.py")
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)

INFO = {"mlcl-1.dist-info/METADATA", "mlcl-1.dist-info/licenses/LICENSE"}


def test_the_version_is_written_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/mlcl/_version.py"
    assert release.source_version() == mlcl.__version__


def test_a_package_without_a_version_is_refused(tmp_path):
    (tmp_path / "_version.py").write_text("version = '1'\n")
    with pytest.raises(release.CheckError, match="has no line __version__"):
        release.source_version(tmp_path)


def test_data_files_are_part_of_the_package():
    files = release.package_files()
    for name in (
        "config/shipped/c-digits.yaml",
        "sweeps/experiments/core.yaml",
        "reports/page.html.jinja",
        "py.typed",
        "cli/main.py",
    ):
        assert f"mlcl/{name}" in files
    assert not [name for name in files if "__pycache__" in name]


def test_a_wheel_without_a_template_or_with_something_foreign_is_refused():
    files = release.package_files()
    release.check_wheel(files | INFO, files)
    with pytest.raises(release.CheckError, match=r"lacks 1 files, such as mlcl/reports/page\.html\.jinja"):
        release.check_wheel((files | INFO) - {"mlcl/reports/page.html.jinja"}, files)
    with pytest.raises(release.CheckError, match="outside the package, such as tests/conftest"):
        release.check_wheel(files | INFO | {"tests/conftest.py"}, files)
    with pytest.raises(release.CheckError, match="no licence"):
        release.check_wheel(files | {"mlcl-1.dist-info/METADATA"}, files)


def test_an_sdist_must_be_whole_and_nothing_but_source():
    names = {f"mlcl-1/{name}" for name in release.SDIST_NEEDS}
    release.check_sdist(
        names | {"mlcl-1/src/mlcl/runs/run.py", "mlcl-1/tests/runs/test_run.py"}
    )  # the package of runs
    for name in release.SDIST_NEEDS:
        with pytest.raises(release.CheckError, match="the sdist lacks"):
            release.check_sdist(names - {f"mlcl-1/{name}"})
    for name in (
        "runs/demo/result.json",
        "results/core/runs/er/result.json",
        ".venv-docs/pyvenv.cfg",
        "src/mlcl/__pycache__/cli.pyc",
        "x/weights.safetensors",
    ):
        with pytest.raises(release.CheckError, match="which is not source"):
            release.check_sdist(names | {f"mlcl-1/{name}"})


METADATA = """Metadata-Version: 2.4
Name: mlcl
Version: 1.2.3
Summary: something
License-Expression: MIT
Requires-Python: >=3.11
Description-Content-Type: text/markdown

# mlcl
"""


def test_metadata_must_fit_the_source():
    release.check_metadata(METADATA, "1.2.3")
    with pytest.raises(release.CheckError, match=r"has version 1\.2\.3, but the source says 1\.2\.4"):
        release.check_metadata(METADATA, "1.2.4")
    with pytest.raises(release.CheckError, match="no Summary"):
        release.check_metadata(METADATA.replace("Summary: something\n", ""), "1.2.3")
    with pytest.raises(release.CheckError, match="no description"):
        release.check_metadata(METADATA.split("\n\n")[0] + "\n\n", "1.2.3")


def test_a_command_that_fails_is_told_with_its_output(tmp_path):
    assert release.run([sys.executable, "-c", "print('well')"], cwd=tmp_path, env={}) == "well\n"
    with pytest.raises(release.CheckError, match=r"(?s)ended with code 3.*out of paint"):
        release.run(
            [sys.executable, "-c", "import sys; print('out of paint'); sys.exit(3)"], cwd=tmp_path, env={}
        )


def test_all_of_the_package_is_in_git():
    """A data file that git ignores is in a developer's wheel and in nobody else's."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    command = [git, "ls-files", "--others", "--ignored", "--exclude-standard", "src/mlcl"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not [line for line in told.splitlines() if "__pycache__" not in line]
