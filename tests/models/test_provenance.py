"""What is known of weights by their names, and when they leak the benchmark."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from mlcl.models.provenance import describe, images_of, leak, mark_leak, trained_on


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a1_in1k", ["ImageNet-1k"]),
        ("IMAGENET1K_V2", ["ImageNet-1k"]),
        ("augreg_in21k_ft_in1k", ["ImageNet-21k", "ImageNet-1k"]),
        ("fb_in22k", ["ImageNet-21k"]),
        ("tresnet_l_v2_miil_21k.pth", ["ImageNet-21k"]),
        ("laion2b_ft_in12k_in1k", ["ImageNet-12k", "ImageNet-1k", "LAION"]),
        ("mim_m38m_ft_in22k_in1k", ["Merged-30M or -38M", "MS-COCO", "ImageNet-21k", "ImageNet-1k"]),
        ("pali_refcoco_seg", ["MS-COCO"]),
        ("deeplabv3_resnet50_coco-cd0a2569.pth", ["MS-COCO"]),
        ("COCO_WITH_VOC_LABELS_V1", ["MS-COCO"]),
        ("PASCAL_VOC_TResNet_L_448_96.0.pth", ["PASCAL VOC"]),
        ("tresnet_m_224_21k.pth", ["MS-COCO", "ImageNet-21k"]),
        ("mae", ["ImageNet-1k"]),
        ("dinov3_lvd1689m", ["LVD-1689M"]),
        ("my-vocabulary.safetensors", []),
        ("resnet18-f37072fd.pth", []),
    ],
)
def test_names_tell_what_weights_were_trained_on(name, expected):
    assert trained_on(name) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("coco2017", "c-coco-small"), "MS-COCO"),
        (("my-data", "coco2014-b0-c10"), "MS-COCO"),
        (("voc2012-validation",), "PASCAL VOC"),
        (("nus-wide", "c-nus"), "NUS-WIDE"),
        (("digits", "c-digits"), None),
        (("bonus",), None),
    ],
)
def test_benchmarks_tell_whose_images_they_hold(names, expected):
    assert images_of(*names) == expected


def leaks(*, weights="x", data="coco2017", classes=80, **fields):
    return leak({"weights": weights, **fields}, data=[data], classes=classes)


def test_weights_of_the_benchmarks_images_leak():
    text = leaks(weights="tresnet_m_224_21k.pth", trained_on=trained_on("tresnet_m_224_21k.pth"))
    assert "'tresnet_m_224_21k.pth' were trained on MS-COCO" in text
    assert "MS_COCO_TRresNet_M_224_81.8.pth" in text  # what the file was before it was renamed
    assert leaks(trained_on=["MS-COCO"], data="voc2012", classes=20) is None
    assert leaks(trained_on=["ImageNet-21k"], outputs=[21841]) is None


@pytest.mark.parametrize("width", [80, 90, 91])
def test_a_classifier_of_as_many_outputs_is_suspicious_whatever_the_name(width):
    text = leaks(weights="imagenet21k.pth", trained_on=["ImageNet-21k"], outputs=[768, width])
    assert f"a classifier of {width} outputs, as MS-COCO would give" in text


def test_a_width_is_compared_with_the_classes_of_any_data():
    assert "a classifier of 17 outputs, as this benchmark" in leaks(outputs=[17], data="mine", classes=17)
    assert leaks(outputs=[91], data="mine", classes=17) is None
    assert leaks(outputs=[1], data="mine", classes=1) is None
    assert leaks(outputs=[1000], trained_on=["ImageNet-1k"], data="mine", classes=1000) is None


def test_a_run_on_the_very_data_leaks():
    provenance = {"weights": "run-1", "trained_on": ["mine"], "data": "0123"}
    assert "this very dataset" in leak(provenance, data=["mine"], classes=3, fingerprint="0123")
    assert leak(provenance, data=["mine"], classes=3, fingerprint="4567") is None


def test_a_leak_is_warned_of_and_written_down():
    provenance: dict[str, Any] = {"weights": "coco.pth", "trained_on": ["MS-COCO"]}
    with pytest.warns(UserWarning, match=r"'coco.pth' were trained on MS-COCO"):
        mark_leak(provenance, data=["coco2014"], classes=80)
    assert provenance["leak"].startswith("the weights 'coco.pth'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mark_leak(provenance, data=["digits"], classes=10)
        mark_leak(None, data=["coco2014"], classes=80)
    assert provenance["leak"] is None


def test_provenance_in_one_line():
    assert describe(
        {"package": "timm", "version": "1", "model": "m", "weights": "f.pth", "sha256": "ab"}
    ) == ("timm 1 m, weights f.pth, data not known, sha256 ab")
    assert describe({"model": "resnet8", "weights": None, "sha256": "0" * 64}) == (
        f"resnet8, random weights, sha256 {'0' * 12}"
    )
