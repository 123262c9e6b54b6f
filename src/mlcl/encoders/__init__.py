"""Encoders: texts in, vectors out. One file per kind; `mlcl.encoders.base` states the rules."""

from mlcl.encoders.base import ENCODERS, Encoder, from_bytes, kind_of, to_bytes
from mlcl.encoders.joined import Join, chosen_encoder, join
from mlcl.encoders.weighing import weighed
from mlcl.encoders.words import Words
from mlcl.registry import discover

discover(__name__, __path__)

__all__ = [
    "ENCODERS",
    "Encoder",
    "Join",
    "Words",
    "chosen_encoder",
    "from_bytes",
    "join",
    "kind_of",
    "to_bytes",
    "weighed",
]
