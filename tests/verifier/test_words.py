"""Words: the terms that the text of `vosti.spec.digests` becomes are worth what the text computes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from term_numbers import Memory
from vosti.kernels.catalogue import TARGETS
from vosti.kernels.contract import Contract
from vosti.kernels.digest import DIGEST, DIGEST_MERGE
from vosti.kernels.verifier.canonical import Array
from vosti.kernels.verifier.entries import cases
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.integers import integer, symbol
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import prove
from vosti.kernels.verifier.terms import Load, Term
from vosti.kernels.verifier.words import BITS, low_half, share, stream, stream_sum, stretch
from vosti.spec import digests

MASK = 2**BITS - 1
BUFFER = Array((-1,), lambda place: Load("words", place[0], element="i32"))


def worth(term: Term, words: list[int]) -> int:
    """The unsigned number of a term over a buffer of words."""
    signed = [word - (word >> 31 << 32) for word in words]
    return int(Memory({"words": signed}).number(term)) & MASK


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6), st.integers(0, 2**20), st.integers(0, 1))
def test_a_share_is_worth_what_the_text_computes(words: list[int], first: int, number: int) -> None:
    """The sum's term, index by index; words of which the highest bit is set are no negative numbers."""
    found = share(stretch(BUFFER, 0, len(words)), first, stream(number))

    assert digests.share(words, first, digests.STREAMS[number]) == worth(found, words)


def test_a_stream_is_worth_what_the_text_computes() -> None:
    """Shares of three parts, and the length."""
    one, words = digests.STREAMS[0], [5, 2**32 - 1, 77, 0, 3, 2**31]
    found = stream_sum(integer(3), lambda p: share(stretch(BUFFER, 2 * p, 2), 2 * p, one), integer(24), one)

    assert digests.stream_sum([digests.share(words, 0, one)], 24, one) == worth(found, words)


def test_what_may_exceed_64_bits_is_cut_or_refused() -> None:
    """A product, a sum and a shift to the left may; a shift to the right, and a result, need that none did."""
    word = low_half(Load("words", integer(0), element="i32"))

    assert [32, 64, 96, 33] == [one.bits for one in (word, word << 32, word * (2**64 - 1), word + word)]
    assert 64 == (word * (2**64 - 1) & MASK).bits
    for wrong in (lambda: word * (2**64 - 1) >> 3, lambda: (word << 33).whole(), lambda: word & 255):
        with pytest.raises(TypeError):
            wrong()


def test_what_is_not_known_is_refused() -> None:
    """Which of the streams is meant has to be known."""
    with pytest.raises(TypeError, match="the number of a stream is not known"):
        stream(symbol("t", 0, 1))


def refused(kernel: str, contract: Contract, finding: str) -> None:
    """Nothing proves that the kernel does what this contract says."""
    (case,) = [case for case in cases(model="tiny-llama3") if case.kernel == kernel]
    with pytest.raises(RefusedError, match=finding):
        prove(parse(case.instance.ttir(TARGETS["sm_90"])), contract, case.constants, {}, case.earlier())


@pytest.mark.parametrize("left_out", range(len(DIGEST.contract.facts)))
def test_each_fact_about_layouts_is_needed(left_out: int) -> None:
    """Without it, something wraps around that may not."""
    facts = [fact for number, fact in enumerate(DIGEST.contract.facts) if number != left_out]

    refused("digest", replace(DIGEST.contract, facts=tuple(facts)), "An integer leaves its type")


@pytest.mark.parametrize(
    ("kernel", "old", "new", "finding"),
    [
        ("digest", "stream(t)", "stream(1 - t)", "Two integers differ"),
        ("digest", "layout[p, 3], ", "layout[p, 3] + 1, ", "Two integers differ"),
        ("digest", "sources[i] >= 0", "sources[i] >= 1", "The kernel adds what the row program does not"),
        ("digest", "layout[p, 2])", "layout[p, 2] - 1)", "computes something else than the row program"),
        ("digest_merge", "parts, lambda", "parts - 1, lambda", "The kernel adds what the row program does not"),
        ("digest_merge", "length, ", "length + 1, ", "Two integers differ"),
        ("digest_merge", "layout[p, 0]", "layout[p, 0] + 1", "reads another element of words"),
    ],
)
def test_a_contract_that_says_something_else_is_refused(kernel: str, old: str, new: str, finding: str) -> None:
    """Another stream, position, row, length or part."""
    contract = {"digest": DIGEST, "digest_merge": DIGEST_MERGE}[kernel].contract
    (output,) = contract.outputs
    assert old in output.value

    refused(kernel, replace(contract, outputs=(replace(output, value=output.value.replace(old, new)),)), finding)
