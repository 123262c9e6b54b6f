"""What is known of weights by their names, and when they leak the benchmark."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from mlcl.errors import InputError
from mlcl.models.provenance import check_encoder, describe_weights, images_of, leak, mark_leak, trained_on


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
    assert leaks(trained_on=["ImageNet-21k"], outputs=[21841]) is None


@pytest.mark.parametrize(
    "name",
    [
        "mobilenetv2_coco.safetensors",
        "tresnet_m_224_21k.pth",
        "COCO_WITH_VOC_LABELS_V1",
        "eva02_m38m_coco_det.pth",
    ],
)
def test_weights_of_coco_have_seen_the_classes_of_voc(name):
    text = leaks(weights=name, trained_on=trained_on(name), data="voc2012", classes=20)
    assert text.startswith(
        f"the weights '{name}' were trained on MS-COCO: other images than those of this benchmark"
    )
    assert "labels of all 20 classes of PASCAL VOC" in text
    assert ("KRT's README" in text) == (name == "tresnet_m_224_21k.pth")
    with pytest.warns(UserWarning, match="trained on MS-COCO: other images"):
        mark_leak({"weights": name, "trained_on": trained_on(name)}, data=["c-voc-small"], classes=20)


def test_images_of_coco_without_labels_or_weights_of_voc_itself_are_another_matter():
    eva = "mim_m38m_ft_in22k_in1k"
    assert leaks(weights=eva, trained_on=trained_on(eva), data="voc2012", classes=20) is None
    assert "the images of this benchmark" in leaks(weights=eva, trained_on=trained_on(eva))
    both = ["MS-COCO", "PASCAL VOC"]
    assert "PASCAL VOC, the images of this benchmark" in leaks(trained_on=both, data="voc2012", classes=20)
    assert leaks(trained_on=["PASCAL VOC"]) is None
    assert leaks(trained_on=["MS-COCO"], data="nus-wide", classes=81) is None


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
    assert describe_weights(
        {"package": "timm", "version": "1", "model": "m", "weights": "f.pth", "sha256": "ab"}
    ) == ("timm 1 m, weights f.pth, data not known, sha256 ab")
    assert describe_weights({"model": "resnet8", "weights": None, "sha256": "0" * 64}) == (
        f"resnet8, random weights, sha256 {'0' * 12}"
    )


def features_of(size=None, resize=None):
    """Return the provenance of features of one encoder; without a size as before sizes were recorded."""
    record = {"model": "m", "weights": "f.pth", "sha256": "ab", "resize": resize, "normalised": "to [0, 1]"}
    return record if size is None else record | {"image_size": [size, size]}


@pytest.mark.parametrize(
    ("trained", "given", "different"),
    [
        (features_of(96), features_of(64), "the size of images (64 x 64, not 96 x 96)"),
        (features_of(96), features_of(64, resize=96), "the resizing of images"),
        (
            features_of(64),
            features_of(64, 96),
            "the resizing of images, the size of images (96 x 96, not 64 x 64)",
        ),
        (features_of(96), features_of(96) | {"normalised": "x"}, "their normalisation"),
    ],
)
def test_images_of_another_size_make_another_encoder(trained, given, different):
    with pytest.raises(InputError) as caught:
        check_encoder(trained, given, run="runs/a", data="store")
    sentence = str(caught.value)
    assert sentence.startswith("store has features of another encoder (m, weights f.pth, ")
    assert sentence.endswith(f"; what differs: {different}.")
    for record in (trained, given):
        assert f", images of {record['image_size'][0]} x {record['image_size'][0]}" in sentence


@pytest.mark.parametrize(
    ("trained", "given"),
    [
        (features_of(64), features_of(64)),
        (features_of(64, resize=96), features_of(48, resize=96)),  # the encoder saw 96 x 96 in both
        (features_of(resize=96), features_of(64, resize=96)),
        (features_of(), features_of()),
    ],
)
def test_images_of_the_same_size_are_of_one_encoder(trained, given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_encoder(trained, given, run="runs/a", data="store")


def test_a_size_that_one_of_the_two_does_not_record_is_warned_of():
    with pytest.warns(
        UserWarning, match=r"^runs/a does not record the size of the images .* expected: 64 x 64\.$"
    ):
        check_encoder(features_of(), features_of(64), run="runs/a", data="store")
    with pytest.warns(
        UserWarning, match=r"^store does not record the size of the images .* expected: 64 x 64\.$"
    ):
        check_encoder(features_of(64), features_of(), run="runs/a", data="store")
