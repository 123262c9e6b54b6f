"""Settings that follow from others."""

from __future__ import annotations

import pytest

from mlcl.config.resolve import config_from
from mlcl.config.schema import TrainConfig
from mlcl.errors import InputError


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
