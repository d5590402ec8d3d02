"""The sampler's cuts: what is accepted as the end of a row's cuts is the end of what the specification keeps.

On a GPU nobody has to rank a row. Somebody names two tokens, kth and last; who, and why, does not matter. Sums over all
tokens in the order of their ids tell how many are `through` a token, and what they weigh. If `cut_ends` accepts these
numbers (both functions are `vosti.spec.sampling`'s), then for every token t of any row, with weights ≥ 0, of which 0
stands for what min-p drops,

    the loop of `kept` keeps t, and t weighs something    ⟺    t is through `last`, and weighs something

and of what is kept `choose` takes the token that it takes of all, where those that are not kept weigh 0. In each row
that is not refused there is one last token that is accepted, and no other (`some_end`, `end_is_accepted`, `one_end`).

*Proof.* Let R(i) be what the first i tokens of the ranking weigh, and place(t) be where t stands in it.

1. A token is through e if its place is not behind e's (`through_is_place`).
2. So what is through e weighs R(place(e) + 1), by induction over e's place, and each step of it by induction over ids
   (`sum_is_reached`). All tokens weigh R(width) (`all_is_reached`); and where each weighs 1, R(i) = i
   (`counts_places`).
3. What min-p drops adds nothing: the sum of which `kept` takes a share is R(k) (`total_is_reached`). While the loop
   runs, `before` is R; once it has ended, R is enough: by induction (`loop_follows`). So of the first k tokens it keeps
   those that min-p leaves and for which 2²⁰ R(place) < top_p · R(k) (`keeps_by_sum`).
4. R ascends, and so these are the tokens through the one place i at which 2²⁰ R(i) < top_p · R(k) ≤ 2²⁰ R(i + 1)
   (`kept_is_through`).
5. Where a sum first exceeds the draw, the token weighs something (`chosen_alike`).

What is assumed holds of all tokens and places, and is used of those that matter, without quantifiers. The words are
those of `vosti.proofs.cuts_words`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vosti.proofs.axioms import native
from vosti.proofs.book import Book, Replaced
from vosti.proofs.cuts_words import (
    Choice,
    Found,
    Loop,
    Row,
    Sums,
    accepted_alike,
    accepts,
    adds,
    adds_probable,
    adds_ranked,
    adds_through,
    all_is_reached,
    are_sums,
    ascends,
    chosen_alike,
    counts_places,
    end_is_accepted,
    enough_of,
    first_sum,
    first_weighs,
    has,
    is_choice,
    is_draw,
    is_end,
    is_first,
    is_last,
    is_loop,
    is_next,
    is_one,
    is_row,
    is_short,
    is_state,
    keeps_by_sum,
    kept_is_through,
    last_sum,
    limit_of,
    loop_follows,
    loop_steps,
    next_sum,
    one_end,
    share_is_within,
    share_of_total,
    some_end,
    stand_apart,
    stands_before,
    stands_once,
    sum_is_reached,
    takes_of_all,
    takes_of_kept,
    through_is_place,
    total_is_reached,
    total_weighs,
    weighs,
)
from vosti.refinement.smt.obligation import Obligation, relevant
from vosti.refinement.smt.terms import Term, neg, script
from vosti.refinement.smt.values import Record, Value


def none() -> int:
    """No token, or place."""
    return 0


def following(t: int) -> int:
    """The next token, or place."""
    return t + 1


def size_of(row: Row) -> int:
    """The width of a row."""
    return len(row.logits)


def place_of(row: Row, t: int) -> int:
    """Where a token stands, or 0 if there is none."""
    return row.places[t] if has(row, t) else 0


def token_at(row: Row, i: int) -> int:
    """What stands at a place, or 0 if there is none."""
    return row.ranking[i] if has(row, i) else 0


def is_at_most(i: int, k: int) -> bool:
    """Of two places."""
    return i <= k


def are_amounts(row: Row, amounts: Sums) -> bool:
    """There is one for each token."""
    return len(amounts) == len(row.logits)


def weights_of(row: Row) -> Sums:
    """What each token weighs."""
    return row.weights


def end_of(row: Row, t: int) -> int:
    """The place behind a token's."""
    return place_of(row, t) + 1


class Numbers(Book):
    """Obligations without quantifiers, with the solvers' own products: what is false has a countermodel."""

    def stated(self, name: str, assumptions: Iterable[Term], goal: Term) -> Obligation:
        """One obligation, without axioms."""
        formulas = [*assumptions, neg(goal)]
        used = relevant(formulas, self.compiler.definitions)
        return Obligation(name, script([native(formula) for formula in (*used, *formulas)]))


class Cuts:
    """The obligations: each statement from what it takes, of one token or place."""

    def __init__(self, replaced: Replaced | None):
        self.book = Numbers("cuts", replaced)
        self.row, self.loop = self.book.symbol("row", Row), self.book.symbol("loop", Loop)
        self.reached = self.book.symbol("reached", Sums)
        self.weights = self.value(weights_of, self.row)
        self.zero, self.size = self.value(none), self.value(size_of, self.row)
        self.sizes = [self.term(is_row, self.row), self.term(are_sums, self.row, self.reached)]

    def integers(self, names: str) -> list[Value]:
        """Symbols."""
        return [self.book.symbol(name, int) for name in names.split()]

    def value(self, f: Callable[..., object], *args: Value) -> Value:
        """A function's value."""
        return self.book.run(f, *args).value

    def term(self, f: Callable[..., object], *args: Value) -> Term:
        """A predicate's truth."""
        return self.book.term(f, *args)

    def proved(self, statement: Callable[..., object], *args: Value, given: list[Term], part: str = "") -> Term:
        """A statement that follows from what is given; returned, to be given in turn."""
        name = statement.__name__ + (f": {part}" if part else "")
        self.book.holds(name, [*self.sizes, *given], statement, *args)
        return self.term(statement, *args)

    def by_induction(self, statement: Callable[..., object], *args: Value, start: list[Term], step: list[Term]) -> None:
        """A statement about the first n of something, n its last argument: of none, and of one more."""
        *fixed, n = args
        self.proved(statement, *fixed, self.zero, given=start, part="of none")
        self.proved(
            statement,
            *fixed,
            self.value(following, n),
            given=[*step, self.term(statement, *args)],
            part="of one more",
        )

    def define(self) -> None:
        """Every definition is defined, of any token or place."""
        amounts, sums, every = (self.book.symbol(name, Sums) for name in ("amounts", "sums", "every"))
        e, t, i, k, top_k, top_p, enough, limit = self.integers("e t i k top_k top_p enough limit")
        choice, draw = self.book.symbol("choice", Choice), self.book.symbol("draw", int)
        row = self.row
        have = [*self.sizes, self.term(are_amounts, row, amounts), self.term(is_loop, row, self.loop)]
        have += [self.term(are_sums, row, one) for one in (sums, every)]
        begun = [self.term(is_choice, choice, amounts)]

        def defined(f: Callable[..., object], *args: Value, given: list[Term]) -> None:
            self.book.defined(f.__name__, given, self.book.run(f, *args).needs)

        defined(stands_once, row, t, given=have)
        defined(stands_before, row, i, k, given=have)
        defined(weighs, row, t, given=have)
        defined(adds_through, row, amounts, e, sums, t, given=have)
        defined(adds, row, amounts, every, t, given=have)
        defined(adds_ranked, row, amounts, self.reached, i, given=have)
        defined(adds_probable, row, every, i, given=have)
        defined(loop_steps, row, self.loop, enough, limit, i, given=have)
        defined(accepts, row, self.reached, top_k, top_p, e, t, given=have)
        defined(is_choice, choice, amounts, given=[])
        defined(takes_of_all, choice, amounts, draw, t, given=begun)
        defined(takes_of_kept, choice, amounts, draw, t, given=begun)

    def sums(self) -> None:
        """Steps 1 and 2."""
        row, reached = self.row, self.reached
        amounts, sums, less, every = (self.book.symbol(name, Sums) for name in ("amounts", "sums", "less", "every"))
        d, e, t, i = self.integers("d e t i")

        def once(*tokens: Value) -> list[Term]:
            return [self.term(stands_once, row, token) for token in tokens]

        self.proved(through_is_place, row, t, e, given=[*once(t, e), self.term(stand_apart, row, t, e)])

        sized = [self.term(are_amounts, row, amounts)]
        sized += [self.term(are_sums, row, one) for one in (sums, less, every)]
        to_e, to_d = self.term(through_is_place, row, t, e), self.term(through_is_place, row, t, d)
        step = [*sized, *once(t, e), to_e, self.term(adds_through, row, amounts, e, sums, t)]
        below = [*once(d), to_d, self.term(adds_through, row, amounts, d, less, t)]
        whole = [self.term(adds, row, amounts, every, t)]
        self.by_induction(first_sum, row, amounts, e, sums, t, start=sized, step=step)
        self.by_induction(next_sum, row, amounts, d, less, e, sums, t, start=sized, step=[*step, *below])
        self.by_induction(last_sum, row, e, sums, every, t, start=sized, step=[*step, *whole])

        here = [*sized, *once(e), self.term(adds_ranked, row, amounts, reached, self.value(place_of, row, e))]
        first = [self.term(is_first, row, e), self.term(first_sum, row, amounts, e, sums, self.size)]
        self.proved(sum_is_reached, row, e, sums, reached, given=[*here, *first], part="of the first")
        after = [self.term(is_next, row, d, e), self.term(next_sum, row, amounts, d, less, e, sums, self.size)]
        after += [*once(d), self.term(sum_is_reached, row, d, less, reached)]
        self.proved(sum_is_reached, row, e, sums, reached, given=[*here, *after], part="of the next")
        last = [self.term(last_sum, row, e, sums, every, self.size), self.term(sum_is_reached, row, e, sums, reached)]
        self.proved(all_is_reached, row, e, every, reached, given=[*sized, *last])
        one = [*sized, self.term(is_one, row, amounts, self.value(token_at, row, i))]
        adding = self.term(adds_ranked, row, amounts, reached, i)
        self.by_induction(counts_places, row, reached, i, start=[], step=[*one, adding])

    def numbers(self) -> None:
        """What the check is given is what step 2 speaks of."""
        row, found, reached = self.row, self.book.symbol("found", Found), self.reached
        assert isinstance(found, Record)
        every, counts, shares, sums = (found.fields[name] for name in ("every", "counts", "shares", "sums"))
        ones = self.book.symbol("ones", Sums)
        e, kth, last, top_k, top_p = self.integers("e kth last top_k top_p")
        have = [self.term(are_sums, row, one) for one in (ones, every, counts, shares, sums)]
        have += [self.term(stands_once, row, token) for token in (kth, last)]
        have += [
            self.term(is_last, row, e),
            self.term(all_is_reached, row, e, every, reached),
            self.term(sum_is_reached, row, kth, counts, ones),
            self.term(counts_places, row, ones, self.value(end_of, row, kth)),
            self.term(sum_is_reached, row, kth, shares, reached),
            self.term(sum_is_reached, row, last, sums, reached),
        ]
        self.proved(accepted_alike, row, found, reached, top_k, top_p, kth, last, given=have)

    def loops(self) -> None:
        """Step 3."""
        row, loop, reached = self.row, self.loop, self.reached
        enough, limit, i, k = self.integers("enough limit i k")

        def adding(place: Value) -> list[Term]:
            token = self.value(token_at, row, place)
            return [self.term(adds_ranked, row, self.weights, reached, place), self.term(weighs, row, token)]

        totals = self.book.symbol("totals", Sums)
        begun = [self.term(are_sums, row, totals)]
        step = [*begun, *adding(i), self.term(adds_probable, row, totals, i)]
        self.by_induction(total_is_reached, row, totals, reached, i, start=begun, step=step)

        same = self.term(is_at_most, i, k)
        self.proved(ascends, row, reached, i, i, given=[], part="of the same")
        self.proved(
            ascends,
            row,
            reached,
            i,
            self.value(following, k),
            given=[same, *adding(k), self.term(ascends, row, reached, i, k)],
            part="of one more",
        )
        begun = [self.term(is_loop, row, loop)]
        steps = [*begun, self.term(loop_steps, row, loop, enough, limit, i)]
        follows = self.term(loop_follows, row, loop, reached, enough, limit, i)
        self.by_induction(loop_follows, row, loop, reached, enough, limit, i, start=begun, step=[*steps, *adding(i)])
        self.proved(keeps_by_sum, row, loop, reached, enough, limit, i, given=[*steps, follows])

    def cut(self) -> None:
        """Step 4."""
        row, loop, reached = self.row, self.loop, self.reached
        kth, last, other_kth, other, t, i, top_k, top_p = self.integers("kth last other_kth other t i top_k top_p")
        self.book.prove("share_is_within", [], self.term(share_is_within, top_p, i))
        limit, enough = self.value(limit_of, row, top_k), self.value(enough_of, row, reached, top_k, top_p)
        start, one = self.zero, self.value(following, self.zero)

        def rises(i: Value, k: Value) -> Term:
            return self.term(ascends, row, reached, i, k)

        def ends(t: Value) -> tuple[Value, Value]:
            return self.value(place_of, row, t), self.value(end_of, row, t)

        def stands(*tokens: Value) -> list[Term]:
            """What is known of these: where they stand, and what they add."""
            return [
                fact
                for token in tokens
                for fact in (
                    self.term(stands_once, row, token),
                    self.term(weighs, row, token),
                    self.term(adds_ranked, row, self.weights, reached, self.value(place_of, row, token)),
                )
            ]

        state = self.term(is_state, top_k, top_p)
        first = [self.term(first_weighs, row), self.term(adds_ranked, row, self.weights, reached, start)]
        total = self.proved(total_weighs, row, reached, top_k, given=[state, *first, rises(one, limit)])
        share = self.term(share_of_total, row, reached, top_k, top_p)
        common = [state, total, share]

        place, end = ends(last)
        where = ends(t)[0]
        accepted = self.term(accepts, row, reached, top_k, top_p, kth, last)
        have = [*common, *stands(kth, last, t), accepted, self.term(through_is_place, row, t, last)]
        have += [self.term(is_loop, row, loop)]
        have += [rises(where, place), rises(end, where), rises(limit, where)]
        have += [self.term(keeps_by_sum, row, loop, reached, enough, limit, where)]
        self.proved(kept_is_through, row, loop, last, t, given=have)

        short = [*common, neg(self.term(is_end, row, reached, enough, i))]
        self.by_induction(is_short, row, reached, enough, i, start=common, step=short)
        self.proved(some_end, row, reached, enough, given=[*common, rises(limit, self.size)])
        found = [*common, *stands(kth, last)]
        self.proved(end_is_accepted, row, reached, top_k, top_p, kth, last, given=found)
        both = [accepted, self.term(accepts, row, reached, top_k, top_p, other_kth, other)]
        both += [*common, *stands(kth, last, other_kth, other), rises(end, ends(other)[0])]
        both.append(rises(ends(other)[1], place))
        self.proved(one_end, row, top_k, kth, last, other_kth, other, given=both)

    def draw(self) -> None:
        """Step 5."""
        every, kept = self.book.symbol("every", Choice), self.book.symbol("kept", Choice)
        cut, draw, t = self.book.symbol("cut", Sums), self.book.symbol("draw", int), self.book.symbol("t", int)
        begun = [self.term(is_draw, draw), *(self.term(is_choice, one, cut) for one in (every, kept))]
        taken = [self.term(takes_of_all, every, cut, draw, t), self.term(takes_of_kept, kept, cut, draw, t)]
        self.by_induction(chosen_alike, every, kept, cut, draw, t, start=begun, step=[*begun, *taken])


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Definitions are defined; then the five steps."""
    cuts = Cuts(replaced)
    cuts.define()
    cuts.sums()
    cuts.numbers()
    cuts.loops()
    cuts.cut()
    cuts.draw()
    return cuts.book.obligations
