"""The field's protocol on small data in the official layouts, from raw files to the measures of its sessions."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import yaml

from data import annotation, encoded_image, write_tree
from mlcl import run
from mlcl.config.resolve import resolve, shipped
from mlcl.datasets import open_store, prepare_source
from mlcl.datasets.published import PUBLISHED
from mlcl.metrics import session_measures
from mlcl.runs.folder import read_result
from mlcl.runs.recording import load_benchmark
from mlcl.streams.orders import class_groups

FIELD = {
    "voc2007": {"b0-c4": 5, "b4-c2": 9, "b5-c3": 6, "b10-c2": 6},
    "coco2014": {"b0-c10": 8, "b20-c4": 16, "b40-c10": 5},
}


def voc2007_files(rng):
    """Return a VOCdevkit of 2007 in which every class has images."""
    names, base, files = PUBLISHED["voc2007"].classes, "VOCdevkit/VOC2007/", {}
    lists = {"trainval": [], "test": []}
    for number in range(60):
        name = f"{number:06d}"
        lists["trainval" if number < 40 else "test"].append(name)
        shown = [*sorted({names[number % 20], names[int(rng.integers(20))]}), "person"]
        files[f"{base}Annotations/{name}.xml"] = annotation(*shown, difficult=(len(shown) - 1,))
        files[f"{base}JPEGImages/{name}.jpg"] = encoded_image(number)
    lists["trainval"].append("000060")  # nothing but a difficult object
    files[f"{base}Annotations/000060.xml"] = annotation("person", difficult=(0,))
    files[f"{base}JPEGImages/000060.jpg"] = encoded_image(60)
    return files | {f"{base}ImageSets/Main/{split}.txt": "\n".join(ids) for split, ids in lists.items()}


def coco2014_files(rng):
    """Return a COCO of 2014 in which every class has images; category ids have gaps, as the real ones."""
    names, files = PUBLISHED["coco2014"].classes, {}
    categories = [{"id": k + 1 + k // 10, "name": name} for k, name in enumerate(names)]
    for split, first, count in (("train", 1, 160), ("val", 1001, 80)):
        images, annotations = [], []
        for number in range(first, first + count):
            file = f"COCO_{split}2014_{number:012d}.jpg"
            images.append({"id": number, "file_name": file})
            files[f"{split}2014/{file}"] = encoded_image(number)
            for k in {(number - first) % 80, int(rng.integers(80))}:
                annotations.append({"image_id": number, "category_id": categories[k]["id"]})
            annotations.append({"image_id": number, "category_id": 1, "iscrowd": 1})
        images.append({"id": first + 500, "file_name": "crowd.jpg"})  # nothing but a crowd
        annotations.append({"image_id": first + 500, "category_id": 1, "iscrowd": 1})
        content = {"images": images, "annotations": annotations, "categories": categories}
        files[f"annotations/instances_{split}2014.json"] = json.dumps(content)
    return files


@pytest.mark.parametrize("data", FIELD)
def test_the_shipped_configs_are_the_fields_protocols(data):
    names = PUBLISHED[data].classes
    for protocol, tasks in FIELD[data].items():
        config = resolve(name=f"{data}-{protocol}")
        stream = config.stream
        groups = class_groups(names, order=stream.order, base=stream.base, increment=stream.increment)
        base, step = (int(part[1:]) for part in protocol.split("-"))
        assert config.data == f"{data}-224"
        assert [len(group) for group in groups] == [base or step] + [step] * (tasks - 1)
        assert [names[k] for group in groups for k in group] == sorted(names)


def test_configs_on_other_images_say_so():
    other = {"voc2012": "voc2007", "coco2017": "coco2014"}
    for name, text in shipped().items():
        data = name.split("-")[0]
        if data in other and name.endswith("-features"):
            assert f"NOT its images: {data} instead of {other[data]}" in text
            field = yaml.safe_load(shipped()[name.removesuffix("-features").replace(data, other[data])])
            assert yaml.safe_load(text)["stream"] == field["stream"]
        elif data in other:
            assert f"{other[data]}-" in text


@pytest.fixture(scope="module", params=FIELD)
def field_store(request, tmp_path_factory):
    """Return the name of a dataset of the field, and a small store of it, made as the configs' headers say."""
    data, tmp_path = request.param, tmp_path_factory.mktemp(request.param)
    files = {"voc2007": voc2007_files, "coco2014": coco2014_files}[data]
    write_tree(tmp_path, files(np.random.default_rng(0)))
    kind, year = data[:-4], int(data[-4:])
    root = tmp_path / "VOCdevkit" if kind == "voc" else tmp_path
    options = {"voc": {"difficult": "exclude"}, "coco": {"crowds": "exclude"}}[kind]
    prepare_source(kind, root, out=tmp_path / "store", size=8, year=year, **options)
    return data, tmp_path / "store"


def test_the_stores_have_no_label_of_a_difficult_object_or_a_crowd(field_store):
    data, path = field_store
    store = open_store(path)
    assert (len(store.train), len(store.test)) == {"voc2007": (40, 20), "coco2014": (160, 80)}[data]
    assert list(store.dropped.values()) == [{"voc2007": 1, "coco2014": 2}[data]]
    # Every image has a difficult person, or a crowd of them.
    person = store.classes.index("person")
    assert store.train.labels[:, person].mean() < 0.2


def test_every_config_has_the_sessions_of_its_protocol(field_store):
    data, path = field_store
    names = sorted(PUBLISHED[data].classes)
    labels = open_store(path).train.labels
    for protocol, tasks in FIELD[data].items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            benchmark = load_benchmark(resolve(name=f"{data}-{protocol}", given={"data": str(path)}))
        assert not [found for found in caught if "was prepared with" in str(found.message)]
        base, step = (int(part[1:]) for part in protocol.split("-"))
        sizes = [base or step] + [step] * (tasks - 1)
        ends = np.cumsum(sizes)
        shown = [[benchmark.classes[k] for k in task.classes] for task in benchmark]
        assert shown == [names[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        for task in benchmark:  # the images with a class of the session, and no other
            assert task.train.tolist() == np.flatnonzero(labels[:, task.classes].any(axis=1)).tolist()


def test_raw_files_become_the_measures_of_sessions(field_store, tmp_path):
    data, path = field_store
    protocol = {"voc2007": "b10-c2", "coco2014": "b40-c10"}[data]
    given = {
        "data": str(path),
        "method": "ft",
        "model": {"kind": "resnet8", "width": 4},
        "train": {"epochs": 1, "threads": 1, "lr": 0.001},
        "threshold": 0.45,
    }
    with pytest.warns(UserWarning, match=f"{data} has .* training rows; as published it has"):
        result = run(resolve(name=f"{data}-{protocol}", given=given), out=tmp_path / "run")
    tasks = FIELD[data][protocol]
    store = open_store(path)
    order = [store.classes[k] for task in result.learner.tasks for k in task.classes]
    assert order == sorted(PUBLISHED[data].classes)
    assert len(result.sessions) == tasks
    # The last session once more: all classes, all test images, from the network's own scores.
    scores = result.learner.predict(store.test.inputs)
    cut = np.log(0.45 / 0.55)
    again = session_measures(scores[:, :], store.test.labels, threshold=cut)
    assert {name: result.sessions[-1][name] for name in again} == pytest.approx(
        {name: 100 * value for name, value in again.items()}
    )
    saved = json.loads((tmp_path / "run" / "result.json").read_text())["sessions"]
    assert saved["threshold"] == 0.45
    assert saved["mean"]["map"] == pytest.approx(np.mean([each["map"] for each in saved["each"]]))
    read = read_result(tmp_path / "run").values
    assert read["map_last"] == pytest.approx(result.pooled["map"])
    assert read["cf1_avg"] == pytest.approx(saved["mean"]["cf1"])
    assert read["map_forgetting"] == pytest.approx(result.map_forgetting)
