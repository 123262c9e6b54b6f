"""Why a label was given: what each word of a text adds to its log-odds. The scorer must be linear."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcl.datasets import load_dataset, read_ids
from mlcl.datasets.table import vectors
from mlcl.encoders import Encoder, Join, Words, kind_of
from mlcl.errors import InputError, nearest
from mlcl.models.network import LinearHead
from mlcl.runs.trained import Trained

Floats = NDArray[np.float64]
ROWS = 4096
"""So many rows are compared at once."""


@dataclass(frozen=True)
class Why:
    """The log-odds of a label, as a sum: ``base`` and the contributions.

    Attributes:
        label: its name.
        probability: of the label.
        log_odds: of the label.
        base: the log-odds of a text that says nothing.
        contributions: of each word, or of all that an encoder adds, the largest first.
    """

    label: str
    probability: float
    log_odds: float
    base: float
    contributions: tuple[tuple[str, float], ...]

    def lines(self, most: int = 20) -> list[str]:
        """Return this as lines to read; less important contributions are one line together."""
        shown, rest = self.contributions[:most], self.contributions[most:]
        found = [f"{self.label}: probability {self.probability:.3f}, log-odds {self.log_odds:+.3f}", ""]
        found += [f"{self.base:+8.3f}  (a text without any known word)"]
        found += [f"{value:+8.3f}  {name}" for name, value in shown]
        if rest:
            found.append(f"{sum(value for _, value in rest):+8.3f}  ({len(rest)} others)")
        return found


def why(trained: Trained, text: str, label: str) -> Why:
    """Return what the words of a text add to the log-odds of a label.

    Args:
        trained: a tagger of texts whose scores are linear in the vectors of its encoder.
        text: any.
        label: one of its labels.
    """
    if label not in trained.classes:
        raise InputError(f"{trained.folder} has no label {label!r}.{nearest(label, trained.classes)}")
    k, encoder = trained.classes.index(label), trained.text_encoder
    weights, intercept = _linear(trained, k)
    named = _named(encoder, text, weights)
    total: dict[str, float] = {}
    for name, value in named:
        total[name] = total.get(name, 0.0) + value
    lines = trained.calibration.lines
    slope, offset = float(lines.slope[k]), float(lines.offset[k])
    base = slope * intercept + offset
    found = sorted(((name, slope * value) for name, value in total.items()), key=lambda one: -abs(one[1]))
    log_odds = base + sum(value for _, value in found)
    probability = 1 / (1 + float(np.exp(-log_odds)))
    return Why(label, probability, log_odds, base, tuple(found))


def closest(
    trained: Trained, text: str, store: str | Path, *, most: int = 5
) -> list[tuple[str, float, tuple[str, ...]]]:
    """Return the rows of a store whose vectors point most nearly the same way as that of a text: id, cosine, labels.

    Args:
        trained: a tagger of texts.
        text: any.
        store: of vectors of its encoder.
        most: how many rows.
    """
    data, (query,) = load_dataset(str(store)), vectors(trained.text_encoder, [text])
    if data.train.inputs.shape[1:] != query.shape:
        raise InputError(
            f"{store} has inputs of shape {list(data.train.inputs.shape[1:])}; expected vectors of {len(query)} "
            f"numbers, as the encoder of {trained.folder} makes them"
        )
    scores: list[Floats] = []
    for split in (data.train, data.test):
        for start in range(0, len(split), ROWS):
            rows = np.asarray(split.inputs[start : start + ROWS], np.float64)
            sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
            scores.append(np.divide(rows @ query, sizes, out=np.zeros(len(rows)), where=sizes > 0))
    cosines, labels = np.concatenate(scores), [split.labels for split in (data.train, data.test)]
    ids, found = read_ids(store), []
    for row in np.argsort(-cosines, kind="stable")[:most].tolist():
        own = labels[0][row] if row < len(labels[0]) else labels[1][row - len(labels[0])]
        found.append((ids[row], float(cosines[row]), tuple(data.classes[k] for k in np.flatnonzero(own))))
    return found


def _linear(trained: Trained, k: int) -> tuple[Floats, float]:
    """Return weights ``[D]`` and intercept of the logit of a class; an `InputError` if it is not linear."""
    head = trained.network.head
    if (
        trained.committee is not None
        or trained.config.model.kind != "fixed"
        or not isinstance(head, LinearHead)
    ):
        raise InputError(
            f"{trained.folder} is no linear tagger but one of the method {trained.result.method!r}: its scores are "
            "no sum over words"
        )
    weights, bias = (
        one.detach().double().cpu().numpy() for one in (head.linear.weight[k], head.linear.bias[k])
    )
    scale, shift = (
        one.double().cpu().numpy().ravel() for one in (trained.normaliser.scale, trained.normaliser.shift)
    )
    return weights * scale, float(bias + weights @ shift)


def _named(encoder: Encoder, text: str, weights: Floats) -> list[tuple[str, float]]:
    """Return names and what they add to the logit; they sum to the product of the text's vector and the weights."""
    if isinstance(encoder, Words):
        return [(word, value * float(weights[place])) for word, place, value in encoder.named(text)]
    if isinstance(encoder, Join):
        found, start = [], 0
        for part, factor in zip(encoder.parts, encoder.weights, strict=True):
            found += _named(part, text, factor * weights[start : start + part.width])
            start += part.width
        return found
    (row,) = np.asarray(encoder.encode([text]), np.float64)
    return [(f"({kind_of(encoder)})", float(row @ weights))]
