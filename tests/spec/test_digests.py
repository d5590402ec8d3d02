"""Digests: what the two algorithms are, and that the word sum tells apart what accidents make of a value."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vosti.spec.digests import (
    ALGORITHMS,
    LENGTH_POSITION,
    SHA256,
    STREAMS,
    WORD_SUM,
    Stream,
    mix,
    share,
    stream_sum,
    word_sum,
)

MASK = 2**64 - 1


def unmixed(y: int, stream: Stream) -> int:
    """The inverse of `mix`."""

    def unshifted(y: int, shift: int) -> int:
        x = y
        for _ in range(64 // shift + 1):
            x = y ^ x >> shift
        return x

    y = unshifted(y, stream.last_shift)
    y = unshifted(y * pow(stream.second_factor, -1, 2**64) & MASK, stream.second_shift)
    y = unshifted(y * pow(stream.first_factor, -1, 2**64) & MASK, stream.first_shift)
    return y ^ stream.key


def test_algorithms_have_the_names_that_traces_use() -> None:
    """Each is found by its name, and gives 32 hexadecimal digits."""
    assert {"sha256-128": SHA256, "wordsum-128": WORD_SUM} == ALGORITHMS
    assert all(32 == len(algorithm.digest(b"abc")) for algorithm in ALGORITHMS.values())
    assert hashlib.sha256(b"abc").hexdigest()[:32] == SHA256.digest(b"abc")


def test_word_sums_that_were_computed_by_hand() -> None:
    """The sum over words and length, written out; and values that must never change, since traces hold them."""
    data = struct.pack("<II", 7, 2**32 - 1) + b"\x05"
    terms = [7, 1 << 32 | 2**32 - 1, 2 << 32 | 5, LENGTH_POSITION << 32 | 9]
    expected = [sum(mix(term, stream) for term in terms) & MASK for stream in STREAMS]

    assert "{:016x}{:016x}".format(*expected) == word_sum(data)
    assert "a77332cce9a46f9660b4343c6dae1917" == word_sum(b"")
    assert "31246d27639407aedf516ed2e7c13330" == word_sum(bytes(4))


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5), max_size=4), st.sampled_from(STREAMS))
def test_any_parts_give_one_sum(parts: list[list[int]], stream: Stream) -> None:
    """The shares of a value's parts, in any order, are those of the whole; a part counted twice is found."""
    words = [word for part in parts for word in part]
    firsts = [sum(map(len, parts[:p])) for p in range(len(parts))]
    shares = [share(part, first, stream) for part, first in zip(parts, firsts, strict=True)]
    whole = stream_sum([share(words, 0, stream)], 4 * len(words), stream)

    assert whole == stream_sum(shares[::-1], 4 * len(words), stream)
    assert shares == [0] * len(shares) or whole != stream_sum([*shares, max(shares)], 4 * len(words), stream)


def test_the_second_mix_is_that_of_splitmix64() -> None:
    """With its key cancelled, it yields the generator's published first number for the seed 1234567."""
    seed = 1234567 + 0x9E3779B97F4A7C15

    assert 6457827717110365317 == mix(seed ^ STREAMS[1].key, STREAMS[1])


@given(st.integers(0, MASK), st.sampled_from(STREAMS))
def test_mixing_loses_nothing(x: int, stream: Stream) -> None:
    """Each mix has an inverse, so that no change of one word alone goes unseen."""
    assert x == unmixed(mix(x, stream), stream)


@given(st.binary(min_size=4, max_size=40), st.data())
def test_accidents_change_the_word_sum(value: bytes, data: st.DataObject) -> None:
    """A flipped bit, a zero byte more, a byte less, words that changed places: another digest in both streams."""
    bit = data.draw(st.integers(0, 8 * len(value) - 1))
    flipped = (int.from_bytes(value, "little") ^ 1 << bit).to_bytes(len(value), "little")
    words = [value[i : i + 4] for i in range(0, len(value) // 4 * 4, 4)]
    swapped = b"".join(words[1:] + words[:1]) + value[len(words) * 4 :]
    for other in (flipped, value + b"\0", value[:-1], swapped):
        same = [a == b for a, b in zip(_halves(value), _halves(other), strict=True)]
        assert [value == other] * 2 == same


def _halves(value: bytes) -> tuple[str, str]:
    digest = word_sum(value)
    return digest[:16], digest[16:]


def test_a_value_that_is_too_long_is_refused() -> None:
    """The length has to fit a word."""

    class Long(bytes):
        def __len__(self) -> int:
            return 2**32

    with pytest.raises(ValueError, match="fewer than 2³²"):
        word_sum(Long())
