"""Settings that follow from others."""

from __future__ import annotations

import pytest

from mlcl.config.resolve import config_from
from mlcl.config.schema import ExactConfig, TrainConfig
from mlcl.errors import InputError
from mlcl.exact import Options


def test_a_portable_run_is_on_one_cpu_thread():
    train = config_from({"train": {"portable": True}}).train
    assert (train.device, train.threads) == ("cpu", 1)
    assert (TrainConfig().device, TrainConfig().threads) == ("auto", None)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("device", "cuda", "'cpu'"),
        ("threads", 2, "1"),
        ("precision", "bf16-mixed", "'32-true'"),
        ("compile", True, "False"),
    ],
)
def test_what_cannot_be_portable_is_refused(name, value, expected):
    with pytest.raises(
        InputError, match=f"train.{name} is {value!r} but train.portable is true; expected {expected}"
    ):
        TrainConfig(portable=True, **{name: value})


@pytest.mark.parametrize("seed", [2**64, int("f" * 5000, 16), -1], ids=["65 bits", "20000 bits", "negative"])
@pytest.mark.parametrize("section", ["", "stream"])
def test_a_seed_has_64_bits(seed, section):
    given = {section: {"seed": seed}} if section else {"seed": seed}
    with pytest.raises(InputError, match=r"seed is .{1,40}; expected a whole number from 0 to 2\^64 - 1"):
        config_from(given)
    assert config_from({"seed": 2**64 - 1}).seed == 2**64 - 1


def test_a_seed_of_many_bits_in_a_file_is_a_sentence(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"benchmark: c-digits\nseed: 0x{'f' * 3000}\n")
    with pytest.raises(InputError, match="seed is a number of 12000 bits"):
        config_from(path)


@pytest.mark.parametrize("name", ["unlabelled", "ridge", "exponent"])
def test_a_run_and_the_exact_learner_take_the_same_values(name):
    def takes(kind, value):
        try:
            kind(**{name: value})
        except InputError:
            return False
        return True

    for value in (-0.1, 0.0, 0.5, 1.0, 1.5, 2.0, 2.1, 1e9, float("nan"), "auto"):
        assert takes(ExactConfig, value) == takes(Options, value), value
