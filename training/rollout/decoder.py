"""A fast forward pass for sampling, over the weights of a Hugging Face model.

It covers the pre-norm family with rotary positions, grouped-query attention and a SwiGLU
feed-forward: Llama (SmolLM2), Qwen2 and Qwen3.  Query, key and value projections are one matrix,
so are gate and up; keys and values live in a preallocated cache; a row's token stands in the
cache's column of its own position, so that rows of any length share a batch without padding.
Its logits equal those of transformers up to rounding (tested).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from training.rollout.kv_cache import Cache

FAMILIES = ("llama", "qwen2", "qwen3")


class UnsupportedModelError(ValueError):
    """The model is outside the family; the message says in what and what to use instead."""


@dataclass(slots=True)
class _Layer:
    """Fused weights of one layer; matrices are transposed for `x @ w` and biases may be None."""

    norm_in: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    head_norm: Tensor | None  # [heads + kv_heads, head_dim]
    out: Tensor
    out_bias: Tensor | None
    norm_mlp: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


class Decoder:
    """`prefill` fills a cache from whole sequences, `step` adds one token a row.

    Raises `UnsupportedModelError` for a model outside the family.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config
        _check(config)
        self.layers = config.num_hidden_layers
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_dim = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self.context: int = config.max_position_embeddings
        self.eps = config.rms_norm_eps
        self._theta = float(config.rope_parameters["rope_theta"])
        self.load(model)

    @torch.no_grad()
    def load(self, model: PreTrainedModel) -> None:
        """Take over the model's weights as they are now: fused copies, embeddings shared."""
        core: Any = model.model
        self._layers = [self._fuse(layer) for layer in core.layers]
        self._embed = core.embed_tokens.weight.detach()
        self._norm = core.norm.weight.detach()
        head: Any = model.get_output_embeddings()
        self._head = head.weight.detach().t()
        self._head_bias = None if head.bias is None else head.bias.detach()
        self.device, self.dtype = self._embed.device, self._embed.dtype
        self.vocabulary = self._embed.shape[0]
        self._cos, self._sin = self._rope_tables(64)

    def new_cache(self, rows: int, columns: int) -> Cache:
        """An empty cache for that many rows and positions."""
        return Cache(
            layers=self.layers,
            rows=rows,
            heads=self.kv_heads,
            columns=columns,
            head_dim=self.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    @torch.no_grad()
    def prefill(self, sequences: Sequence[Sequence[int]], columns: int) -> tuple[Tensor, Cache]:
        """Logits `[rows, vocabulary]` (float32) after each sequence, and the cache they leave."""
        lengths = torch.tensor([len(s) for s in sequences], device=self.device)
        rows, longest = len(sequences), int(lengths.max())
        ids = torch.zeros(rows, longest, dtype=torch.long)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = torch.tensor(sequence)
        cache = self.new_cache(rows, columns)
        self._ensure_positions(longest)
        cos, sin = self._cos[:longest, None], self._sin[:longest, None]
        hidden = self._embed[ids.to(self.device)]
        for index, layer in enumerate(self._layers):
            query, key, value = (
                part.transpose(1, 2) for part in self._project(hidden, layer, cos, sin)
            )
            cache.keys[index][:, :longest] = key.flatten(0, 1)
            cache.values[index][:, :longest] = value.flatten(0, 1)
            mixed = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=1.0, enable_gqa=True
            )
            hidden = self._finish(hidden, mixed.transpose(1, 2).flatten(2), layer)
        cache.admit(lengths)
        last = hidden[torch.arange(rows, device=self.device), lengths - 1]
        return self._logits(last), cache

    @torch.no_grad()
    def step(self, tokens: Tensor, positions: Tensor, used: int, cache: Cache) -> Tensor:
        """Put one token a row at its position and return the next logits, `[rows, vocabulary]`.

        `tokens` and `positions` are `[rows]` on the decoder's device; every position is below
        `used`, the number of columns attended to.  Putting a row's last token again at its own
        position changes nothing: that is how a row waits.
        """
        rows, heads = tokens.shape[0], self.heads // self.kv_heads
        self._ensure_positions(used)
        cos = self._cos.index_select(0, positions)[:, None]
        sin = self._sin.index_select(0, positions)[:, None]
        cells = cache.cells(positions)
        bias = cache.seen(positions, used)
        hidden = self._embed.index_select(0, tokens)
        for layer, keys, values in zip(self._layers, cache.keys, cache.values, strict=True):
            query, key, value = self._project(hidden, layer, cos, sin)
            keys.view(-1, self.head_dim).index_copy_(0, cells, key.reshape(-1, self.head_dim))
            values.view(-1, self.head_dim).index_copy_(0, cells, value.reshape(-1, self.head_dim))
            grouped = query.reshape(rows * self.kv_heads, heads, self.head_dim)
            scores = torch.bmm(grouped, keys[:, :used].transpose(1, 2)).add_(bias)
            weights = scores.softmax(-1, dtype=torch.float32).to(self.dtype)
            mixed = torch.bmm(weights, values[:, :used]).view(rows, -1)
            hidden = self._finish(hidden, mixed, layer)
        return self._logits(hidden)

    def _project(
        self, hidden: Tensor, layer: _Layer, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (already scaled) and keys, and values: `[..., heads, head_dim]`."""
        normed = F.rms_norm(hidden, hidden.shape[-1:], layer.norm_in, self.eps)
        fused = _affine(normed, layer.qkv, layer.qkv_bias)
        heads = fused.unflatten(-1, (self.heads + 2 * self.kv_heads, self.head_dim))
        turned, value = heads.split((self.heads + self.kv_heads, self.kv_heads), -2)
        if layer.head_norm is not None:
            turned = F.rms_norm(turned, (self.head_dim,), None, self.eps) * layer.head_norm
        turned = torch.addcmul(turned * cos, turned.roll(self.head_dim // 2, -1), sin)
        query, key = turned.split((self.heads, self.kv_heads), -2)
        return query, key, value

    def _finish(self, hidden: Tensor, mixed: Tensor, layer: _Layer) -> Tensor:
        hidden = _add_affine(hidden, mixed, layer.out, layer.out_bias)
        normed = F.rms_norm(hidden, hidden.shape[-1:], layer.norm_mlp, self.eps)
        gate, up = _affine(normed, layer.gate_up, layer.gate_up_bias).chunk(2, -1)
        return _add_affine(hidden, F.silu(gate).mul_(up), layer.down, layer.down_bias)

    def _logits(self, hidden: Tensor) -> Tensor:
        normed = F.rms_norm(hidden, hidden.shape[-1:], self._norm, self.eps)
        return _affine(normed, self._head, self._head_bias).float()

    def _fuse(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        qkv = torch.cat([part.weight for part in parts])
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        scale = self.head_dim**-0.5
        head_norm = None
        if hasattr(attention, "q_norm"):
            head_norm = torch.cat(
                [
                    attention.q_norm.weight.expand(self.heads, -1) * scale,
                    attention.k_norm.weight.expand(self.kv_heads, -1),
                ]
            )
        else:  # the attention scale goes into the queries once, here, instead of at every step
            queries = self.heads * self.head_dim
            qkv[:queries] *= scale
            if bias is not None:
                bias[:queries] *= scale
        gate_up_bias = None
        if mlp.gate_proj.bias is not None:
            gate_up_bias = torch.cat([mlp.gate_proj.bias, mlp.up_proj.bias])
        return _Layer(
            norm_in=layer.input_layernorm.weight.detach(),
            qkv=qkv.t(),
            qkv_bias=bias,
            head_norm=head_norm,
            out=attention.o_proj.weight.detach().t(),
            out_bias=_detached(attention.o_proj.bias),
            norm_mlp=layer.post_attention_layernorm.weight.detach(),
            gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).t(),
            gate_up_bias=gate_up_bias,
            down=mlp.down_proj.weight.detach().t(),
            down_bias=_detached(mlp.down_proj.bias),
        )

    def _ensure_positions(self, positions: int) -> None:
        if positions > self._cos.shape[0]:
            self._cos, self._sin = self._rope_tables(2 * positions)

    def _rope_tables(self, positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines `[positions, head_dim]`: a rotation is x·cos + roll(x)·sin."""
        half = torch.arange(0, self.head_dim, 2, dtype=torch.int64).float() / self.head_dim
        angles = torch.outer(torch.arange(positions).float(), 1.0 / self._theta**half)
        cos, sin = angles.cos(), angles.sin()
        return (
            torch.cat([cos, cos], -1).to(self.device, self.dtype),
            torch.cat([-sin, sin], -1).to(self.device, self.dtype),
        )


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight if bias is None else x @ weight + bias


def _add_affine(to: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dim() == 2 and bias is None:
        return torch.addmm(to, x, weight)
    return to + _affine(x, weight, bias)


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _check(config: Any) -> None:
    """Refuse what this forward pass would compute wrongly."""
    remedy = f"the embedded engine samples {', '.join(FAMILIES)} models with plain rotary positions"
    if config.model_type not in FAMILIES:
        raise UnsupportedModelError(f"model type {config.model_type!r} is not supported: {remedy}")
    if config.hidden_act != "silu":
        raise UnsupportedModelError(f"activation {config.hidden_act!r} is not supported: {remedy}")
    rope = config.rope_parameters or {}
    kind = rope.get("rope_type", "default")
    if kind != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError(f"rope scaling {kind!r} is not supported: {remedy}")
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or []):
        raise UnsupportedModelError(f"sliding-window attention is not supported: {remedy}")
