"""The published class lists and image counts of VOC and COCO, to check that a store is the whole dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcl.datasets import coco, voc

_COCO = """
person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,
bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,skis,
snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,
knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,
dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,refrigerator,book,clock,
vase,scissors,teddy bear,hair drier,toothbrush"""

COCO_CLASSES = tuple(_COCO.replace("\n", "").split(","))
"""The 80 classes of MS COCO in the order of their category ids; a store takes its classes from the files."""


@dataclass(frozen=True)
class Published:
    """A dataset as its authors published it.

    Attributes:
        classes: names of the classes.
        train: training images that have a label.
        test: test images that have a label.
        unlabelled: training and test images without a label, which stores leave out.
        fewer: the option of `mlcl data prepare` with which a store has fewer images.
        reason: the one under which a store counts the images that have no label, or none left.
    """

    classes: tuple[str, ...]
    train: int
    test: int
    unlabelled: tuple[int, int] = (0, 0)
    fewer: str = ""
    reason: str = ""


_OF_VOC = ("--difficult exclude", voc.UNLABELLED)
_OF_COCO = ("--crowds exclude", coco.UNLABELLED)
PUBLISHED = {
    "voc2007": Published(voc.CLASSES, 5_011, 4_952, (0, 0), *_OF_VOC),
    "voc2012": Published(voc.CLASSES, 5_717, 5_823, (0, 0), *_OF_VOC),
    "coco2014": Published(COCO_CLASSES, 82_081, 40_137, (702, 367), *_OF_COCO),
    "coco2017": Published(COCO_CLASSES, 117_266, 4_952, (1_021, 48), *_OF_COCO),
}
"""By the name that `mlcl data prepare` gives the store."""


def published_name(name: str) -> str | None:
    """Return the published dataset that the name of a store or of a benchmark begins with."""
    return next((known for known in PUBLISHED if name == known or name.startswith(f"{known}-")), None)


def published_differences(
    name: str,
    *,
    data: str,
    classes: Sequence[str],
    train: int,
    test: int,
    dropped: Mapping[str, int] | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each way in which data differ from a published dataset; nothing if they are the same.

    A ``name`` of a benchmark or store that begins with no published dataset claims nothing. A store that leaves out
    images because they have no label left (``dropped``) is whole where its rows and these are all published images.
    """
    known = published_name(name)
    if known is None:
        return ()
    whole, found = PUBLISHED[known], []
    if published_name(data) != known:
        found.append(f"the data of {name} are {data!r}; {known} was expected")
    if set(classes) != set(whole.classes) or len(classes) != len(whole.classes):
        missing = [each for each in whole.classes if each not in classes]
        which = f" ({', '.join(missing[:3])} {'and others are' if len(missing) > 3 else 'are'} missing)"
        found.append(
            f"{data} has other classes than the {len(whole.classes)} of {known}{which if missing else ''}"
        )
    images = whole.train + whole.test + sum(whole.unlabelled)
    unlabelled = (dropped or {}).get(whole.reason, 0)
    if train <= whole.train and test <= whole.test and train + test + unlabelled == images:
        return tuple(found)
    for split, rows, expected, without in zip(
        ("training", "test"), (train, test), (whole.train, whole.test), whole.unlabelled, strict=True
    ):
        if rows != expected:
            more = f" with labels, and {without:,} without" if without else ""
            more += f", fewer under {whole.fewer}" if rows < expected else ""
            subject = "it" if published_name(data) == known else known
            found.append(f"{data} has {rows:,} {split} rows; as published {subject} has {expected:,}{more}")
    return tuple(found)
