"""What a client may ask for, and what it is told where that is too much."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

NUMBER = 64
"""Bytes of one number in JSON, with its comma and the white space around it."""
FREE = 1 << 16
"""Bytes of each body that count for no budget: small requests are taken while large ones wait for each other."""


@dataclass(frozen=True)
class Limits:
    """What a client may ask for.

    Attributes:
        image_bytes: of one encoded image.
        image_pixels: of one image, by its header; nothing of a larger one is decoded.
        request_pixels: that are decoded for one request, by the headers of all its images.
        text_bytes: of one text.
        body_bytes: of one request; where vectors are taken, no more than its numbers need.
        waiting_bytes: of all requests at once, small ones not counted.
        items: images, vectors or texts of one request.
        wait: seconds, by what was measured, for which a request may have to wait; others are turned away at once.
        seconds: for a client to send its request, and for an answer to be computed.
    """

    image_bytes: int = 10 << 20
    image_pixels: int = 40_000_000
    request_pixels: int = 40_000_000
    text_bytes: int = 1 << 20
    body_bytes: int = 32 << 20
    waiting_bytes: int = 128 << 20
    items: int = 256
    wait: float = 5.0
    seconds: float = 20.0

    def body(self, kind: str, about: dict[str, Any]) -> int:
        """Return the bytes that a request of a kind may have; ``about`` is the model's."""
        if kind == "image":
            return min(self.image_bytes, self.body_bytes)
        if about["takes"] != "vectors":
            return self.body_bytes if kind == "batch" else min(self.text_bytes, self.body_bytes)
        items = self.items if kind == "batch" else 1
        return min(self.body_bytes, 1024 + items * NUMBER * (1 + int(about["input_shape"][0])))


class Refusal(Exception):
    """A request that is answered with a status and a reason.

    Attributes:
        status: of HTTP.
        reason: one sentence.
        headers: beside the usual ones.
    """

    def __init__(self, status: int, reason: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers or {}


def busy(words: str, seconds: float = 1.0) -> Refusal:
    """Return a refusal for now."""
    return Refusal(503, f"{words}; try again later", headers={"Retry-After": str(max(1, math.ceil(seconds)))})


class Budget:
    """Something that is taken in parts and given back."""

    def __init__(self, total: int) -> None:
        self.left = total

    def take(self, amount: int) -> bool:
        """Take so much if it is there."""
        if amount > self.left:
            return False
        self.left -= amount
        return True


def is_known_host(header: str, names: Collection[str]) -> bool:
    """Return whether a request is for this service, by its header ``Host``.

    A page of somebody else's can have its own name lead here (DNS rebinding), but not an address: addresses are taken.

    >>> names = {"localhost", "tagger.example.org"}
    >>> [is_known_host(host, names) for host in ("localhost:8000", "10.0.0.7", "[::1]:80", "Tagger.Example.org.")]
    [True, True, True, True]
    >>> is_known_host("evil.example", names), is_known_host("localhost.evil.example:8000", names)
    (False, False)
    """
    if "*" in names:
        return True
    if header.startswith("["):
        name = header[1:].partition("]")[0]
    else:
        name = header.partition(":")[0].lower().removesuffix(".")
    return name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "tagger.example.org")]
    [True, True, True, False, False]
    """
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
