"""Images from untrusted bytes: header checked, decoded with Pillow, 8-bit RGB, resized to a square."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from mlcl.errors import InputError, one_line

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""The formats that are tried. Those that start other programs (EPS) or are seldom photographs are left out."""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
"""How the names of such files end."""
MAX_PIXELS = 89_478_485
"""An image of more pixels is refused before it is decoded; Pillow warns from there on."""
DEFAULT_SIZE = 224
"""The paper's size."""


_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings an image of each EXIF orientation upright; 1 is upright already."""


class BadImage(ValueError):
    """Bytes that are not a usable image. The message completes "the file ..."."""


def decode_image(data: bytes, *, size: int, name: str = "the image") -> NDArray[np.uint8]:
    """Return an image as uint8 ``[3, size, size]``, the form that a store holds.

    The whole image is resized to a square (the paper's 224 x 224), whatever its proportions, bilinear with
    antialiasing; a JPEG is decoded at a half, quarter or eighth where that is still twice the wanted size. Grey,
    palette, CMYK, 16-bit and floating-point images become 8-bit RGB (16 bits are scaled, transparency is dropped;
    floating-point pixels are taken as 0 to 1, 0 to 255 or 0 to 65535, the smallest of these ranges that holds them);
    of several frames the first is taken. An EXIF orientation, as phones write it, is applied: what was up is up.

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
            turn = _turn(image)
        small = rgb.resize((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
        if turn is not None:  # a square is turned after it was made: that is as right, and cheaper
            small = small.transpose(turn)
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
        return Image.fromarray(_float_to_8_bits(np.asarray(image)))
    if image.mode == "I" or image.mode.startswith("I;16"):
        # 65535 / 257 = 255: the exact map of 16 bits onto 8. Pillow's own conversion would cut off at 255.
        wide = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    return image.convert("RGB")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return what brings a loaded image upright, or None. Pillow has turned a TIFF itself and dropped its tag."""
    try:
        return _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata of untrusted bytes: the pixels are good, so they count as upright
        return None


def _float_to_8_bits(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return floating-point pixels as bytes; see `decode_image` for the ranges."""
    low, high = float(values.min()), float(values.max())
    top = next(
        (top for top in (1, 255, 65535) if low >= 0 and high <= top), None
    )  # NaN fails every comparison
    if top is None:
        raise BadImage(
            f"has floating-point pixels from {low:g} to {high:g}, but 0 to 1, 0 to 255 or 0 to 65535 was expected"
        )
    scaled: NDArray[np.uint8] = np.floor(values * (255 / top) + 0.5).astype(np.uint8)
    return scaled
