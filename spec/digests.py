"""Digests: 128 bits that stand for a value's bits in a trace, as 32 hexadecimal digits.

There are two algorithms. SHA-256 is what a processor computes where the bytes are at hand. The word sum is what a GPU
computes where they lie: integer arithmetic alone, and a sum, so that any division of the work gives the same digest.

**The word sum.** The bytes, filled up with zeros, are 32-bit little-endian words w₀, …, wₙ₋₁; their number of bytes
stands as one more word at position 2³² − 1. Each of two streams is

    Σᵢ mix(2³² i + wᵢ)  mod 2⁶⁴,        mix(x) = (x ⊕ key), then three times x ⊕ (x ≫ shift), with a product by an odd
                                        number between each two of them

and the digest is the first stream's 16 digits, then the second's. Mix is a bijection of 64-bit integers: bits that
differ in one word alone differ in both streams, whatever the bits. Of other differences (several words, words that
changed places) each stream misses one in 2⁶⁴ as far as its terms are random, which the mixes of MurmurHash3 and of
SplitMix64 are known to imitate well; the two share no constant. That finds accidents. It is no defence against somebody
who looks for two values of one digest: sums are easy to solve.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


def sha256(data: bytes) -> str:
    """The first 128 bits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


class Stream(NamedTuple):
    """The constants of one stream of the word sum."""

    key: int
    first_shift: int
    first_factor: int
    second_shift: int
    second_factor: int
    last_shift: int


STREAMS = (
    Stream(0x243F6A8885A308D3, 33, 0xFF51AFD7ED558CCD, 33, 0xC4CEB9FE1A85EC53, 33),
    Stream(0x9E3779B97F4A7C15, 30, 0xBF58476D1CE4E5B9, 27, 0x94D049BB133111EB, 31),
)
"""Keys: binary digits of π and of the golden ratio. The first mix is MurmurHash3's, the second SplitMix64's."""

LENGTH_POSITION = 2**32 - 1
"""Where the number of bytes stands."""

_MASK = 2**64 - 1


def mix(x: int, stream: Stream) -> int:
    """A bijection of the integers from 0 to 2⁶⁴ − 1."""
    x ^= stream.key
    x ^= x >> stream.first_shift
    x = x * stream.first_factor & _MASK
    x ^= x >> stream.second_shift
    x = x * stream.second_factor & _MASK
    return x ^ x >> stream.last_shift


def term(position: int, word: int) -> int:
    """What stands for a word at a position, both below 2³²."""
    return position << 32 | word


def share(words: Sequence[int], first: int, stream: Stream) -> int:
    """What adjacent words add to a stream; the first of them is the value's word at position `first`."""
    return sum(mix(term(first + j, words[j]), stream) for j in range(len(words))) & _MASK


def stream_sum(shares: Sequence[int], length: int, stream: Stream) -> int:
    """A stream of a value of `length` bytes, from the shares of its parts, whatever parts these are."""
    return sum(shares[p] for p in range(len(shares))) + share([length], LENGTH_POSITION, stream) & _MASK


def word_sum(data: bytes) -> str:
    """The word sum. Raises ValueError for 2³² bytes or more."""
    if len(data) >= 2**32:
        raise ValueError(f"A value of {len(data)} bytes has no digest: there must be fewer than 2³².")
    words = struct.unpack(f"<{-(-len(data) // 4)}I", data + bytes(-len(data) % 4))
    return "".join(f"{stream_sum([share(words, 0, stream)], len(data), stream):016x}" for stream in STREAMS)


@dataclass(frozen=True)
class Algorithm:
    """A function of bits that traces may name."""

    name: str
    description: str
    digest: Callable[[bytes], str]


SHA256 = Algorithm("sha256-128", "the first 128 bits of SHA-256", sha256)
WORD_SUM = Algorithm("wordsum-128", "128 bits of sums over mixed words, which find accidents only", word_sum)

ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in (SHA256, WORD_SUM)}
"""By the name in a trace's header."""
