"""Write docs/reference/commands.md: what every verb prints and every page looks like (``make gallery``).

One entry of `ENTRIES` per verb: its commands run one after the other in an empty folder, so that later entries use what
earlier ones made. With verbs (``python tools/gallery.py data thresholds``: those that the last one builds on, in this
order, and itself) only these entries run, with ``--quick`` only entries that need nothing made before; the rest of the
page is kept. ``--no-pictures`` leaves the screenshots as they are. The tests compare the quick entries with the page.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import session
from ledger import ROOT, write

PAGE = ROOT / "docs" / "reference" / "commands.md"
PICTURES = ROOT / "docs" / "images" / "gallery"
PHOTOS = (ROOT / "docs" / "tutorials" / "first-hour.md").read_text(encoding="utf-8")
SMALL = "--stream.tasks 3 --memory.size 30 --train.epochs 4"

HEAD = """\
# Commands

For everybody: what every command prints, and what its pages look like. `mlcl COMMAND --help` lists the options of a
command, `mlcl explain NAME` explains a setting. The settings here are small, so that each command takes seconds, and
the numbers show nothing about methods. `make gallery` runs these commands in an empty folder and writes this page (one
thread; times are left open as `...`).

Exit codes: 0 done; 2 bad input, one sentence; 3 interrupted and resumable; 4 a gate refused the new version; 1 anything
else.
"""


@dataclass(frozen=True)
class Picture:
    """A screenshot of a file that the commands have made.

    Attributes:
        name: name of the picture.
        file: the page or figure that it shows, or an address.
        text: what is to be seen.
        width: width of the window in pixels.
        height: its height.
    """

    name: str
    file: str
    text: str
    width: int = 1100
    height: int = 1250


@dataclass(frozen=True)
class Entry:
    """A verb in the gallery.

    Attributes:
        verb: the verb; empty for ``mlcl`` alone.
        text: a sentence or two on what it is for.
        commands: what is run and shown.
        before: makes what a reader would have at this place: images, or a run that was stopped.
        pictures: screenshots of what the commands have made.
        quick: whether the commands need nothing that was made before, and no training.
    """

    verb: str
    text: str
    commands: Sequence[str]
    before: Callable[[], None] | None = None
    pictures: Sequence[Picture] = ()
    quick: bool = False


def photos() -> None:
    """Make the images of tutorials/first-hour.md: ``photos`` and, with two labels that nobody knew, ``more-photos``."""
    script = session.files(PHOTOS)["make_photos.py"]
    newer = script.replace('"photos', '"more-photos').replace('f"photos', 'f"more-photos')
    newer = (
        newer.replace('"pink"', '"cyan"').replace('"white"', '"black"').replace("250, 250, 250", "10, 10, 10")
    )
    for name, text in (("make_photos.py", script), ("make_more_photos.py", newer)):
        Path(name).write_text(text, encoding="utf-8")
        session.run(f"python {name}")


def stopped() -> None:
    """Make ``runs/stopped``, a run that was stopped by Control-C in its second task."""
    from mlcl.config.resolve import resolve
    from mlcl.runs.run import run
    from mlcl.training.callbacks import Callback, Interrupted
    from mlcl.training.learner import Learner

    class Stop(Callback):
        def on_step(self, learner: Learner, loss: float) -> None:  # noqa: ARG002
            if learner.task_index == 1 and learner.epoch == 2:
                raise Interrupted

    given = {"benchmark": "my-photos", "stream": {"tasks": 3}, "memory": {"size": 30}, "train": {"epochs": 4}}
    with contextlib.suppress(Interrupted):
        run(resolve(given=given), out=Path("runs/stopped"), callback=Stop())


def spoil() -> None:
    """Write over ``current.json`` of ``runs/tagger`` what is no JSON."""
    with Path("runs/tagger/current.json").open("a", encoding="utf-8") as file:
        file.write("}")


def vectors() -> None:
    """Make ``vectors``: three Parquet files of feature vectors with tags."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = ("cat", "dog", "car")
    centres = rng.normal(size=(len(names), 16))
    Path("vectors").mkdir()
    for number in range(3):
        labels = rng.random((100, len(names))) < (0.4, 0.2, 0.1)
        rows = labels @ centres + rng.normal(size=(100, 16))
        tags = [[name for name, there in zip(names, row, strict=True) if there] for row in labels]
        pq.write_table(pa.table({"features": rows.tolist(), "tags": tags}), f"vectors/{number}.parquet")


def tickets() -> None:
    """Make ``2024.csv``, the table of texts of docs/tutorials/texts.md."""
    page = (ROOT / "docs" / "tutorials" / "texts.md").read_text(encoding="utf-8")
    Path("tickets.py").write_text(session.files(page)["tickets.py"], encoding="utf-8")
    session.run("python tickets.py 2024.csv 600 0 billing login crash")


def one_file() -> None:
    """Write the tagger ``both`` as one file too."""
    from mlcl.sklearn import ExactTagger

    ExactTagger.load("both").save("both.safetensors")


def pages(name: str, file: str, text: str) -> tuple[Picture, Picture]:
    """Return the screenshots of a page on a desktop and on a phone."""
    return (
        Picture(name, file, text),
        Picture(f"{name}-phone", file, f"{text}, on a phone", width=390, height=1100),
    )


ENTRIES = (
    Entry(
        "",
        "Alone, it says what to do next; `--help` lists the verbs.",
        ["mlcl", "mlcl --version"],
        quick=True,
    ),
    Entry(
        "run",
        "Train and evaluate one method on one benchmark: a line per task while it trains, then the result matrix.",
        ["mlcl run --train.epochs 1 --out runs/demo"],
    ),
    Entry(
        "data",
        "Prepare your own data as a store, and describe what is in it. A CSV with the columns `file` and `labels` is "
        "enough.",
        [
            "head -n 3 photos/labels.csv",
            "mlcl data prepare folder --root photos --size 16 --out my-photos",
            "mlcl data info my-photos --stream.tasks 3",
        ],
        before=photos,
    ),
    Entry(
        "resume",
        "Continue a run that was stopped by Ctrl-C or a crash. It ends with the bits that it would have had in one go.",
        ["mlcl resume runs/stopped"],
        before=stopped,
    ),
    Entry(
        "predict",
        "Score a folder of images, arrays or a store with a finished run.",
        ["mlcl predict runs/stopped photos --out scores.csv", "head -n 3 scores.csv"],
    ),
    Entry(
        "thresholds",
        "Choose the probability of each label above which it is a tag, on rows that the run held out.",
        [
            f"mlcl run --benchmark my-photos {SMALL} --held_out 0.2 --out runs/tagger --quiet",
            "mlcl thresholds runs/tagger",
        ],
    ),
    Entry(
        "export",
        "Write the network for other programs, and check that it gives the same scores.",
        ["mlcl export runs/stopped --format torch"],
    ),
    Entry(
        "extend",
        "Train a finished run on labels that nobody knew when it began, as one more task.",
        [
            "mlcl data prepare folder --root more-photos --size 16 --out more --quiet",
            "mlcl extend runs/stopped --data more --out runs/extended --quiet",
        ],
    ),
    Entry(
        "serve",
        "Serve a finished run over HTTP: an image goes to `/predict`, and `/` is a page to try it.",
        [
            "mlcl serve runs/tagger --port 8765 &",
            "curl -s -H 'Content-Type: image/png' --data-binary @photos/002.png http://127.0.0.1:8765/predict",
        ],
        pictures=(
            Picture("serve", "http://127.0.0.1:8765/", "The page of a service", width=800, height=210),
        ),
    ),
    Entry(
        "update",
        "Train a finished run on more rows, new labels or both: a new version of it, which is taken into use only if "
        "no label loses more than allowed on the test rows of a store (`--gate`): 1 point, or `--allow`, which is "
        "large here because the data is tiny.",
        ["mlcl update runs/tagger --data more --gate my-photos --allow 20"],
    ),
    Entry("versions", "List the versions of a run.", ["mlcl versions runs/tagger"]),
    Entry("rollback", "Use an earlier version of a run again.", ["mlcl rollback runs/tagger"]),
    Entry(
        "check",
        "Say what is wrong with a folder of mlcl (a run and its versions, a sweep, a tagger, a store), and fix what "
        "can be fixed: here the record of which version is in use was spoilt.",
        ["mlcl check runs/tagger --repair", "mlcl check runs/tagger"],
        before=spoil,
    ),
    Entry(
        "drift",
        "Test whether new inputs differ from those that a run was trained on.",
        ["mlcl drift runs/tagger more-photos"],
    ),
    Entry(
        "forget",
        "Remove rows or a label from a run of the exact learner, with a receipt: as if it had never seen them.",
        [
            "mlcl run --benchmark my-photos --stream.tasks 3 --method exact --out runs/exact --quiet",
            "mlcl forget runs/exact --label white",
        ],
    ),
    Entry(
        "learn",
        "Learn an exact tagger from Parquet files of vectors and tags, in one pass; here three files of 100 rows.",
        ["mlcl learn --data 'vectors/*.parquet' --jobs 1 --out exact-tagger"],
        before=vectors,
    ),
    Entry(
        "labels",
        "List the labels of a tagger, or rename some.",
        ["mlcl labels exact-tagger", "mlcl labels exact-tagger --rename car=vehicle"],
    ),
    Entry(
        "merge",
        "Add taggers that learnt different rows: one tagger, as if it had learnt them all.",
        [
            "mlcl learn --data 'vectors/0.parquet' --jobs 1 --out first --quiet",
            "mlcl learn --data 'vectors/1.parquet' --jobs 1 --out second --quiet",
            "mlcl merge first second --out both",
        ],
    ),
    Entry(
        "convert",
        "Turn a tagger that is one file, as `ExactTagger.save` can write it, into a folder that every verb takes.",
        ["mlcl convert both.safetensors converted"],
        before=one_file,
    ),
    Entry(
        "why",
        "What each word of a text adds to the log-odds of a label, by a tagger of texts.",
        [
            "mlcl learn 2024.csv --out tickets --quiet",
            "mlcl why tickets --text 'I was charged twice, no refund yet' --top 5",
        ],
        before=tickets,
    ),
    Entry(
        "ls",
        "List methods, losses, memories, models, benchmarks or configs; alone, all of them.",
        ["mlcl ls memories | head -n 6"],
        quick=True,
    ),
    Entry(
        "explain",
        "Explain a setting, a part or a method.",
        ["mlcl explain stream.setting", "mlcl explain wru"],
        quick=True,
    ),
    Entry(
        "cp",
        "Copy a shipped config or experiment to a file of your own.",
        ["mlcl cp core my-table.yaml", "head -n 12 my-table.yaml"],
        quick=True,
    ),
    Entry(
        "validate",
        "Check a config or an experiment without running it.",
        ["mlcl cp c-digits my.yaml", "mlcl validate my.yaml"],
        quick=True,
    ),
    Entry(
        "reproduce",
        "Run a table of the paper, or one of your own, over several seeds.",
        [f"mlcl reproduce core --benchmark my-photos {SMALL} --seeds 2 --jobs 1 --out table"],
    ),
    Entry(
        "compare",
        "Compare runs in a table.",
        [
            f"mlcl run --benchmark my-photos {SMALL} --method er --out runs/er --quiet",
            "mlcl compare runs/er runs/stopped",
        ],
    ),
    Entry(
        "report",
        "Write one page, a single file, about a run, or about several runs and sweeps.",
        ["mlcl report runs/demo --out run.html", "mlcl report table --out comparison.html"],
        pictures=(
            *pages("run", "run.html", "The page of a run"),
            *pages("comparison", "comparison.html", "The page of a comparison"),
        ),
    ),
    Entry(
        "card",
        "Write a model card of a finished run in Markdown, from what the run knows.",
        ["mlcl card runs/tagger", "head -n 20 runs/tagger/model-card.md"],
    ),
    Entry(
        "theory",
        "Show what the paper's theory says of a benchmark, a memory or a finished run.",
        ["mlcl theory runs/stopped --out theory | head -n 8"],
        pictures=(
            Picture("theory", "theory/theory.svg", "The figure of a diagnosis", width=740, height=570),
        ),
    ),
    Entry(
        "completion",
        "Print a script that completes verbs, options and names in bash or zsh: `source <(mlcl completion bash)`.",
        ["mlcl completion zsh | head -n 4"],
        quick=True,
    ),
)
"""The gallery, in the order of the page. A new verb needs an entry here."""


def heading(entry: Entry) -> str:
    """Return the heading of an entry's section."""
    return f"## `{f'mlcl {entry.verb}'.strip()}` {{#{entry.verb or 'alone'}}}"


def show(entry: Entry) -> str:
    """Run an entry's commands in the current folder and return its section."""
    if entry.before is not None:
        entry.before()
    lines = [heading(entry), "", entry.text, "", "```console"]
    for command in entry.commands:
        lines += [f"$ {command}", *session.run(command).splitlines()]
    lines.append("```")
    for picture in entry.pictures:
        lines += ["", f"![{picture.text}](../images/gallery/{picture.name}.png)"]
    return "\n".join(lines) + "\n"


def sections(page: str) -> dict[str, str]:
    """Return the sections of a page, by heading."""
    parts = page.split("\n## ")[1:]
    return {f"## {part.partition(chr(10))[0]}": f"## {part.rstrip()}\n" for part in parts}


def shoot(picture: Picture, out: Path) -> None:
    """Take a screenshot of a file in the current folder, with few colours."""
    from PIL import Image

    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("chromium is not installed: --no-pictures leaves the screenshots as they are")
    raw = Path("raw.png").resolve()
    window = f"--window-size={max(picture.width, 600)},{picture.height}"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        window,
        f"--screenshot={raw}",
    ]
    if "://" in picture.file:  # a service refuses to be shown in a frame
        page = picture.file
        options.append("--virtual-time-budget=5000")  # it asks the service for its labels
    else:  # in a frame: the window of a browser is never as narrow as a phone
        frame = Path("frame.html").resolve()
        size = f"width={picture.width} height={picture.height}"
        shown = Path(picture.file).resolve().as_uri()
        frame.write_text(f"<body style='margin:0'><iframe {size} style='border:0' src='{shown}'></iframe>")
        page = frame.as_uri()
    session.run(" ".join([browser, *options, page]))
    image = Image.open(raw).convert("RGB").crop((0, 0, picture.width, picture.height))
    image.quantize(256, dither=Image.Dither.NONE).save(out, optimize=True)


def main(arguments: Sequence[str]) -> int:
    """Write the page and its pictures."""
    chosen = [entry.verb for entry in ENTRIES if entry.verb in arguments]
    if "--quick" in arguments:
        chosen += [entry.verb for entry in ENTRIES if entry.quick]
    old = sections(PAGE.read_text(encoding="utf-8")) if chosen else {}
    parts = []
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        os.environ["MLCL_HOME"] = str(Path(work) / "cache")  # not the user's
        for entry in ENTRIES:
            if chosen and entry.verb not in chosen:
                parts.append(old[heading(entry)])
                continue
            parts.append(show(entry))
            for picture in entry.pictures if "--no-pictures" not in arguments else ():
                PICTURES.mkdir(exist_ok=True)
                shoot(picture, PICTURES / f"{picture.name}.png")
            session.stop()
    write("\n".join([HEAD, *parts]), PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
