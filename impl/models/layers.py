"""Building a decoder's launch plan: what the families share, driven by what they differ in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from vosti.impl.models.config import LayerType, ModelConfig
from vosti.impl.models.plan import (
    LOGITS,
    POSITIONS,
    TOKEN_IDS,
    Buffer,
    KVShape,
    Launch,
    Operation,
    Parameter,
    Plan,
    Rows,
    Source,
)


@dataclass(frozen=True)
class Style:
    """What a family's layers do differently from another's, and how its checkpoints name the norms."""

    norm: Operation
    residual_norm: Operation
    norm_centre: float
    """The weight with which a norm leaves a row's scale alone."""

    activation: Operation
    mlp_norm: str
    """Norm of what the feed-forward layer reads."""

    attention_result_norm: str | None = None
    """Norm of attention's result before it joins the residual stream."""

    mlp_result_norm: str | None = None
    """Norm of the feed-forward layer's result before it joins the residual stream."""

    query_key_norm: bool = False
    """Whether each head of queries and keys is normalised."""

    value_norm: bool = False
    """Whether each head of values is normalised, without weights."""

    layer_scale: str | None = None
    """A number by which the residual stream is multiplied at the end of a layer; with plain norms only."""


def table_names(kind: LayerType) -> tuple[str, str]:
    """The names of a layer type's tables of cosines and sines."""
    return f"cosines.{kind}", f"sines.{kind}"


def build_plan(config: ModelConfig, style: Style) -> Plan:
    """The launch plan of a decoder."""
    plan = _Builder(config, style)
    kinds = sorted(set(config.layer_types))
    tied = (("head", "embedding"),) if config.tied_head else ()
    return Plan(
        buffers=tuple(plan.buffers()),
        parameters=tuple(plan.parameters()),
        launches=tuple(plan.launches()),
        kv_shapes=tuple(
            KVShape(attention.kv_heads, attention.head_dim)
            for attention in (config.attention[kind] for kind in config.layer_types)
        ),
        tables=tuple(name for kind in kinds for name in table_names(kind)),
        tied=tied,
    )


class _Builder:
    def __init__(self, config: ModelConfig, style: Style) -> None:
        self.config = config
        self.style = style
        self.kinds: list[LayerType] = sorted(set(config.layer_types))

    # ------------------------------------------------------------ buffers

    def buffers(self) -> Iterator[Buffer]:
        config = self.config
        yield Buffer("residual", (config.hidden_size,))
        yield Buffer("normed", (config.hidden_size,))
        yield Buffer("update", (config.hidden_size,))
        for kind in self.kinds:
            attention = config.attention[kind]
            kv_heads, head_dim = attention.kv_heads, attention.head_dim
            yield Buffer(f"cosine.{kind}", (1, head_dim // 2))
            yield Buffer(f"sine.{kind}", (1, head_dim // 2))
            yield Buffer(f"queries_keys.{kind}", (config.heads + kv_heads, head_dim))
            yield Buffer(f"queries.{kind}", (config.heads, head_dim))
            yield Buffer(f"keys.{kind}", (kv_heads, head_dim))
            yield Buffer(f"values.{kind}", (kv_heads, head_dim))
            yield Buffer(f"context.{kind}", (config.heads * head_dim,))
        yield Buffer("gate_and_up", (2 * config.intermediate_size,))
        yield Buffer("activated", (config.intermediate_size,))
        yield Buffer("last_residual", (config.hidden_size,))
        yield Buffer("last_normed", (config.hidden_size,))
        yield Buffer(LOGITS, (config.vocab_size,))

    # ------------------------------------------------------------ parameters

    def parameters(self) -> Iterator[Parameter]:
        config, style = self.config, self.style
        hidden, vocabulary = (config.hidden_size,), (config.vocab_size, config.hidden_size)
        yield Parameter("embedding", (Source("model.embed_tokens.weight", vocabulary),))
        for layer in range(len(config.layer_types)):
            yield self._norm(layer, "attention_norm", "input_layernorm")
            attention = config.attention[config.layer_types[layer]]
            query, key = config.heads * attention.head_dim, attention.kv_heads * attention.head_dim
            values = "self_attn.k_proj" if attention.shared_values else "self_attn.v_proj"
            yield self._linear(
                layer,
                "qkv",
                config.hidden_size,
                [("self_attn.q_proj", query), ("self_attn.k_proj", key), (values, key)],
            )
            if style.query_key_norm:
                yield Parameter(
                    f"layers.{layer}.query_key_norm",
                    tuple(
                        Source(
                            f"model.layers.{layer}.self_attn.{name}.weight", (attention.head_dim,), style.norm_centre
                        )
                        for name in ("q_norm", "k_norm")
                    ),
                    repeats=(config.heads, attention.kv_heads),
                )
            yield self._linear(layer, "output", query, [("self_attn.o_proj", config.hidden_size)])
            if style.attention_result_norm:
                yield self._norm(layer, "attention_result_norm", style.attention_result_norm)
            yield self._norm(layer, "mlp_norm", style.mlp_norm)
            wide = config.intermediate_size
            yield self._linear(
                layer, "gate_and_up", config.hidden_size, [("mlp.gate_proj", wide), ("mlp.up_proj", wide)]
            )
            yield self._linear(layer, "down", wide, [("mlp.down_proj", config.hidden_size)])
            if style.mlp_result_norm:
                yield self._norm(layer, "mlp_result_norm", style.mlp_result_norm)
            if style.layer_scale:
                stored = Source(f"model.layers.{layer}.{style.layer_scale}", (1,), 1.0)
                yield Parameter(f"layers.{layer}.scale", (stored,))
        yield Parameter("final_norm", (Source("model.norm.weight", hidden, style.norm_centre),))
        if not config.tied_head:
            yield Parameter("head", (Source("lm_head.weight", vocabulary),), transposed=True)

    def _norm(self, layer: int, name: str, stored: str) -> Parameter:
        weight = f"model.layers.{layer}.{stored}.weight"
        source = Source(weight, (self.config.hidden_size,), self.style.norm_centre)
        return Parameter(f"layers.{layer}.{name}", (source,))

    def _linear(self, layer: int, name: str, inputs: int, parts: list[tuple[str, int]]) -> Parameter:
        sources = tuple(Source(f"model.layers.{layer}.{stored}.weight", (outputs, inputs)) for stored, outputs in parts)
        return Parameter(f"layers.{layer}.{name}", sources, transposed=True)

    # ------------------------------------------------------------ launches

    def launches(self) -> Iterator[Launch]:
        config, style = self.config, self.style
        if config.embedding_scale is None:
            yield Launch(Operation.EMBEDDING, (TOKEN_IDS,), ("residual",), ("embedding",))
        else:
            scale = (config.embedding_scale,)
            yield Launch(Operation.SCALED_EMBEDDING, (TOKEN_IDS,), ("residual",), ("embedding",), scale)
        for kind in self.kinds:
            yield Launch(Operation.ANGLES, (POSITIONS,), (f"cosine.{kind}", f"sine.{kind}"), table_names(kind))
        first = ("layers.0.attention_norm",)
        yield Launch(style.norm, ("residual",), ("normed",), first, (config.norm_epsilon,))
        last = len(config.layer_types) - 1
        for layer in range(last + 1):
            yield from self._attention(layer)
            yield from self._result(layer, "attention_result_norm", style.attention_result_norm)
            yield self._residual_norm(style.residual_norm, (f"layers.{layer}.mlp_norm",))
            yield from self._mlp(layer)
            yield from self._result(layer, "mlp_result_norm", style.mlp_result_norm)
            weight = f"layers.{layer + 1}.attention_norm" if layer < last else "final_norm"
            if style.layer_scale:
                scaled = (weight, f"layers.{layer}.scale")
                end = self._residual_norm(Operation.SCALED_RESIDUAL_RMS_NORM, scaled)
            else:
                end = self._residual_norm(style.residual_norm, (weight,))
            last_rows = replace(end, outputs=("last_residual", "last_normed"), rows=Rows.SELECTED)
            yield end if layer < last else last_rows
        yield Launch(Operation.LINEAR, ("last_normed",), (LOGITS,), ("head",), rows=Rows.LOGITS)
        if config.final_softcap is not None:
            yield Launch(Operation.SOFTCAP, (LOGITS,), (LOGITS,), (), (config.final_softcap,), Rows.LOGITS)

    def _residual_norm(self, operation: Operation, parameters: tuple[str, ...]) -> Launch:
        epsilon = (self.config.norm_epsilon,)
        return Launch(operation, ("residual", "update"), ("residual", "normed"), parameters, epsilon)

    def _result(self, layer: int, name: str, stored: str | None) -> Iterator[Launch]:
        if stored:
            weight = (f"layers.{layer}.{name}",)
            yield Launch(self.style.norm, ("update",), ("update",), weight, (self.config.norm_epsilon,))

    def _attention(self, layer: int) -> Iterator[Launch]:
        config = self.config
        kind = config.layer_types[layer]
        both = (f"queries_keys.{kind}",)
        queries, keys, values, context = (f"{name}.{kind}" for name in ("queries", "keys", "values", "context"))
        yield Launch(Operation.LINEAR, ("normed",), (*both, values), (f"layers.{layer}.qkv",))
        if self.style.query_key_norm:
            weight = (f"layers.{layer}.query_key_norm",)
            yield Launch(self.style.norm, both, both, weight, (config.norm_epsilon,))
        if self.style.value_norm:
            yield Launch(Operation.UNWEIGHTED_RMS_NORM, (values,), (values,), (), (config.norm_epsilon,))
        yield Launch(Operation.ROTATE, (*both, f"cosine.{kind}", f"sine.{kind}"), (queries, keys))
        yield Launch(Operation.STORE, (keys, values), (), layer=layer)
        yield Launch(
            Operation.ATTENTION,
            (queries,),
            (context,),
            constants=(config.attention_scale,),
            layer=layer,
            window=config.attention[kind].window,
        )
        yield Launch(Operation.LINEAR, (context,), ("update",), (f"layers.{layer}.output",))

    def _mlp(self, layer: int) -> Iterator[Launch]:
        yield Launch(Operation.LINEAR, ("normed",), ("gate_and_up",), (f"layers.{layer}.gate_and_up",))
        yield Launch(self.style.activation, ("gate_and_up",), ("activated",))
        yield Launch(Operation.LINEAR, ("activated",), ("update",), (f"layers.{layer}.down",))


def parameter_shape(parameter: Parameter) -> tuple[int, ...]:
    """The shape of a parameter as the plan uses it."""
    first = parameter.sources[0].shape
    if parameter.repeats:
        return (sum(parameter.repeats), *first)
    rows = sum(source.shape[0] for source in parameter.sources)
    return (prod(first[1:]), rows) if parameter.transposed else (rows, *first[1:])
