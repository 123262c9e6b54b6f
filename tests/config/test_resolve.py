"""Layers of settings: what wins, what is refused, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.config.fitting import RATES
from mlcl.config.parts import GIVEN_BY_THE_RUN, REGISTRIES
from mlcl.config.resolve import (
    checked,
    config_from,
    merge,
    read_config_file,
    read_yaml,
    resolve,
    shipped,
    to_yaml,
    warn_of_rate,
)
from mlcl.config.resolve import settings as every_setting
from mlcl.config.schema import Config, to_dict
from mlcl.errors import InputError
from mlcl.methods.presets import PRESETS


def test_defaults_are_the_papers_method_on_the_embedded_benchmark():
    config = resolve()
    assert (config.benchmark, config.method) == ("c-digits", "rldam-wru")
    assert (config.loss.kind, config.memory.kind) == ("rldam", "wru")


def all_pairs():
    """Every preset with every shipped config; the inner loop has each of them at least once."""
    fast = min(len(PRESETS), len(shipped()))
    for i, name in enumerate(shipped()):
        for j, method in enumerate(PRESETS):
            yield pytest.param(name, method, marks=[pytest.mark.slow] if (i - j) % fast else [])


@pytest.mark.parametrize(("name", "method"), all_pairs())
def test_every_preset_resolves_on_every_shipped_config(name, method):
    config = resolve(name=name, given={"method": method})
    for part, wanted in PRESETS[method].parts.items():
        found = to_dict(config)[part]
        assert found == wanted if isinstance(wanted, str) else found | wanted == found


def test_a_method_on_the_command_line_goes_over_the_file():
    file = to_dict(resolve(given={"memory": {"size": 77}, "loss": {"margin": 2.0}}))
    config = resolve(file=file, given={"method": "er"})
    assert (config.loss.kind, config.memory.kind, config.memory.size) == ("bce", "random", 77)
    assert not config.loss.options  # lambda means nothing to BCE


def test_parts_in_a_file_go_over_the_methods_preset():
    config = resolve(file={"method": "er", "loss": {"kind": "rldam", "margin": 3.0}})
    assert (config.loss.kind, config.loss.options, config.memory.kind) == ("rldam", {"margin": 3.0}, "random")


def test_all_parts_combine_by_hand():
    given = {
        "method": "replay",
        "memory": {"kind": "ocdm"},
        "loss": {"kind": "rldam"},
        "regulariser": {"kind": "ewc"},
    }
    config = resolve(given=given)
    assert (config.memory.kind, config.loss.kind, config.regulariser.kind) == ("ocdm", "rldam", "ewc")


def test_a_resolved_config_reads_back_as_itself(tmp_path):
    config = resolve(given={"method": "krt-r", "seed": 3, "stream": {"order": [[1, 2], [0, 3]]}})
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert config_from(path) == config


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "rldam-wur"}, "unknown method 'rldam-wur'; .* Did you mean 'rldam-wru'"),
        ({"loss": {"kind": "rldm"}}, "unknown loss 'rldm'.*Did you mean 'rldam'"),
        ({"memory": {"kind": "wur"}}, "unknown memory 'wur'.*Did you mean 'wru'"),
        ({"benchmark": "c-digit"}, "unknown benchmark 'c-digit'.*Did you mean 'c-digits'"),
        ({"memory": {"size": -1}}, "memory.size is -1; expected a number of at least 0"),
        ({"train": {"epochs": 0}}, "train.epochs is 0; expected a number of at least 1"),
        ({"train": {"lr": float("nan")}}, "train.lr is nan"),
        ({"train": {"lr_drops": [2.0]}}, "train.lr_drops holds 2.0"),
        ({"loss": {"kind": "bce", "margin": 1.0}}, "loss 'bce' takes no option 'margin' .given: 1.0."),
        ({"memory": {"kind": "random", "criterion": "ratio"}}, "memory 'random' takes no option 'criterion'"),
        ({"memory": {"weight_scale": 2.0}}, "used with memory.weight 'size' only"),
        ({"regulariser": {"kind": "tokens"}}, "needs model.head 'attention'"),
        ({"method": "joint", "memory": {"kind": "wru"}}, "protocol 'joint'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(given, words):
    with pytest.raises(InputError, match=words) as error:
        resolve(given=checked(given, "command line"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory: {sise: 3}", "my.yaml: unknown field 'memory.sise'. Did you mean 'memory.size'"),
        ("memry: {size: 3}", "my.yaml: unknown field 'memry'. Did you mean 'memory'"),
        ("train: {epochs: many}", "my.yaml: train.epochs is 'many'; expected int"),
        ("train: {epochs: 2.5}", "my.yaml: train.epochs is 2.5; expected int"),
        ("stream: {setting: both}", "stream.setting is 'both'; expected 'overlap', 'disjoint'"),
        ("loss: {margin: big}", "loss.margin is 'big'; expected float"),
        ("train: 3", "my.yaml: train is 3; expected a mapping"),
        ("- a\n- b", "my.yaml: expected a mapping of settings, got list"),
        ("a: [", "my.yaml: not valid YAML"),
        ("a: &x [1]\nb: *x", "my.yaml: not valid YAML: aliases such as .x are not read here"),
        ("x: !!python/object/apply:os.system ['true']", "my.yaml: not valid YAML"),
        ("memory: {size: null}", "memory.size is null; expected a value like 200"),
    ],
)
def test_a_bad_file_is_told_by_name_field_and_value(text, words):
    with pytest.raises(InputError, match=words) as error:
        resolve(file=read_yaml(text, "my.yaml"))
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_config_file(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes("seed: 1 # \xe9".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_config_file(tmp_path / "latin.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(InputError, match="larger than"):
        read_config_file(tmp_path / "huge.yaml")


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text_is_a_config_or_a_sentence(text):
    try:
        config = resolve(file=read_yaml(text, "x.yaml"))
    except InputError as error:
        assert str(error)
    else:
        assert isinstance(config, Config)


_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=3)
)
_sections = st.sampled_from([*to_dict(Config()), "nonsense"])
_fields = st.sampled_from(
    ["kind", "size", "epochs", "tasks", "order", "margin", "lr_drops", "seed", "nonsense"]
)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.dictionaries(_sections, _values | st.dictionaries(_fields, _values, max_size=3), max_size=4))
def test_any_mapping_is_a_config_or_a_sentence(layer):
    try:
        config = resolve(given=checked(layer, "config"))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(config, Config)


def test_merge_leaves_its_arguments_alone():
    low, high = {"a": {"x": 1}}, {"a": {"y": 2}}
    assert merge(low, high) == {"a": {"x": 1, "y": 2}}
    assert (low, high) == ({"a": {"x": 1}}, {"a": {"y": 2}})


def test_every_option_of_every_part_can_be_set_from_a_config():
    for part, registry in REGISTRIES.items():
        for kind in registry.names():
            for name in registry.options(kind):
                assert f"{part}.{name}" in every_setting() or name in GIVEN_BY_THE_RUN[part], (
                    part,
                    kind,
                    name,
                )


def test_every_setting_is_explained():
    silent = [name for name, option in every_setting().items() if len(option.help) < 10]
    assert not silent


def test_an_alias_is_written_down_by_its_name_and_options_of_replaced_parts_go():
    config = config_from({"method": "best"})
    assert config.method == "taught-committee"
    assert (config.regulariser.kind, config.regulariser.options) == ("lwf", {"distance": "huber"})
    other = config_from({"method": "best", "regulariser": "ewc"})
    assert (other.regulariser.kind, other.regulariser.options) == ("ewc", {})


@pytest.mark.parametrize(
    ("settings", "meant"),
    [
        ({"benchmark": "c-digits"}, "taught-committee"),
        ({"benchmark": "c-voc-small"}, "taught-committee"),
        ({"benchmark": "c-scene"}, "exact"),
        ({"benchmark": "c-coco-features"}, "exact"),
        ({"model": {"kind": "mobilenetv2", "pretrained": "a.safetensors"}}, "exact"),
        ({"model": "mobilenetv2"}, "taught-committee"),
    ],
)
def test_the_recommended_method_is_exact_where_features_are_fixed(settings, meant):
    config = config_from({"method": "best", **settings})
    assert config.method == meant
    assert (config.model.head == "exact") == (meant == "exact")
    if "model" in settings:
        assert config.model.kind == "mobilenetv2"
    else:
        assert config.model.kind == ("fixed" if meant == "exact" else "resnet8")


def test_best_on_vectors_refuses_a_network_that_nothing_would_train():
    with pytest.raises(InputError, match="model is 'mlp', but method 'best' trains no network here"):
        config_from({"benchmark": "c-scene", "method": "best", "model": "mlp"})
    assert config_from({"benchmark": "c-scene", "method": "exact", "model": "mlp"}).model.kind == "mlp"


@pytest.mark.parametrize("name", shipped())
def test_a_copied_config_runs_as_the_shipped_one(name, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(shipped()[name])
    assert config_from(path) == config_from(name)


def test_options_for_a_part_that_the_method_chose_are_left_out_with_a_warning():
    with pytest.warns(
        UserWarning, match=r"loss.margin of the file is not used: loss 'bce', which the method chose"
    ):
        assert dict(resolve(file={"method": "er", "loss": {"margin": 2.0}}).loss.options) == {}
    with pytest.raises(InputError, match="loss 'bce' takes no option 'margin'"):
        resolve(file={"method": "er", "loss": {"kind": "bce", "margin": 2.0}})


def store_of(kind, folder):
    """A prepared store of three rows."""
    from mlcl.datasets import prepare_source

    x = np.zeros((4, 3, 16, 16), np.uint8) if kind == "images" else np.eye(4)
    y = np.array([[1, 0], [1, 1], [0, 1], [1, 1]])
    np.savez(folder / "raw.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return str(prepare_source("arrays", folder / "raw.npz", out=folder / "store").path)


@pytest.mark.parametrize(("kind", "model"), [("images", "resnet8"), ("features", "mlp")])
def test_a_model_that_nobody_chose_fits_the_store(kind, model, tmp_path):
    store = store_of(kind, tmp_path)
    assert resolve(given={"benchmark": store}).model.kind == model
    assert resolve(name="c-digits", given={"benchmark": store}).model.kind == model
    assert resolve(name="c-enron", given={"benchmark": store}).model.kind == model
    assert resolve(file={"data": store}).model.kind == model
    assert resolve(given={"benchmark": store, "model": {"kind": "resnet18"}}).model.kind == "resnet18"
    assert resolve(file={"model": {"kind": "mlp"}}, given={"benchmark": store}).model.kind == "mlp"


def test_a_learning_rate_that_nobody_chose_fits_the_data():
    def rate(kind, **given):
        return resolve(given=given, kind=kind).train.lr

    assert (rate("features"), rate("images")) == (RATES["features"], RATES["images"])
    assert rate("features", train={"lr": 0.3}) == 0.3
    assert resolve(name="c-voc-features").train.lr == 0.005
    assert resolve(given={"benchmark": "c-digits"}).train.lr == 0.2


@pytest.mark.parametrize(
    ("kind", "given", "warned"),
    [
        ("images", {"method": "er"}, True),
        ("images", {"method": "er", "train": {"lr": 0.2}}, False),
        ("images", {"method": "krt"}, False),  # the method brings its own
        ("images", {"method": "exact"}, False),  # nothing is trained
        ("features", {"method": "er"}, False),
        ("features", {"method": "er", "train": {"optimiser": "adam"}}, True),
    ],
)
def test_a_learning_rate_that_was_never_chosen_for_such_data_says_so(kind, given, warned, tmp_path, recwarn):
    given = given | {"benchmark": store_of(kind, tmp_path)}
    warn_of_rate(resolve(given=given), {}, given)
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == warned
    if warned:
        assert f"mlcl reproduce presets --benchmark {tmp_path / 'store'} --rows er --tune train.lr" in said[0]


def test_a_shipped_benchmark_has_its_own_learning_rate(recwarn):
    warn_of_rate(resolve(), {}, {})
    assert not recwarn.list


def test_a_model_fits_the_kind_that_is_given():
    assert config_from({"method": "er"}, kind="features").model.kind == "mlp"
    assert config_from("c-enron", kind="images").model.kind == "resnet8"
    assert config_from({"model": "resnet8"}, kind="features").model.kind == "resnet8"


def test_the_folder_of_a_store_is_recorded_absolute_and_a_name_as_it_is(tmp_path, monkeypatch):
    for name in ("stores/mine", "digits", "voc2012-64"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "stores")
    mine = str((tmp_path / "stores/mine").resolve())
    given = [
        {"given": {"benchmark": "mine"}},
        {"given": {"data": "../stores/mine"}},
        {"file": {"data": "~/stores/mine", "benchmark": "mine"}},
        {"file": {"benchmark": "../stores/mine"}},
    ]
    assert [resolve(**layers).data for layers in given] == [mine] * 4
    assert config_from(Config(data="mine")).data == mine
    assert resolve(given={"data": "voc2012-64"}).data == "voc2012-64"  # in the cache, if anywhere
    monkeypatch.chdir(tmp_path)
    assert resolve().data == "digits"  # built in, whatever is in this folder
    assert resolve(given={"data": "voc2012-64"}).data == str((tmp_path / "voc2012-64").resolve())


def test_data_under_the_home_of_nobody_were_not_found():
    from mlcl.datasets import load_dataset

    with pytest.raises(InputError, match="dataset '~nobody-at-all/store' was not found"):
        load_dataset(resolve(given={"data": "~nobody-at-all/store"}).data)
