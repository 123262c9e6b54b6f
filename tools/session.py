"""Sessions of the command line in the documentation: run them, write down what they print, compare it later.

A page holds blocks of language ``console``: lines after ``$ `` are commands, the lines below are what they print.
Blocks with a title are files that the commands use. ``python tools/session.py PAGE...`` runs the commands of a page in
an empty folder and writes their output into it (``make gallery``; ``--quick`` leaves out ``make demo``); the tests run
them again.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```)", re.DOTALL | re.MULTILINE)
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
LEFT_OUT = ("git clone ", "cd ", "pip install ", "source ", "xdg-open ")
"""Commands that set up or show something: they are not run, and their output stays as it is written."""
FREE = "..."
"""What stands for any text without blanks."""
_TIMES = re.compile(r"\b(?:under )?\d+(?:\.\d+)?(?= (?:s|min|h)\b)|\b\d{4}-\d\d-\d\dT[\d:]+Z")
_NOW_AND_THEN = re.compile(
    r"^  epoch \d+/\d+  loss .*\n", re.MULTILINE
)  # printed only where a task takes long
_LAST_CELL = re.compile(r" *\S+(?= │$)")
_DECIMAL = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True)
class Step:
    """A command and what it prints."""

    command: str
    output: str


def steps(page: str) -> list[Step]:
    r"""Return the commands of a page with their recorded output.

    >>> steps("```console\n$ mlcl --version\nmlcl 1\n$ ls\n```\n")
    [Step(command='mlcl --version', output='mlcl 1'), Step(command='ls', output='')]
    """
    return [step for block in BLOCK.findall(page) for step in _steps(block)]


def _steps(block: str) -> list[Step]:
    parts = [part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Step(command, output.rstrip("\n")) for command, _, output in parts]


def files(page: str) -> dict[str, str]:
    """Return the files that a page shows, by name."""
    return dict(FILE.findall(page))


def replay(
    page: str, *, more: Mapping[str, Sequence[str]] | None = None, left_out: tuple[str, ...] = LEFT_OUT
) -> Iterator[tuple[Step, str]]:
    """Write the files of a page into the current folder and run its commands there.

    Args:
        page: the text of the page.
        more: words to add to some commands, by command.
        left_out: how commands begin that are not run.

    Yields:
        A step of the page, and what its command prints now.
    """
    for name, content in files(page).items():
        Path(name).write_text(content, encoding="utf-8")
    for step in steps(page):
        if step.command.startswith(left_out):
            yield step, step.output
        else:
            yield step, run(shlex.join([*_words(step.command), *(more or {}).get(step.command, ())]))


def run(command: str) -> str:
    """Run a command line in the current folder and return what it prints, stdout and stderr in order, times left open.

    Commands of mlcl run in this process; ``make TARGET`` runs the command of mlcl that the Makefile has for it. A
    command that ends in ``&`` goes on in the background until `stop`; what it prints is its first line.

    Raises:
        AssertionError: the command failed; the message is what it printed.
    """
    if command.endswith(" &"):
        return _start(_words(command.removesuffix(" &")))
    first, *filters = _pipe(_words(command))
    code, text = _mlcl(first) if first[0] == "mlcl" else _program(first)
    for words in filters:
        _, text = _program(words, text)
    if code:
        raise AssertionError(f"{command} ended with code {code}:\n{text}")
    return steady(text.replace(f"{Path.cwd()}/", ""))


_background: list[subprocess.Popen[str]] = []


def _start(words: list[str]) -> str:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    _background.append(process)
    return steady(process.stdout.readline() if process.stdout else "")


def stop() -> None:
    """End what runs in the background."""
    while _background:
        process = _background.pop()
        process.terminate()
        process.communicate()


def _words(command: str) -> list[str]:
    """Return the words of a command line: patterns become the files that match."""
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        recipe = re.search(
            rf"^{words[1]}:.*\n\t\$\(BIN\)/(mlcl .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
        )
        if recipe is None:
            raise AssertionError(f"the Makefile has no target {words[1]} that runs mlcl")
        words[:2] = shlex.split(recipe[1])
    return [file for word in words for file in sorted(glob.glob(word)) or [word]]  # noqa: PTH207


def _pipe(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _mlcl(words: list[str]) -> tuple[int, str]:
    from mlcl.cli.main import main

    screen = io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        try:
            code = main(words[1:])
        except SystemExit as end:  # after --help
            code = int(end.code or 0)
    return code, screen.getvalue()


def _program(words: list[str], given: str | None = None) -> tuple[int, str]:
    words = [sys.executable if words[0] == "python" else words[0], *words[1:]]
    done = subprocess.run(  # noqa: S603
        words, input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def steady(text: str) -> str:
    """Return a text with times left open, without what is printed now and then, and without blanks at the ends.

    >>> steady("task 1 90.78   (1.4 s)"), steady("about 2 min left")
    ('task 1 90.78   (... s)', 'about ... min left')
    """
    lines = _TIMES.sub(FREE, _NOW_AND_THEN.sub("", text)).rstrip().splitlines()
    seconds = False
    for number, line in enumerate(lines):
        seconds = line.endswith("Seconds ┃") or (seconds and line[:1] in "┡│└")
        lines[number] = (
            _LAST_CELL.sub(lambda cell: FREE.rjust(len(cell[0])), line) if seconds else line.rstrip()
        )
    return "\n".join(lines)


def agrees(wanted: str, found: str, *, slack: float = 3.0) -> bool:
    r"""Return whether a text is what was recorded.

    Blanks and the width of tables do not count, and ``...`` is open. Numbers with decimals may differ a little:
    processors round differently, and training multiplies the difference.

    Args:
        wanted: the recorded text.
        found: the text to compare.
        slack: by how much numbers with decimals may differ.

    >>> agrees("Macro-AUC 90.78   (... s)", "Macro-AUC 91.02 (... s)"), agrees("90.78", "80.11"), agrees("5", "6")
    (True, False, False)
    >>> agrees("commit ...", "commit a1b2"), agrees("a\nb", "a b")
    (True, False)
    """
    mine, theirs = ([_shape(line) for line in text.splitlines()] for text in (wanted, found))
    if len(mine) != len(theirs):
        return False
    for want, have in zip(mine, theirs, strict=True):
        pattern = ".*".join(re.escape(_DECIMAL.sub("#", part)) for part in want.split(FREE))
        if not re.fullmatch(pattern, _DECIMAL.sub("#", have)):
            return False
        numbers = [[float(number) for number in _DECIMAL.findall(line)] for line in (want, have)]
        if len(numbers[0]) == len(numbers[1]) and any(
            abs(a - b) > slack for a, b in zip(*numbers, strict=True)
        ):
            return False
    return True


def _shape(line: str) -> str:
    return " ".join(re.sub("([━─])+", r"\1", line).split())


def record(page: str, folder: Path, *, left_out: tuple[str, ...] = LEFT_OUT) -> str:
    """Return a page with the output that its commands have now, run in a folder."""
    with contextlib.chdir(folder):
        found = dict(replay(page, left_out=left_out))

    def block(match: re.Match[str]) -> str:
        lines = (f"$ {step.command}\n{found[step]}".rstrip() + "\n" for step in _steps(match[0]))
        return "".join(lines)

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    from ledger import write

    quick = "--quick" in sys.argv[1:]  # without what takes minutes
    skipped = (*LEFT_OUT, "make ") if quick else LEFT_OUT
    for page in (Path(name).resolve() for name in sys.argv[1:] if name != "--quick"):
        with tempfile.TemporaryDirectory() as work:
            os.environ["MLCL_HOME"] = str(Path(work) / "cache")  # not the user's
            write(record(page.read_text(encoding="utf-8"), Path(work), left_out=skipped), page)
