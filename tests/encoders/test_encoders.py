"""What all encoders share: names, joining, saving, and what is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load, save

from mlcl.arrays import digest
from mlcl.encoders import Join, Words, chosen_encoder, from_bytes, join, to_bytes
from mlcl.encoders.static import Static
from mlcl.errors import InputError

TEXTS = ["red green", "green blue", "blue blue red", ""]


@pytest.fixture
def table(tmp_path):
    """A folder with a table of five tokens."""
    tokenizers = pytest.importorskip("tokenizers", reason="pip install 'mlcl[text]'")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"?": 0, "red": 1, "green": 2, "blue": 3}, unk_token="?")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float16)
    (tmp_path / "model.safetensors").write_bytes(save({"embedding.weight": values}))
    return tmp_path, values.astype(np.float32)


def test_a_static_table_gives_the_mean_of_its_rows(table):
    folder, values = table
    found = chosen_encoder(str(folder), []).encode([*TEXTS, "red pink"])
    rows = [values[[1, 2]], values[[2, 3]], values[[3, 3, 1]], np.zeros((1, 3)), values[[1, 0]]]
    means = np.stack([row.mean(0) for row in rows])
    expected = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    assert np.allclose(found, expected, atol=1e-6)
    again = from_bytes(to_bytes(Static.fit(source=str(folder))))
    assert np.allclose(again.encode(TEXTS), expected[:4], atol=1e-6)


def test_joined_rows_stand_side_by_side_with_their_weights(table):
    words, other = Words.fit(TEXTS, words=3, hashed=0), Static.fit(source=str(table[0]))
    both = join(words, other, weights=[1, 0.5])
    expected = np.hstack([words.encode(TEXTS).toarray(), 0.5 * other.encode(TEXTS)])
    assert both.width == 6
    assert np.allclose(both.encode(TEXTS).toarray(), expected)
    assert np.allclose(from_bytes(to_bytes(both)).encode(TEXTS).toarray(), expected)
    assert np.allclose(join(other, other).encode(TEXTS), np.hstack([other.encode(TEXTS)] * 2))
    assert join(both, words).weights == (1, 0.5, 1)


def test_an_encoder_is_described_by_a_text(table):
    found = chosen_encoder(f"words,words=2,hashed=3,pairs + {table[0]}", TEXTS)
    assert isinstance(found, Join)
    assert found.width == 8
    assert isinstance(found.parts[0], Words)
    assert found.parts[0].pairs


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("word", "unknown encoder 'word'.*Did you mean 'words'"),
        ("words,pair=true", "takes no option 'pair'.*Did you mean 'pairs'"),
        ("words,hashed=many", "expected true, false or a number"),
        ("join", "written with a plus"),
        ("words+", "unknown encoder ''"),
    ],
)
def test_what_describes_no_encoder_is_refused(spec, reason):
    with pytest.raises(InputError, match=reason):
        chosen_encoder(spec, TEXTS)


def changed(content: bytes, **header) -> bytes:
    """Return a file with another header, and the checksum that whoever made it would write."""
    size = int.from_bytes(content[:8], "little")
    record = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["mlcl"]) | header
    del record["sha256"]
    arrays = load(content)
    return save(arrays, {"mlcl": json.dumps(record | {"sha256": digest(record, arrays)})})


def test_damaged_and_hostile_files_are_refused():
    good = to_bytes(Words.fit(TEXTS, words=3, hashed=2))
    bad = [b"", b"x" * 100, good[:-3], good[:200], save({"a": np.zeros(1)})]
    bad += [
        changed(good, **one) for one in ({"kind": "pickle"}, {"hashed": 3}, {"documents": 1}, {"format": 9})
    ]
    bad += [changed(good, hashed=-2), changed(good, documents=None), changed(good, characters="x")]
    for content in bad:
        with pytest.raises(InputError):
            from_bytes(content, where="x")


def test_a_reference_out_of_the_folder_is_refused(table, monkeypatch):
    monkeypatch.setattr("mlcl.encoders.sources.COPIED", 0)
    good = to_bytes(Static.fit(source=str(table[0])))
    with pytest.raises(InputError, match="list of files"):
        from_bytes(changed(good, files=["../../etc/passwd"]))
    with pytest.raises(InputError, match="is not there"):
        from_bytes(changed(good, source="/nowhere"))


def test_words_need_no_torch():
    code = "import sys, mlcl.encoders as e; e.Words.fit(['a red fox']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
