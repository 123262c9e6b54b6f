"""``make release-check``: build sdist and wheel, look inside, and use the wheel in a clean environment elsewhere.

The wheel is built from the sdist, so a file that the sdist lacks is noticed too. Everything happens in a temporary
folder outside the source tree; with ``--out DIR`` the two files are kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "mlcl"
SDIST_NEEDS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "CITATION.cff",
    "Makefile",
    "constraints.txt",
    "constraints-backbones.txt",
    "constraints-extras.txt",
    "src/mlcl/__init__.py",
    "tests/conftest.py",
    "docs/reference/methods.md",
    "benches",
    "fuzz/readers.py",
    "tools/release_check.py",
)


class CheckError(Exception):
    """The release is not fit to be published; the message says why."""


def package_files(package: Path = PACKAGE) -> set[str]:
    """Return the files that the wheel must hold: all of the package, data included, as paths in the wheel."""
    found = (path for path in package.rglob("*") if path.is_file())
    return {
        path.relative_to(package.parent).as_posix()
        for path in found
        if "__pycache__" not in path.parts and path.suffix not in (".pyc", ".tmp")
    }


def source_version(package: Path = PACKAGE) -> str:
    """Return the version from the one place where it is written."""
    text = (package / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise CheckError(f'{package / "_version.py"} has no line __version__ = "..."')
    return found.group(1)


def check_wheel(names: Iterable[str], expected: Iterable[str]) -> None:
    """Refuse a wheel that lacks a file of the package, or holds something that is not part of it."""
    there = {name for name in names if not name.endswith("/")}
    missing = sorted(set(expected) - there)
    if missing:
        raise CheckError(f"the wheel lacks {len(missing)} files, such as {missing[0]}")
    foreign = sorted(name for name in there if not re.match(r"mlcl/|mlcl-[^/]+\.dist-info/", name))
    if foreign:
        raise CheckError(f"the wheel holds files outside the package, such as {foreign[0]}")
    if not any(name.endswith("/licenses/LICENSE") for name in there):
        raise CheckError("the wheel holds no licence")


def check_sdist(names: Iterable[str], needed: Iterable[str] = SDIST_NEEDS) -> None:
    """Refuse an sdist that one could not test and build from, or that holds what is not source."""
    there = {name.partition("/")[2] for name in names}
    for name in needed:
        if name not in there and not any(other.startswith(f"{name}/") for other in there):
            raise CheckError(f"the sdist lacks {name}")
    for name in sorted(there):
        # Run folders are at the root and in results; src/mlcl/runs and tests/runs are source.
        if re.search(r"(^|/)(\.venv[^/]*|__pycache__|\.git)/|^(results/[^/]+/)?runs/|\.safetensors$", name):
            raise CheckError(f"the sdist holds {name}, which is not source")


def check_metadata(text: str, version: str) -> None:
    """Refuse metadata with another version than the source, or without what an index shows."""
    fields = Parser().parsestr(text)
    if fields["Version"] != version:
        raise CheckError(f"the wheel has version {fields['Version']}, but the source says {version}")
    for name in ("Summary", "Requires-Python", "License-Expression", "Description-Content-Type"):
        if not fields[name]:
            raise CheckError(f"the wheel's metadata has no {name}")
    if not fields.get_payload():
        raise CheckError("the wheel's metadata has no description")


def run(command: Sequence[str | Path], *, cwd: Path, env: dict[str, str]) -> str:
    """Run a command and return what it prints; a failure is told with its output."""
    sys.stderr.write(f"  $ {' '.join(map(str, command))}\n")
    done = subprocess.run(  # noqa: S603  (commands of this file)
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CheckError(
            f"{' '.join(map(str, command))} ended with code {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def build(work: Path, env: dict[str, str]) -> tuple[Path, Path]:
    """Build sdist and wheel and return them, having looked inside."""
    run([sys.executable, "-m", "build", "--outdir", work / "dist", ROOT], cwd=work, env=env)
    (wheel,), (sdist,) = ((work / "dist").glob(pattern) for pattern in ("*.whl", "*.tar.gz"))
    version = source_version()
    with zipfile.ZipFile(wheel) as file:
        check_wheel(file.namelist(), package_files())
        check_metadata(file.read(f"mlcl-{version}.dist-info/METADATA").decode(), version)
    with tarfile.open(sdist) as file:
        check_sdist(file.getnames())
    return sdist, wheel


def use(wheel: Path, work: Path, env: dict[str, str]) -> str:
    """Install the wheel in an environment of its own, use it as a stranger would, and return what a run measured."""
    venv.create(work / "env", with_pip=True)
    home = work / "somewhere"
    home.mkdir()
    binary = work / "env" / ("Scripts" if os.name == "nt" else "bin")
    python, mlcl = binary / "python", binary / "mlcl"
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        ROOT / "constraints.txt",
    ]
    run([*pip, "torch"], cwd=home, env=env)  # alone and first: its exact version takes the CPU build
    run([*pip, wheel], cwd=home, env=env)
    run([python, "-m", "pip", "check"], cwd=home, env=env)
    place = run([python, "-c", "import mlcl; print(mlcl.__file__)"], cwd=home, env=env).strip()
    if not Path(place).resolve().is_relative_to((work / "env").resolve()):
        raise CheckError(f"mlcl was imported from {place}, not from the clean environment")
    version = source_version()
    if run([mlcl, "--version"], cwd=home, env=env).split() != ["mlcl", version]:
        raise CheckError(f"mlcl --version does not say {version}")
    listed = run([mlcl, "ls"], cwd=home, env=env)
    configs = [path.stem for path in (PACKAGE / "config" / "shipped").glob("*.yaml")]
    for word in ("rldam-wru", "wru", "resnet8", *configs):
        if word not in listed:
            raise CheckError(f"mlcl ls does not list {word}")
    tables = run([mlcl, "reproduce", "--help"], cwd=home, env=env)
    for path in (PACKAGE / "sweeps" / "experiments").glob("*.yaml"):
        if path.stem not in tables:
            raise CheckError(f"mlcl reproduce does not know {path.stem}")
    told = run([mlcl, "run", "--train.epochs", "1", "--out", "first"], cwd=home, env=env)
    if told.splitlines()[-1] != "first":
        raise CheckError("the last line of mlcl run is not its folder")
    run([mlcl, "report", "first", "--out", "page.html"], cwd=home, env=env)  # needs the shipped template
    run([mlcl, "theory", "first", "--out", "theory"], cwd=home, env=env)
    run([mlcl, "cp", "c-digits", "mine.yaml"], cwd=home, env=env)
    result = json.loads((home / "first" / "result.json").read_text())
    return f"Macro-AUC {result['macro_auc']:.2f} after one epoch a task, {result['seconds']:.0f} s"


def main() -> int:
    """Build, look, install, use; the exit code is 0 if the release is fit."""
    parser = argparse.ArgumentParser(description="Check that sdist and wheel are fit to be released.")
    parser.add_argument("--out", type=Path, help="folder to keep sdist and wheel in")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlcl-release-") as name:
        work = Path(name).resolve()
        # The source tree must not be found by accident; pip follows the same pins inside isolated builds.
        env = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        env |= {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "MLCL_HOME": str(work / "home")}
        env["OMP_NUM_THREADS"] = "1"  # on a busy machine two threads wait for each other most of the time
        try:
            sdist, wheel = build(work, env)
            measured = use(wheel, work, env)
        except CheckError as error:
            sys.stderr.write(f"release-check: {error}\n")
            return 1
        for file in (sdist, wheel):
            sys.stdout.write(f"{file.name}: {file.stat().st_size / 1024:.0f} kB\n")
            if given.out is not None:
                given.out.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, given.out)
        sys.stdout.write(f"release-check: fit; {measured}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
