"""The engines that the suite can measure, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from vosti.impl.bundled import find_checkpoint
from vosti.impl.determinism.prompts import read_vocabulary
from vosti.impl.determinism.protocol import Subject
from vosti.impl.options import Certification

ENGINES = ("vosti", "transformers", "vllm", "vllm-eager", "vllm-batch-invariant", "vllm-batch-invariant-eager")
"""The names of the engines."""


@dataclass(frozen=True)
class Choice:
    """An engine with a model, as the command line names it."""

    engine: str
    model: str
    backend: str
    dummy_weights: int | None = None
    unsafe_unprobed: bool = False
    """Whether this engine runs on a GPU on which its kernels were never checked."""

    certified_only: bool = False
    """Whether this engine refuses kernels that have no certificate, instead of proving them."""

    unsafe_unverified: bool = False
    """Whether it runs kernels without certificates."""

    def words(self) -> tuple[str, ...]:
        """The choice as arguments of a process."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return tuple(f"{name}={value}" for name, value in values.items() if value is not None)

    @classmethod
    def from_words(cls, words: Sequence[str]) -> Choice:
        """The choice that such arguments name."""
        named = dict(word.split("=", 1) for word in words)
        seed = named.get("dummy_weights")
        return cls(
            named["engine"],
            named["model"],
            named["backend"],
            None if seed is None else int(seed),
            *(named[name] == "True" for name in ("unsafe_unprobed", "certified_only", "unsafe_unverified")),
        )


def open_subject(choice: Choice) -> Subject:
    """Load an engine with its model.

    Raises:
        MissingEngineError: if the engine is not installed.
        EngineError: for a model that cannot be served.
    """
    if choice.engine == "vosti":
        return _vosti(choice)
    if choice.engine == "transformers":
        from vosti.impl.determinism.transformers_engine import TransformersSubject

        return TransformersSubject(choice)
    from vosti.impl.determinism.vllm_engine import VllmSubject

    return VllmSubject(choice)


def _vosti(choice: Choice) -> Subject:
    import torch

    from vosti.impl.determinism.backends import Backends, Loaded, open_backends
    from vosti.impl.determinism.vosti_engine import VostiSubject

    torch.set_num_threads(1)
    path = find_checkpoint(choice.model)

    def load() -> Backends:
        return open_backends(
            path,
            choice.backend,
            dummy_weights=choice.dummy_weights,
            unsafe_unprobed=choice.unsafe_unprobed,
            certification=Certification(choice.certified_only, choice.unsafe_unverified),
        )

    loaded = Loaded(load)
    config = loaded.backends.model.config
    windows = [attention.window for attention in config.attention.values() if attention.window is not None]
    return VostiSubject(
        loaded.open,
        read_vocabulary(path, config.vocab_size),
        window=min(windows, default=None),
        variants=loaded.backends.variants,
        shows=loaded.backends.shows,
        fresh=choice.words(),
        release=loaded.release,
    )
