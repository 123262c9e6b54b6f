"""Sentence embeddings: a BERT in the layout of sentence-transformers, run with torch and ``tokenizers`` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mlcl.encoders.base import ENCODERS, check_texts
from mlcl.encoders.sources import Pretrained, read_json, read_source, read_tensors, read_tokenizer
from mlcl.errors import InputError, check_choice, check_int

if TYPE_CHECKING:
    import torch

WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
POOLING, LIMITS, MODULES = "1_Pooling/config.json", "sentence_bert_config.json", "modules.json"
BATCH = 32
NOTHING = 1e-12
"""Smaller numbers are 0. Two dimensions of MiniLM are always about 1e-33, and no sums have digits for that."""
LONG = 64
"""A token is taken to have at most so many characters: of a long text only the beginning goes to the tokenizer."""


@ENCODERS.register(
    "sentence", summary="A BERT of sentence-transformers, such as MiniLM: a folder or installed package."
)
@dataclass(frozen=True, eq=False)
class Sentence(Pretrained):
    """A sentence encoder; `Sentence.fit` reads it. Weights are converted on first use, on the CPU."""

    @classmethod
    def fit(cls, texts: Sequence[str] = (), *, source: str = "minilm") -> Self:  # noqa: ARG003
        """Return the network in a folder or package; texts are not looked at.

        Args:
            texts: none are needed.
            source: ``minilm``, or a folder in the layout of sentence-transformers, with ``model.safetensors``.
        """
        return cls(read_source(source, (CONFIG, TOKENIZER, WEIGHTS), (POOLING, LIMITS, MODULES))).ready()

    def ready(self) -> Self:
        """Return this encoder, after a look at its files."""
        _ = self._settings
        return self

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """Return the sizes of the network, after a look at everything that would make it another one."""
        config, where = read_json(self.source, CONFIG), f"{CONFIG} of {self.source.name}"
        for name, known in (("model_type", ("bert",)), ("hidden_act", ("gelu",))):
            check_choice(f"{name} in {where}", config.get(name), known)
        check_choice(
            f"position_embedding_type in {where}",
            config.get("position_embedding_type", "absolute"),
            ("absolute",),
        )
        sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
        found = {name: check_int(f"{name} in {where}", config.get(name), 1) for name in sizes}
        if found["hidden_size"] % found["num_attention_heads"]:
            raise InputError(f"{where} has a hidden_size that num_attention_heads does not divide")
        pooling = read_json(self.source, POOLING) if POOLING in self.source.files else {}
        modes = [
            name for name, value in pooling.items() if name.startswith("pooling_mode_") and value is True
        ]
        mode = modes[0] if len(modes) == 1 else ("pooling_mode_mean_tokens" if not modes else "several")
        check_choice(
            f"pooling of {self.source.name}", mode, ("pooling_mode_mean_tokens", "pooling_mode_cls_token")
        )
        limits = read_json(self.source, LIMITS) if LIMITS in self.source.files else {}
        most = check_int(f"max_seq_length of {self.source.name}", limits.get("max_seq_length") or 512, 3)
        modules = read_json(self.source, MODULES) if MODULES in self.source.files else []
        kinds = [str(one.get("type", "")).rpartition(".")[2] for one in modules]
        unknown = sorted({*kinds} - {"Transformer", "Pooling", "Normalize"})
        if unknown:
            raise InputError(
                f"{MODULES} of {self.source.name} has a {unknown[0]!r}; expected Transformer, Pooling, Normalize"
            )
        return found | {
            "epsilon": float(config.get("layer_norm_eps", 1e-12)),
            "first": mode == "pooling_mode_cls_token",
            "tokens": min(most, found["max_position_embeddings"]),
            "unit": "Normalize" in kinds,
        }

    @cached_property
    def _tokenizer(self) -> Any:
        found = read_tokenizer(self.source, TOKENIZER)
        found.enable_truncation(self._settings["tokens"])
        return found

    @cached_property
    def _weights(self) -> dict[str, torch.Tensor]:
        import torch

        found = read_tensors(self.source, WEIGHTS)
        plain = {name.removeprefix("bert."): torch.from_numpy(np.array(one)) for name, one in found.items()}
        return {name: one.float() if one.is_floating_point() else one for name, one in plain.items()}

    @property
    def width(self) -> int:
        """Return how many numbers a row has."""
        return int(self._settings["hidden_size"])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a row for each text; texts of similar length are computed together."""
        cut = [text[: LONG * self._settings["tokens"]] for text in check_texts(texts)]
        found = np.zeros((len(cut), self.width), np.float32)
        ids = [one.ids for one in self._tokenizer.encode_batch(cut)]
        order = sorted((k for k, text in enumerate(cut) if text.strip()), key=lambda k: -len(ids[k]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            found[rows] = self._embedded([ids[k] for k in rows])
        if not np.isfinite(found).all():
            raise InputError(f"the encoder {self.source.name} gives numbers that are not finite")
        found[np.abs(found) < NOTHING] = 0.0
        return found

    def _embedded(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        import torch
        import torch.nn.functional as F

        longest = max(map(len, ids))
        padded = torch.tensor([[*one, *[0] * (longest - len(one))] for one in ids])
        mask = torch.arange(longest) < torch.tensor([[len(one)] for one in ids])
        try:
            with torch.inference_mode():
                states = self._transformed(padded, mask)
                summed = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                rows = states[:, 0] if self._settings["first"] else summed
                return np.asarray((F.normalize(rows) if self._settings["unit"] else rows).numpy())
        except (KeyError, IndexError, RuntimeError) as error:
            raise InputError(
                f"{WEIGHTS} of {self.source.name} does not fit its {CONFIG}: {str(error).splitlines()[0][:200]}"
            ) from None

    def _transformed(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the last hidden states, ``[n, t, d]``."""
        import torch.nn.functional as F

        held, sizes = self._weights, self._settings
        heads, width = sizes["num_attention_heads"], sizes["hidden_size"]

        def linear(name: str, inputs: torch.Tensor) -> torch.Tensor:
            return F.linear(inputs, held[f"{name}.weight"], held[f"{name}.bias"])

        def normal(name: str, inputs: torch.Tensor) -> torch.Tensor:
            return F.layer_norm(
                inputs, (width,), held[f"{name}.weight"], held[f"{name}.bias"], sizes["epsilon"]
            )

        def embedded(name: str) -> torch.Tensor:
            return held[f"embeddings.{name}_embeddings.weight"]

        places = embedded("position")[: ids.shape[1]]
        states = normal("embeddings.LayerNorm", embedded("word")[ids] + places + embedded("token_type")[0])
        for number in range(sizes["num_hidden_layers"]):
            at = f"encoder.layer.{number}"
            query, key, value = (
                linear(f"{at}.attention.self.{part}", states)
                .view(*ids.shape, heads, width // heads)
                .transpose(1, 2)
                for part in ("query", "key", "value")
            )
            seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
            mixed = linear(f"{at}.attention.output.dense", seen.transpose(1, 2).flatten(2))
            states = normal(f"{at}.attention.output.LayerNorm", states + mixed)
            inner = linear(f"{at}.output.dense", F.gelu(linear(f"{at}.intermediate.dense", states)))
            states = normal(f"{at}.output.LayerNorm", states + inner)
        return states
