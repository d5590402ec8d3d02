"""The engine under the determinism suite, with a backend whose values are hashes: real schedules, cheap values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hashing_backend import HashingBackend
from vosti.impl.determinism.protocol import Settings, Vocabulary
from vosti.impl.determinism.vosti_engine import Shows, VostiSubject, shows_nothing

VOCABULARY = Vocabulary(size=61, bos=0, special=frozenset({0, 1}))


def hashing_subject(
    make: Callable[..., HashingBackend] = HashingBackend,
    *,
    window: int | None = None,
    variants: Mapping[str, Sequence[str]] | None = None,
    shows: Shows = shows_nothing,
    vocabulary: Vocabulary = VOCABULARY,
) -> VostiSubject:
    """A subject of a hashing backend, or of a faulty one that `make` makes from the same arguments."""

    def opened(settings: Settings) -> HashingBackend:
        token = settings.non_finite_token
        sick = frozenset() if token is None else frozenset({token})
        return make(vocab_size=vocabulary.size, max_positions=4096, sick_tokens=sick)

    return VostiSubject(opened, vocabulary, window=window, variants=variants, shows=shows)
