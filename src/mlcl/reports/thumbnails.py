"""Small images inside a page: as data URIs, within a bound on all of them together."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 96
"""Larger images are made smaller: a page shows them at this size at most."""
MAX_BYTES = 8 * 2**20
_TINY = 24  # below this, a JPEG is larger than a PNG, and blurs what there is to see


class Album:
    """Encodes images until they are ``limit`` bytes together; after that it returns None."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self.left = limit
        self.omitted = 0

    def add(self, image: NDArray[Any]) -> str | None:
        """Return a uint8 image ``[C, H, W]`` as a data URI, or None if there is no room for it."""
        uri = data_uri(image)
        if len(uri) > self.left:
            self.omitted += 1
            return None
        self.left -= len(uri)
        return uri


def data_uri(image: NDArray[Any]) -> str:
    """Return a uint8 image ``[C, H, W]`` with one or three channels as a data URI of a small JPEG or PNG.

    >>> data_uri(np.zeros((1, 8, 8), np.uint8))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    from PIL import Image

    pixels = np.asarray(image)
    small = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    kind = "png" if max(small.size) <= _TINY else "jpeg"
    small.save(buffer, kind, **({"quality": 82, "optimize": True} if kind == "jpeg" else {}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
