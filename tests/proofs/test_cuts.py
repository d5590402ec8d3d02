"""The words of the theorem about cuts are the specification's, and what is wrong in them is not proved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pytest

from cuts import weights_of
from edited_functions import replaced
from vosti.proofs import cuts_words as words
from vosti.proofs.cuts import Cuts, Numbers, obligations
from vosti.proofs.cuts_words import Choice, Found, Loop, Row, Sums
from vosti.refinement.smt.solve import SOLVERS, Answer, solve
from vosti.refinement.smt.terms import FALSE
from vosti.spec import sampling
from vosti.spec.sampling import P_UNIT, SamplerState, choose, kept, ranked, through

# ---------------------------------------------------------------- the words, on all small rows


def small_rows() -> Iterator[tuple[float, ...]]:
    """Rows of few tokens over few values, with both zeros and both infinities, but -∞ throughout."""
    values = (1.0, 0.0, -0.0, -2.0, -math.inf)
    every = [row for width in (1, 2, 3) for row in itertools.product(values, repeat=width)]
    every += [*itertools.product((0.5, 0.0, -30.0), repeat=4), (math.inf, 3.0, math.inf), (0.0, math.inf, 0.0)]
    yield from (row for row in every if max(row) > -math.inf)


def row_of(logits: Sequence[float], state: SamplerState) -> Row:
    """The theorem's record of a row."""
    ranking, order = ranked(logits), sorted(set(logits))
    places = [0] * len(logits)
    for place, token in enumerate(ranking):
        places[token] = place
    shares = [sampling.weight(sampling.exponent(logit, max(logits), state.temperature)) for logit in logits]
    return Row(
        tuple(order.index(logit) for logit in logits),
        tuple(weights_of(logits, state)),
        tuple(sampling.probable(share, state.min_p) for share in shares),
        tuple(ranking),
        tuple(places),
    )


def sums_of(amounts: Sequence[int]) -> Sums:
    """Of the first 0, 1, … of them."""
    return tuple(accumulate(amounts, initial=0))


def sums_through(row: Row, amounts: Sequence[int], e: int) -> Sums:
    """Of what is through e, by ids."""
    return sums_of([amounts[t] if words.is_through(row, t, e) else 0 for t in range(len(amounts))])


def loop_of(row: Row, enough: int, limit: int) -> Loop:
    """The loop of `kept`, place by place."""
    runs, before, keeps = [True], [0], list[bool]()
    for place, token in enumerate(row.ranking):
        listed = runs[-1] and place < limit and row.probable[token]
        keeps.append(listed and before[-1] * P_UNIT < enough)
        runs.append(runs[-1] and (keeps[-1] or not listed))
        before.append(before[-1] + (row.weights[token] if keeps[-1] else 0))
    return Loop(tuple(runs), tuple(before), tuple(keeps))


def choice_of(tokens: Sequence[int], cut: Sequence[int], draw: int) -> Choice:
    """The loop of `choose` over some tokens of a row."""
    reached, chosen = [0], [-1]
    for token, share in enumerate(cut):
        given = token in tokens and chosen[-1] < 0
        reached.append(reached[-1] + (share if given else 0))
        chosen.append(token if given and reached[-1] > draw else chosen[-1])
    return Choice(tuple(reached), tuple(chosen))


STATES = [(top_p, min_p) for top_p in (1, P_UNIT // 3, P_UNIT // 2, P_UNIT) for min_p in (0, P_UNIT // 4, P_UNIT)]


def test_sums_are_as_assumed() -> None:
    """In every small row all definitions hold of all tokens, and so do the statements about sums."""
    for logits in small_rows():
        row, tokens = row_of(logits, SamplerState(1.0, 0, P_UNIT, 0, 0, 0)), range(len(logits))
        reached = sums_of([row.weights[token] for token in row.ranking])
        every, ones = sums_of(row.weights), sums_of([1] * len(row.ranking))
        assert words.is_row(row)
        assert words.are_sums(row, reached)
        assert words.first_weighs(row)
        for t in tokens:
            assert words.stands_once(row, t)
            assert words.weighs(row, t)
            assert words.adds(row, row.weights, every, t)
            assert words.adds_ranked(row, row.weights, reached, t)
            assert words.counts_places(row, ones, t + 1)
            assert words.all_is_reached(row, t, every, reached)
        for t, e in itertools.product(tokens, tokens):
            sums = sums_through(row, row.weights, e)
            assert words.is_through(row, t, e) == through(logits[t], t, logits[e], e)
            assert words.stands_before(row, t, e)
            assert words.stand_apart(row, t, e)
            assert words.through_is_place(row, t, e)
            assert words.adds_through(row, row.weights, e, sums, t)
            assert words.sum_is_reached(row, e, sums, reached)
            assert words.ascends(row, reached, t, e)


def test_one_end_is_accepted_and_it_is_the_specifications() -> None:
    """In every small row, with all top-k: one last token is accepted, and what is through it is what `kept` has."""
    accepted = 0
    for logits, (top_p, min_p) in itertools.product(small_rows(), STATES):
        width = len(logits)
        row = row_of(logits, SamplerState(1.0, 0, top_p, min_p, 0, 0))
        every, reached = sums_of(row.weights), sums_of([row.weights[token] for token in row.ranking])
        through_of = [sums_through(row, row.weights, e) for e in range(width)]
        counted = [sums_through(row, [1] * width, e) for e in range(width)]
        totals = sums_of([row.weights[token] if row.probable[token] else 0 for token in row.ranking])
        assert all(words.adds_probable(row, totals, i) for i in range(width))
        assert all(words.total_is_reached(row, totals, reached, i) for i in range(width + 1))
        for top_k in range(width + 2):
            state, limit = SamplerState(1.0, top_k, top_p, min_p, 0, 0), words.limit_of(row, top_k)
            enough = words.enough_of(row, reached, top_k, top_p)
            loop = loop_of(row, enough, limit)
            assert words.is_loop(row, loop)
            for i in range(width):
                assert words.loop_steps(row, loop, enough, limit, i)
                assert words.keeps_by_sum(row, loop, reached, enough, limit, i)
            expected = kept(logits, state)
            keeps = [token for token in range(width) if loop.keeps[row.places[token]]]
            assert expected == tuple((token, row.weights[token]) for token in keeps)
            ends = set()
            for kth, last in itertools.product(range(width), range(width)):
                found = Found(every, counted[kth], through_of[kth], through_of[last])
                assert words.accepted_alike(row, found, reached, top_k, top_p, kth, last)
                if words.accepts_sums(row, found, top_k, top_p, last):
                    ends.add((kth if 0 < top_k < width else None, last))
                    assert all(words.kept_is_through(row, loop, last, token) for token in range(width))
                    mine = [token for token in range(width) if words.is_through(row, token, last)]
                    assert expected == tuple((t, row.weights[t]) for t in mine if row.weights[t] > 0)
                    accepted += 1
            kth_token = row.ranking[top_k - 1] if 0 < top_k < width else None
            assert {(kth_token, max((token for token, _ in expected), key=row.places.__getitem__))} == ends
    assert accepted > 10_000


def test_weights_of_nothing_change_no_draw() -> None:
    """`choose` of all tokens of a cut is `choose` of those that weigh something."""
    for cut in itertools.product((0, 1, 5), repeat=4):
        if any(cut):
            for bits in (0, 2**62, 2**63, 2**64 - 1):
                candidates = [(token, share) for token, share in enumerate(cut) if share]
                draw = bits * sum(cut) >> 64
                every, few = choice_of(range(4), cut, draw), choice_of([token for token, _ in candidates], cut, draw)
                assert choose(candidates, bits) == choose(tuple(enumerate(cut)), bits) == few.chosen[-1]
                for t in range(4):
                    assert words.takes_of_all(every, cut, draw, t)
                    assert words.takes_of_kept(few, cut, draw, t)
                    assert words.chosen_alike(every, few, cut, draw, t + 1)


# ---------------------------------------------------------------- what is wrong is not proved


FAULTS = [
    ("kept_is_through", sampling.cut_ends, "P_UNIT < top_p", "P_UNIT <= top_p"),
    ("end_is_accepted", sampling.cut_ends, "<= reached * P_UNIT", "< reached * P_UNIT"),
    ("end_is_accepted", sampling.cut_ends, "(reached - own) * P_UNIT <", "reached * P_UNIT <"),
    ("kept_is_through", sampling.cut_ends, "<= reached * P_UNIT", "<= (reached + own) * P_UNIT"),
    ("kept_is_through", sampling.cut_ends, "(reached - own) * P_UNIT <", "(reached - own) <"),
    ("end_is_accepted", sampling.cut_ends, "<= reached * P_UNIT", "<= reached"),
    ("kept_is_through", sampling.cut_ends, "counted == top_k", "counted <= top_k"),
    ("kept_is_through", sampling.cut_ends, "counted == top_k", "counted >= top_k"),
    ("kept_is_through", sampling.cut_ends, "shared if limited else everything", "everything"),
    ("end_is_accepted", sampling.cut_ends, "0 < top_k < width", "0 < top_k"),
    ("kept_is_through", sampling.cut_ends, "top_p * total", "P_UNIT * total"),
    ("one_end", sampling.cut_ends, "(reached - own) * P_UNIT < top_p", "top_p"),
    ("through_is_place", words.is_through, "t <= e", "t < e"),
    ("through_is_place", words.is_through, "row.logits[t] > row", "row.logits[t] >= row"),
    ("through_is_place", words.stands_before, "one < other", "one > other"),
    ("through_is_place", words.stands_once, " and row.ranking[place] == t", ""),
    ("next_sum", words.next_sum, "e < t", "e <= t"),
    ("next_sum: of one more", words.adds_through, "sums[t + 1] == sums[t] +", "sums[t + 1] >= sums[t] +"),
    ("accepted_alike", words.accepts_sums, "found.counts[width]", "found.counts[width] + 1"),
    ("ascends: of one more", words.weighs, "row.weights[t] >= 0 and ", ""),
    ("keeps_by_sum", words.loop_steps, "* P_UNIT >= enough", "* P_UNIT > enough"),
    ("total_is_reached: of one more", words.adds_probable, "else 0", "else 1"),
    ("total_is_reached: of one more", words.weighs, "(row.probable[t] or row.weights[t] == 0)", "True"),
    ("loop_follows: of one more", words.weighs, "(row.probable[t] or row.weights[t] == 0)", "True"),
    ("total_weighs", words.first_weighs, " and row.weights[row.ranking[0]] > 0", ""),
    ("share_is_within", words.share_is_within, "0 < top_p <= P_UNIT", "0 < top_p"),
    ("share_is_within", words.share_is_within, "0 < top_p <= P_UNIT", "0 <= top_p <= P_UNIT"),
    ("chosen_alike: of one more", words.takes_of_all, "reached > draw", "reached >= draw"),
    ("chosen_alike: of none", words.is_draw, "draw >= 0", "draw >= -1"),
]
"""The statement that is false, and what is wrong in which text."""


STEP_OF = {
    "sums": ("through_is_place", "next_sum"),
    "numbers": ("accepted_alike",),
    "loops": ("total_is_reached", "ascends", "loop_follows", "keeps_by_sum"),
    "cut": ("share_is_within", "total_weighs", "kept_is_through", "end_is_accepted", "one_end"),
    "draw": ("chosen_alike",),
}
"""Where these statements are proved."""


@pytest.mark.parametrize(("statement", "function", "old", "new"), FAULTS)
def test_a_fault_is_not_proved(statement: str, function: Callable[..., Any], old: str, new: str) -> None:
    """With a condition weakened, or a text made wrong, both solvers have a countermodel of what needs it."""
    cuts = Cuts(replaced(function, old, new))
    (step,) = (step for step, statements in STEP_OF.items() if statement.partition(":")[0] in statements)
    getattr(cuts, step)()
    found = [o for o in cuts.book.obligations if o.name.startswith(f"cuts/{statement}")]
    chosen = [o for o in found if " is defined" not in o.name]

    assert chosen
    for solver in SOLVERS:
        verdicts = [solve(o.script, solver) for o in chosen]
        assert {"sat"} == {verdict.detail for verdict in verdicts if verdict.answer is not Answer.PROVED}, solver


def test_no_premises_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each statement is proved from has a model: nothing is proved because nothing is so."""
    stated = Numbers.stated
    monkeypatch.setattr(Numbers, "stated", lambda book, name, have, goal: stated(book, name, have, FALSE))

    stated_of = [o for o in obligations() if " is defined" not in o.name]

    assert [] == [o.name for o in stated_of if solve(o.script, "z3").detail != "sat"]
