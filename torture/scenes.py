"""The commands under test on tiny data, and what their folders must be worth before and after."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlcl.cli.main import main
from mlcl.config.resolve import to_yaml
from mlcl.errors import InputError
from mlcl.files import is_there
from mlcl.runs import folder as files
from mlcl.runs.continuing import update
from mlcl.runs.versions import baseline_number, current_folder
from mlcl.taggers.predict import predict
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.learner import Learner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from helpers import EXACT, label_settings, label_store
from shard_files import made_up, write_shards


def command(*words: object) -> tuple[int, str]:
    """Run a command in this process; return its exit code, -1 for an exception, and what it says on stderr."""
    said, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = main([str(word) for word in words])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            said.write(traceback.format_exc())
            code = -1
    found = "".join(f"mlcl: {line}\n" for line in out.getvalue().splitlines()) if words[0] == "check" else ""
    return code, said.getvalue() + found  # what `check` finds are its sentences


def complaint(code: int, said: str) -> str:
    """Return what is wrong with how a command ended: a failure has an exit code that is known, and a sentence."""
    if code not in (0, 1, 2, 3, 4) or "Traceback" in said:
        return f"ended with {code}: {said}"
    if code and not any(line.startswith("mlcl: ") for line in said.splitlines()):
        return f"ended with {code} without a sentence: {said!r}"
    return ""


@dataclass(frozen=True)
class Scene:
    """A command, where it begins, and what makes it good again.

    Attributes:
        name: of the command.
        start: the folder that it begins with; None for a command that makes one.
        words: the command, on a folder.
        worth: what a folder is worth, to be compared.
        repeat: does again on a folder what was disturbed.
    """

    name: str
    start: Path | None
    words: Callable[[Path], list[object]]
    worth: Callable[[Path], str]
    repeat: Callable[[Path], tuple[int, str]]

    def begin(self, root: Path) -> Path:
        """Make a fresh folder to work on."""
        shutil.rmtree(root, ignore_errors=True)
        if self.start is not None:
            shutil.copytree(self.start, root, symlinks=True)
        return root

    def run(self, root: Path) -> tuple[int, str]:
        """Run the command."""
        return command(*self.words(root))


def scenes(base: Path) -> dict[str, Scene]:
    """Make tiny data and folders, and return the commands on them."""
    for name, columns, seed in (("old", [0, 1, 2, 3], 0), ("more", [3, 0], 20), ("new", [4], 30)):
        label_store(base, name, columns, seed=seed)
    (base / "shards").mkdir()
    write_shards(base / "shards", made_up(3))
    config = base / "config.yaml"
    config.write_text(to_yaml(label_settings(base / "old", "exact", held_out=0.2, **EXACT)))
    trained = base / "trained.yaml"
    trained.write_text(to_yaml(label_settings(base / "old", "er", train={"epochs": 1, "batch_size": 16})))
    _need(command("run", config, "--out", base / "tagger", "--quiet"))
    shutil.copytree(base / "tagger", base / "updated")
    _need(command("update", base / "updated", "--data", base / "more", "--quiet"))
    _busy(base)

    def tagger(root: Path) -> str:
        """Weights, thresholds and scores of the version in use."""
        try:
            scores = predict(root, base / "old")
            now = current_folder(root)
            decided = files.read_thresholds(now, files.read_result(now)).values
            return hashlib.sha256(scores.values.tobytes() + decided.tobytes()).hexdigest()[:16]
        except InputError as error:
            return f"refused: {error}"

    def finished(root: Path) -> str:
        try:
            return tagger(root) if files.is_finished(root) else "refused: not finished"
        except InputError as error:
            return f"refused: {error}"

    def learnt(root: Path) -> str:
        path = root / "tagger.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else "refused: none yet"

    def on(verb: str, start: Path, *rest: object) -> Scene:
        def words(root: Path) -> list[object]:
            return [verb, root, *rest]

        return Scene(verb, start, words, tagger, lambda root: command(*words(root)))

    def train(name: str, settings: Path) -> Scene:
        def words(root: Path) -> list[object]:
            return ["run", settings, "--out", root, "--quiet", "--checkpoint.every", 4]

        def repeat(root: Path) -> tuple[int, str]:
            if files.is_run(root) and is_there(root / files.ENVIRONMENT):
                return command("resume", root, "--quiet")
            return command(*words(root), "--overwrite")

        return Scene(name, None, words, finished, repeat)

    def learn(root: Path) -> list[object]:
        return ["learn", "--data", base / "shards", "--out", root, "--jobs", 1, "--quiet"]

    found = (
        on("update", base / "tagger", "--data", base / "more", "--quiet"),
        on("forget", base / "tagger", "--label", "ant"),
        on("rollback", base / "updated"),
        on("thresholds", base / "tagger", "--precision", 0.9),
        train("run", config),
        train("train", trained),
        Scene("learn", None, learn, learnt, lambda root: command(*learn(root))),
    )
    return {scene.name: scene for scene in found}


PAIRED: dict[str, tuple[object, ...]] = {
    "learn": ("learn", "{base}/old", "--out", "{root}", "--overwrite", "--quiet"),
    "update": ("update", "{root}", "--data", "{base}/more", "--quiet"),
    "extend": ("extend", "{root}", "--data", "{base}/new", "--out", "{root}-2", "--overwrite", "--quiet"),
    "resume": ("resume", "{root}/versions/4", "--quiet"),
    "forget rows": ("forget", "{root}", "--rows", "{base}/rows.txt", "--data", "{base}/old"),
    "forget label": ("forget", "{root}", "--label", "ant"),
    "rename": ("labels", "{root}", "--rename", "ant=bat"),
    "merge": ("merge", "{root}", "{root}", "--out", "{root}-2", "--overwrite"),
    "rollback": ("rollback", "{root}"),
    "thresholds": ("thresholds", "{root}", "--precision", "0.9"),
    "keep": ("versions", "{root}", "--keep", "1"),
    "pin": ("versions", "{root}", "--pin", "2"),
    "repair": ("check", "{root}", "--repair"),
}
"""Every command that changes a tagger or a run folder, for two of them at once on one folder."""


def paired(name: str, other: str, base: Path) -> Scene:
    """Return a command as one of two: they begin with two versions and one that was stopped, or with a lone tagger.

    ``learn --overwrite`` replaces nothing that has versions.
    """
    start = base / ("tagger" if "learn" in (name, other) else "busy")

    def words(root: Path) -> list[object]:
        return [str(word).format(root=root, base=base) for word in PAIRED[name]]

    def worth(root: Path) -> str:
        try:
            now = current_folder(root)
            decided = files.read_thresholds(now, files.read_result(now))
            classes = files.read_result(now).classes
            found = predict(root, base / "old").values.tobytes() + repr((classes, decided)).encode()
            return f"{hashlib.sha256(found).hexdigest()[:16]}, baseline {baseline_number(root)}"
        except InputError as error:
            return f"refused: {error}"

    return Scene(name, start, words, worth, lambda root: command(*words(root)))


class _Stop(Callback):
    def on_task_start(self, learner: Learner, task: object, steps: int) -> None:  # noqa: ARG002
        raise Interrupted


def _busy(base: Path) -> None:
    """Make a tagger with a version in use, one before it that may go, and one that was stopped."""
    root = base / "busy"
    shutil.copytree(base / "updated", root)
    _need(command("labels", root, "--rename", "cat=cow"))
    (base / "rows.txt").write_text("train-3\n")
    with contextlib.suppress(Interrupted):
        update(root, base / "more", out=root / "versions" / "4", callback=_Stop())


def _need(end: tuple[int, str]) -> None:
    if end[0]:
        raise RuntimeError(end[1])


def in_a_child(work: Callable[[], tuple[int, str]]) -> int:
    """Do work in a process of its own, which may die; return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 70
        with contextlib.suppress(BaseException):
            code = work()[0]
        os._exit(code if code >= 0 else 70)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
