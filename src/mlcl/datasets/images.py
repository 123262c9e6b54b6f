"""Images from untrusted bytes: header checked, decoded with Pillow, 8-bit RGB, resized to a square."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from mlcl.errors import InputError, one_line

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""The formats that are tried. Those that start other programs (EPS) or are seldom photographs are left out."""
MAX_PIXELS = 89_478_485
"""An image of more pixels is refused before it is decoded; Pillow warns from there on."""
DEFAULT_SIZE = 224
"""The paper's size."""


class BadImage(ValueError):
    """Bytes that are not a usable image. The message completes "the file ..."."""


def decode_image(data: bytes, *, size: int, name: str = "the image") -> NDArray[np.uint8]:
    """Return an image as uint8 ``[3, size, size]``, the form that a store holds.

    The whole image is resized to a square (the paper's 224 x 224), whatever its proportions, bilinear with
    antialiasing; a JPEG is decoded at a half, quarter or eighth where that is still twice the wanted size. Grey,
    palette, CMYK and 16-bit images become 8-bit RGB (16 bits are scaled, transparency is dropped); of several
    frames the first is taken. An EXIF orientation is not applied: pixels stay as they are in the file.

    >>> buffer = io.BytesIO()
    >>> Image.new("RGB", (40, 20), (255, 0, 128)).save(buffer, "PNG")
    >>> decode_image(buffer.getvalue(), size=2)[:, 0, 0]
    array([255,   0, 128], dtype=uint8)
    >>> decode_image(b"GIF89a", size=2, name="cat.gif")
    Traceback (most recent call last):
    ...
    mlcl.errors.InputError: cat.gif is not an image that can be read
    """
    try:
        return pixels(data, size)
    except BadImage as error:
        raise InputError(f"{name} {error}") from None


def pixels(data: bytes, size: int) -> NDArray[np.uint8]:
    """Do the work of `decode_image`; a failure is a `BadImage`, whose message does not name the file."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height == 0 or width * height > MAX_PIXELS:
                raise BadImage(f"has {width} x {height} pixels, but 1 to {MAX_PIXELS} were expected")
            image.draft(None, (2 * size, 2 * size))
            image.load()
            rgb = _to_rgb(image)
        small = rgb.resize((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
        return np.asarray(small if small.mode == "RGB" else small.convert("RGB")).transpose(2, 0, 1)
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("is not an image that can be read") from None
    except Image.DecompressionBombError:
        raise BadImage(f"has too many pixels, but at most {MAX_PIXELS} were expected") from None
    except Exception as error:  # a decoder of untrusted bytes: whatever it trips over, the image is bad
        raise BadImage(f"cannot be decoded: {one_line(error)}") from None


def _to_rgb(image: Image.Image) -> Image.Image:
    """Return an 8-bit image that can be resized: RGB, or grey, which is made RGB after the resizing."""
    if image.mode in ("RGB", "L"):
        return image
    if image.mode == "F":
        raise BadImage("has floating-point pixels, but whole numbers of 8 or 16 bits were expected")
    if image.mode == "I" or image.mode.startswith("I;16"):
        # 65535 / 257 = 255: the exact map of 16 bits onto 8. Pillow's own conversion would cut off at 255.
        wide = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    return image.convert("RGB")
