"""Decoding against Pillow's plain way, all kinds of pixels, and images that are none."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from data import encoded_image
from mlcl.datasets import decode_image
from mlcl.datasets.images import MAX_PIXELS
from mlcl.errors import InputError


def plain(data: bytes, size: int) -> np.ndarray:
    image = Image.open(io.BytesIO(data)).convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


def save(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(width: int, height: int) -> bytes:
    """Return a PNG whose header promises that many pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_an_image_near_its_size_is_decoded_as_pillow_does(kind, mode):
    data = encoded_image(5, mode=mode, kind=kind, size=(30, 20))
    assert np.array_equal(decode_image(data, size=16), plain(data, 16))


def test_a_large_jpeg_is_decoded_at_a_fraction_and_looks_the_same():
    data = encoded_image(1, size=(640, 480))
    fast, slow = decode_image(data, size=32).astype(int), plain(data, 32).astype(int)
    assert np.abs(fast - slow).mean() < 1.5
    assert np.abs(fast - slow).max() < 16


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_other_kinds_of_pixels_become_rgb(mode):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    image = Image.open(io.BytesIO(encoded_image(2, kind="PNG"))).convert(mode)
    found = decode_image(save(image, kind), size=12)
    expected = np.asarray(image.convert("RGB").resize((12, 12), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


def test_a_cmyk_jpeg_keeps_its_colours():
    red = Image.new("RGB", (16, 16), (250, 5, 5)).convert("CMYK")
    found = decode_image(save(red, "JPEG", quality=95), size=4)
    assert np.abs(found[:, 0, 0].astype(int) - [250, 5, 5]).max() < 8


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_cut(kind):
    values = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    found = decode_image(save(Image.fromarray(values), kind), size=16)
    assert np.array_equal(found[0], np.arange(256).reshape(16, 16))
    assert np.array_equal(found[0], found[2])


def test_thirty_two_bits_are_taken_as_sixteen():
    values = np.asarray([[0, 65535], [-5, 10**6]], dtype=np.int32)
    found = decode_image(save(Image.fromarray(values), "TIFF"), size=2)
    assert found[0].tolist() == [[0, 255], [0, 255]]


@pytest.mark.parametrize("top", [1, 255, 65535])
def test_floating_point_pixels_of_three_ranges(top):
    values = np.linspace(0, top, 256, dtype=np.float32).reshape(16, 16)
    found = decode_image(save(Image.fromarray(values), "TIFF"), size=16)
    assert np.array_equal(found[0], np.arange(256).reshape(16, 16))
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("value", [-0.5, 70_000, np.nan, np.inf])
def test_floating_point_pixels_outside_all_ranges_are_refused(value):
    pixels = np.full((4, 4), 0.5, np.float32)
    pixels[1, 2] = value
    with pytest.raises(
        InputError, match=r"x\.tiff has floating-point pixels from .* 0 to 65535 was expected"
    ):
        decode_image(save(Image.fromarray(pixels), "TIFF"), size=2, name="x.tiff")


def sideways(orientation: int, kind: str, size=(48, 32)) -> bytes:
    """Return an image whose four corners differ, with an EXIF orientation."""
    image = Image.open(io.BytesIO(encoded_image(3, kind="PNG", size=size)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    return save(image, kind, exif=exif, **options)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_exif_orientation_is_applied(kind, orientation):
    data = sideways(orientation, kind)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    expected = np.asarray(upright.resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1).astype(int)
    found = decode_image(data, size=16).astype(int)
    assert np.abs(found - expected).max() <= 1
    if orientation > 1:
        assert np.abs(found - decode_image(sideways(1, kind), size=16)).max() > 20


def test_a_large_jpeg_of_a_phone_is_upright():
    data = sideways(6, "JPEG", size=(640, 480))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    expected = np.asarray(upright.resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1).astype(int)
    assert np.abs(decode_image(data, size=32).astype(int) - expected).mean() < 1.5


def test_damaged_metadata_leaves_the_pixels():
    good = sideways(6, "JPEG")
    place = good.index(b"Exif")
    bad = good[: place + 6] + b"\xff" * 12 + good[place + 18 :]
    assert np.array_equal(decode_image(bad, size=8), decode_image(sideways(1, "JPEG"), size=8))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not an image"),
        (b"hello, world", "is not an image"),
        (encoded_image(0, size=(200, 100))[:-100], "truncated"),
        (encoded_image(0)[:60], "is not an image|truncated|cannot be decoded"),
        (encoded_image(0, kind="PNG")[:-40], "cannot be decoded"),
        (png(10_000, 10_000), f"10000 x 10000 pixels, but 1 to {MAX_PIXELS}"),
        (png(30_000, 30_000), "too many pixels"),
        (png(0, 5), "is not an image|0 x 5|cannot be decoded"),
        (b"GIF89a\0\0\0\0\0\0\0,\0\0\0\0\0\0\0\0\0;", "is not an image|0 x 0|cannot be decoded"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "is not an image"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bad_images_are_named(data, words):
    with pytest.raises(InputError, match=rf"cat\.jpg .*({words})"):
        decode_image(data, size=8, name="cat.jpg")
