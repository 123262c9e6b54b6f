"""Raw files for tests: the shared real data, and small layouts written on the spot."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def shared_data() -> Path:
    """Return the folder of real data, or skip the test and say so."""
    path = Path(os.environ.get("MLCL_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
    if not path.is_dir():
        pytest.skip(f"no real data at {path}; set MLCL_DATA to its folder")
    return path


def encoded_image(
    seed: int = 0, *, size: tuple[int, int] = (24, 18), mode: str = "RGB", kind: str = "JPEG"
) -> bytes:
    """Return an encoded image of smooth noise."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize(
        size, Image.Resampling.BICUBIC
    )
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, kind)
    return buffer.getvalue()


def write_tree(root: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder and their bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def annotation(*names: str, difficult: tuple[int, ...] = ()) -> str:
    """Return a VOC annotation."""
    objects = "".join(
        f"<object><name>{name}</name><difficult>{int(i in difficult)}</difficult></object>"
        for i, name in enumerate(names)
    )
    return f"<annotation>{objects}</annotation>"


def voc_files(train: int = 4, test: int = 3, *, year: int = 2012) -> dict[str, bytes | str]:
    """Return a small VOCdevkit: image i shows a cat, and a dog if i is even."""
    lists = ("train", "val") if year == 2012 else ("trainval", "test")
    base = f"VOCdevkit/VOC{year}/"
    ids = [f"2008_{i:06d}" for i in range(train + test)]
    files: dict[str, bytes | str] = {
        f"{base}ImageSets/Main/{lists[0]}.txt": "\n".join(ids[:train]) + "\n",
        f"{base}ImageSets/Main/{lists[1]}.txt": "\n".join(ids[train:]) + "\n",
    }
    for i, name in enumerate(ids):
        files[f"{base}JPEGImages/{name}.jpg"] = encoded_image(i)
        files[f"{base}Annotations/{name}.xml"] = annotation(*(("cat",) if i % 2 else ("cat", "dog")))
    return files


def coco_split(first: int, count: int) -> dict[str, list[dict[str, object]]]:
    """Return the content of an instances file: image i has category 3, and 7 if i is even."""
    images = [{"id": i, "file_name": f"{i:012d}.jpg"} for i in range(first, first + count)]
    pairs = [(i, c) for i in range(first, first + count) for c in ((3, 7) if i % 2 == 0 else (3,))]
    return {
        "images": images,
        "annotations": [
            {"image_id": i, "category_id": c, "segmentation": [[1.5, 2.5]], "bbox": [0.5]} for i, c in pairs
        ],
        "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
    }


def coco_files(train: int = 4, test: int = 3, *, year: int = 2017) -> dict[str, bytes | str]:
    """Return a small COCO folder."""
    files: dict[str, bytes | str] = {}
    for split, first, count in (("train", 1, train), ("val", 1 + train, test)):
        files[f"annotations/instances_{split}{year}.json"] = json.dumps(coco_split(first, count))
        files |= {f"{split}{year}/{i:012d}.jpg": encoded_image(i) for i in range(first, first + count)}
    return files


def nus_files(labels: np.ndarray, train: int, classes: list[str]) -> dict[str, bytes | str]:
    """Return a NUS-WIDE layout, its lists with back-slashes and Windows line ends as in the download."""
    files: dict[str, bytes | str] = {"ConceptsList/Concepts81.txt": "\r\n".join(classes) + "\r\n"}
    paths = [f"folder{i % 3}/{i:04d}_{7 * i}.jpg" for i in range(len(labels))]
    for split, rows in (("Train", range(train)), ("Test", range(train, len(labels)))):
        lines = [paths[i].replace("/", "\\") for i in rows]
        files[f"ImageList/{split}Imagelist.txt"] = "".join(f"{line}\r\n" for line in lines)
        for k, name in enumerate(classes):
            column = "".join(f"{labels[i, k]}\n" for i in rows)
            files[f"Groundtruth/TrainTestLabels/Labels_{name}_{split}.txt"] = column
    return files | {f"Flickr/{path}": encoded_image(i) for i, path in enumerate(paths)}
