"""What every source of data has: a description of each option, and `root` as its only argument."""

from __future__ import annotations

import inspect

import pytest

from mlcl.datasets import SOURCES
from mlcl.registry import read_options


def test_the_files_of_the_folder_are_discovered():
    shipped = {
        "arff",
        "arrays",
        "coco",
        "folder",
        "huggingface",
        "nus-wide",
        "parquet",
        "thumbs",
        "voc",
    }
    assert {name for name in SOURCES.names() if not SOURCES.owner(name)} >= shipped


@pytest.mark.parametrize("name", SOURCES.names())
def test_every_option_is_described(name):
    source = SOURCES.get(name)
    positional, *options = inspect.signature(source).parameters.values()
    assert positional.name == "root"
    assert all(option.kind is inspect.Parameter.KEYWORD_ONLY for option in options)
    for option in read_options(source):
        assert option.help, f"{name} --{option.name} has no text for --help"
        assert option.default is not inspect.Parameter.empty
    assert SOURCES.summary(name)
