"""Where a tagger is saved: no folder that does not exist, and nothing that is not a tagger, is written to."""

from __future__ import annotations

import pytest

from mlcl.errors import InputError
from mlcl.sklearn import ExactTagger
from taggers import problem


def test_saving_into_a_folder_that_does_not_exist_names_it(tmp_path):
    with pytest.raises(
        InputError, match=f"cannot be written: the folder {tmp_path / 'absent'} does not exist"
    ):
        ExactTagger().fit(*problem()).save(tmp_path / "absent" / "tagger.safetensors")


def test_a_folder_that_is_no_tagger_is_neither_read_nor_replaced(tmp_path):
    x, y = problem()
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"holds no run"):
        ExactTagger.load(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"exists; choose|no run of mlcl"):
            ExactTagger().fit(x, y).save(tmp_path, overwrite=overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
