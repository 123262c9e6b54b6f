"""Verbs that use a tagger on inputs: predict, why, thresholds, drift, export."""

from __future__ import annotations

import sys
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np

from mlcl.cli.learn import Reading, as_store
from mlcl.cli.messages import fail, note, say
from mlcl.cli.progress import make_console
from mlcl.datasets import open_store
from mlcl.datasets.store import is_store
from mlcl.errors import InputError, check_int
from mlcl.files import write_json
from mlcl.metrics import Goal, Thresholds
from mlcl.metrics.decisions import CONFIDENCE, KINDS, GoalKind
from mlcl.reports.rendering import PrintedTable, decimals
from mlcl.runs.folder import require_finished
from mlcl.runs.trained import load_trained
from mlcl.taggers import drift as drifting
from mlcl.taggers import export as exporting
from mlcl.taggers import predict as scoring
from mlcl.taggers import why as weighing
from mlcl.taggers.thresholds import Decided, set_thresholds
from mlcl.texts import csv_line

SHOWN = 12
"""Labels that the table of drift shows, the most certain changes first."""


def predict(
    folder: Path,
    inputs: Path,
    *,
    tags: bool = False,
    unsure: bool = False,
    out: Path | None = None,
    text: str | None = None,
    logits: bool = False,
    for_spreadsheet: bool = False,
    overwrite: bool = False,
) -> int:
    """Write the probabilities of inputs by a tagger, one column per class, or the tags of each by name.

    Args:
        folder (DIR): the folder of the tagger.
        inputs (INPUT): an image, a folder of images, an .npy or .npz, or a store; for a tagger of texts a table, a .txt
            with one text per line, or - for the lines of standard input.
        tags: the labels above their thresholds (see `mlcl thresholds`), by name, the surest first; without --out one
            line per input on stdout.
        unsure: with --tags also the labels that are more likely than not and withheld, because the wanted precision or
            recall is not certified for them: a third column, or on stdout with a question mark.
        out (FILE): a .csv or .npz to write; .csv with --tags.
        text (COLUMNS): of a table: columns of text, with commas between.
        logits: logits instead of probabilities.
        for_spreadsheet: put an apostrophe before names in a .csv that a spreadsheet would take for formulas (=, +, -,
            @); without it names are written as they are, for programs.
        overwrite: replace the file if it exists.
    """
    if tags and logits:
        raise InputError(
            "--tags and --logits were given; expected one of them: tags follow from probabilities."
        )
    if unsure and not tags:
        raise InputError("--unsure was given without --tags; expected both.")
    if out is None and not tags:
        raise InputError("--out is missing; expected a .csv or .npz to write, or --tags.")
    if out is not None:
        scoring.check_out(out, suffixes=(".csv",) if tags else (".csv", ".npz"), overwrite=overwrite)
    if for_spreadsheet and (out is None or out.suffix.lower() != ".csv"):
        raise InputError("--for-spreadsheet is for a .csv that --out names.")
    found = scoring.predict(folder, inputs, logits=logits, text=text)
    if unsure and found.doubts is None:
        raise InputError(
            f"--unsure: the thresholds of {folder} are certified for nothing, so no label is withheld; expected "
            "mlcl thresholds --precision P or --recall R before."
        )
    if inputs.is_dir() and is_store(inputs):
        rows = len(open_store(inputs).train)
        note(
            f"mlcl: all rows of {inputs}: first its {rows} training rows, then its {len(found.ids) - rows} test rows"
        )
    if out is None:
        doubts = found.unsure() if unsure else [[]] * len(found.ids)
        for name, own, more in zip(found.ids, found.tags(), doubts, strict=True):
            say(name, ", ".join([csv_line([tag]) for tag in own] + [f"{csv_line([tag])}?" for tag in more]))
        return 0
    if tags:
        scoring.write_tags(found, out, spreadsheet=for_spreadsheet, unsure=unsure)
    else:
        scoring.write_scores(found, out, spreadsheet=for_spreadsheet)
    say(out)
    return 0


def why(folder: Path, *, text: str, label: str | None = None, top: int = 20, data: str | None = None) -> int:
    """Show what each word of a text adds to the log-odds of a label: the numbers add up.

    Of a linear tagger of texts; the scores of networks, and of images, are no sum over parts.

    Args:
        folder (DIR): the folder of the tagger.
        text (TEXT): the text.
        label (L): the label (default: the surest).
        top (N): words shown one by one.
        data (DATA): also show its rows that are closest to the text: a table, or a store made with this tagger.
    """
    check_int("--top", top, 0)
    trained = load_trained(folder)
    if label is None:
        label = trained.classes[int(np.argmax(trained.probabilities_of_texts([text])[0]))]
    for line in weighing.why(trained, text, label).lines(top):
        say(line)
    if data is not None:
        store = as_store(data, asdict(Reading()), size=None, encoder=trained.encoder)[1]
        say("")
        say("closest rows:")
        for name, cosine, labels in weighing.closest(trained, text, store):
            say(f"{cosine:+8.3f}  {name}: {', '.join(labels) or 'no label'}")
    return 0


def thresholds(
    folder: Path,
    *,
    f1: bool = False,
    f1_overall: bool = False,
    precision: float | None = None,
    recall: float | None = None,
    cost: float | None = None,
    confidence: float = CONFIDENCE,
    data: str | None = None,
) -> int:
    """Choose the probability of each label above which it is a tag, and write them to the folder of the tagger.

    They are chosen on rows that it held out (mlcl run --held_out 0.1), or on a store; `mlcl predict --tags` uses them.

    Args:
        folder (DIR): the folder of the tagger.
        f1: the best F1 of each label (default).
        f1_overall: the best F1 over all tags together.
        precision (P): at least this precision per label, certified, and most recall.
        recall (R): at least this recall per label, certified, and most precision.
        cost (C): the least cost, if a miss costs C times a false alarm.
        confidence (C): with which a precision or recall of each label is certified.
        data (STORE): choose on all rows of this store instead; it must not be what trained the run.
    """
    wanted: dict[GoalKind, float | None] = {"precision": precision, "recall": recall, "cost": cost}
    flags = {"f1": f1, "f1-overall": f1_overall}
    names = [name for name in KINDS if wanted.get(name) is not None or flags.get(name)]
    if len(names) > 1:
        raise InputError(f"--{names[0]} and --{names[1]} were given; expected one goal.")
    kind = names[0] if names else "f1"
    goal = Goal(kind, wanted[kind], confidence) if kind in wanted else Goal(kind)
    found = set_thresholds(folder, goal, data=data)
    console = make_console(sys.stdout)
    console.print(_threshold_table(found))
    if missed := (~found.thresholds.reached).sum():
        console.print(
            f"{missed} of {len(found.classes)} labels cannot be certified on these rows and are never tags; the last "
            "column says how many more annotated positives they need."
        )
    return 0


def _threshold_table(found: Decided) -> PrintedTable:
    """Return one line per label: threshold, what it does on rows that it was not chosen on, and what is certified."""
    chosen, rows = found.thresholds, []
    columns = (found.classes, found.positive, chosen.values, chosen.own, found.precision, found.recall)
    for label, positives, cut, own, *shares in zip(*columns, strict=True):
        cell = f"{cut:.3f}{'' if own else ' (few rows)'}"
        rows.append([label, str(int(positives)), cell, *(decimals(100 * share, 1) for share in shares)])
    title = (
        f"{found.folder}: thresholds for {chosen.goal}, on {chosen.rows} rows; precision, recall and F1 over "
        f"all tags ({100 * found.overall:.1f}) on rows left out in turn"
    )
    names = ["label", "positives", "threshold", "precision", "recall"]
    if certified := _certified(chosen):
        names, rows = [*names, "certified"], [[*row, one] for row, one in zip(rows, certified, strict=True)]
    return PrintedTable(title, names, rows, left=("label",))


def _certified(thresholds: Thresholds) -> list[str]:
    """Return what is certified of each label, or how many more positives it needs."""
    if thresholds.bound is None or thresholds.needed is None:
        return []
    return [
        "more would not help" if need == inf else f"{need:.0f} more" if need else decimals(100 * bound, 1)
        for bound, need in zip(thresholds.bound, thresholds.needed, strict=True)
    ]


def drift(
    folder: Path,
    inputs: Path,
    *,
    reference: str | None = None,
    group: str | None = None,
    level: float = drifting.LEVEL,
    seed: int = 0,
    out: Path | None = None,
    overwrite: bool = False,
) -> int:
    """Test whether new inputs differ from those that a tagger was trained on.

    Their features (maximum mean discrepancy with permutations), and how often each label is predicted (Fisher's exact
    test, Holm's correction).

    Args:
        folder (DIR): the folder of the tagger.
        inputs (INPUT): a folder of images, an .npy or .npz, or a store.
        reference (STORE): compare with the test rows of this store (default: the run's own).
        group (COLUMN): inputs with the same cell there depend on one another, such as images of one burst: one of each
            is compared. A column of a table; of other inputs a .csv with the columns id and group.
        level (P): p-value below which it moved.
        seed (N): seed of the permutations (default: 0).
        out (FILE.json): also write everything to this file.
        overwrite: replace the file if it exists.
    """
    if out is not None:
        scoring.check_out(out, suffixes=(".json",), overwrite=overwrite)
    found = drifting.drift(folder, inputs, reference=reference, group=group, level=level, seed=seed)
    if out is not None:
        write_json(out, found.record())
    console = make_console(sys.stdout)
    console.print(_rate_table(found))
    compared = f"{found.rows} inputs against {found.reference_rows} {found.reference}"
    moved = "have moved" if found.inputs_moved else "have not moved"
    console.print(f"inputs {moved} (p = {found.inputs.p_value:.2g}; {compared})")
    moved = f"moved for {', '.join(found.moved)}" if found.moved else "have not moved"
    console.print(f"rates of predicted labels {moved} (level {found.level:g} for all labels together)")
    return 0


def _rate_table(found: drifting.Drift) -> PrintedTable:
    """Return the labels whose rates changed most certainly."""
    rates, rows = found.rates, []
    for k in np.argsort(rates.p_values, kind="stable")[:SHOWN]:
        shares = (f"{100 * value:.1f} %" for value in (rates.before[k], rates.after[k]))
        rows.append([found.labels[k], *shares, f"{rates.adjusted[k]:.2g}"])
    heads = ("label", "before", "now", "p (all labels)")
    return PrintedTable("share of inputs with a predicted label", heads, rows, left=("label",))


def export(
    folder: Path,
    *,
    format: Literal["torch", "onnx"] | None = None,
    out: Path | None = None,
    logits: bool = False,
    overwrite: bool = False,
) -> int:
    """Write a network that takes raw inputs and gives the scores of `mlcl predict`, and check that it does.

    Args:
        folder (DIR): the folder of the run.
        format: torch: a program of torch.export; onnx: for ONNX Runtime (default: what --out ends in, else torch).
        out (FILE): a file to write (default: DIR/model.pt2 or DIR/model.onnx).
        logits: logits instead of probabilities.
        overwrite: replace the file if it exists.
    """
    require_finished(folder)
    chosen = format or exporting.format_of(out)
    suffixes = exporting.SUFFIXES[chosen]
    path = out or folder / f"model{suffixes[0]}"
    scoring.check_out(path, suffixes=suffixes, overwrite=overwrite)
    try:
        gap = exporting.export(folder, path, format=chosen, logits=logits)
    except exporting.ExportError as error:
        return fail(str(error), 1)
    note(f"mlcl: scores differ from the network's by {gap:.1g} at most")
    say(path)
    return 0
