"""The words of `vosti.proofs.cuts`: rows, rankings and sums, and what is said of them.

Each definition speaks of one token or place, and holds of all. Logits are integers here, in the order of the numbers
that they stand for: of them nothing else is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from vosti.spec.sampling import P_UNIT, cut_ends

Sums = tuple[int, ...]
"""Of the first 0, 1, … tokens of a row, in one order or the other: one more than there are tokens."""


@dataclass(frozen=True)
class Row:
    """A row of logits, and what the specification makes of it."""

    logits: tuple[int, ...]
    """Of each token, where its logit stands among all numbers."""

    weights: tuple[int, ...]
    """Of each token; 0 where min-p drops it."""

    probable: tuple[bool, ...]
    """Whether min-p keeps it."""

    ranking: tuple[int, ...]
    """The token at each place."""

    places: tuple[int, ...]
    """The place of each token."""


@dataclass(frozen=True)
class Loop:
    """A run of the loop in `vosti.spec.sampling.kept`."""

    runs: tuple[bool, ...]
    """Whether it has not ended, before each place and after the last."""

    before: Sums
    """Its variable of that name, then."""

    keeps: tuple[bool, ...]
    """Whether it keeps the token at a place."""


@dataclass(frozen=True)
class Choice:
    """A run of `vosti.spec.sampling.choose` over a row's tokens, by ascending id."""

    reached: Sums
    """Its variable of that name, before each token and after the last."""

    chosen: tuple[int, ...]
    """What it has returned by then; -1 if nothing yet."""


# ---------------------------------------------------------------- definitions


def is_row(row: Row) -> bool:
    """Everything is said of each token."""
    size = len(row.logits)
    return (
        len(row.weights) == size and len(row.probable) == size and len(row.ranking) == size and len(row.places) == size
    )


def has(row: Row, t: int) -> bool:
    """Whether a row has a token; or a place, of which there are as many."""
    return 0 <= t < len(row.logits)


def stands_once(row: Row, t: int) -> bool:
    """A token has a place, and a place a token."""
    if not has(row, t):
        return True
    place = row.places[t]
    token = row.ranking[t]
    return has(row, place) and has(row, token) and row.ranking[place] == t and row.places[token] == t


def stands_before(row: Row, i: int, k: int) -> bool:
    """At an earlier place stands the larger logit, or of equal ones the lower token: `vosti.spec.sampling.ranked`."""
    if not (has(row, i) and has(row, k) and i < k):
        return True
    one = row.ranking[i]
    other = row.ranking[k]
    if not (has(row, one) and has(row, other)):
        return False
    return row.logits[one] > row.logits[other] or (row.logits[one] == row.logits[other] and one < other)


def weighs(row: Row, t: int) -> bool:
    """No weight is negative, and what min-p drops weighs 0."""
    return not has(row, t) or (row.weights[t] >= 0 and (row.probable[t] or row.weights[t] == 0))


def is_through(row: Row, t: int, e: int) -> bool:
    """Of two tokens of a row, `vosti.spec.sampling.through`."""
    return row.logits[t] > row.logits[e] or (row.logits[t] == row.logits[e] and t <= e)


def are_sums(row: Row, sums: Sums) -> bool:
    """They begin with 0."""
    return len(sums) == len(row.logits) + 1 and sums[0] == 0


def adds_through(row: Row, amounts: tuple[int, ...], e: int, sums: Sums, t: int) -> bool:
    """Sums of what is through e, by ids."""
    if not (has(row, t) and has(row, e)):
        return True
    return sums[t + 1] == sums[t] + (amounts[t] if is_through(row, t, e) else 0)


def adds(row: Row, amounts: tuple[int, ...], every: Sums, t: int) -> bool:
    """Sums of everything, by ids."""
    return not has(row, t) or every[t + 1] == every[t] + amounts[t]


def adds_ranked(row: Row, amounts: tuple[int, ...], reached: Sums, i: int) -> bool:
    """R: sums in the order of the ranking."""
    return not has(row, i) or (has(row, row.ranking[i]) and reached[i + 1] == reached[i] + amounts[row.ranking[i]])


def limit_of(row: Row, top_k: int) -> int:
    """How many tokens of the ranking top-k keeps."""
    return top_k if 0 < top_k < len(row.logits) else len(row.logits)


def is_loop(row: Row, loop: Loop) -> bool:
    """How the loop begins."""
    size = len(row.logits)
    sizes = len(loop.runs) == size + 1 and len(loop.before) == size + 1 and len(loop.keeps) == size
    return sizes and loop.runs[0] and loop.before[0] == 0


def loop_steps(row: Row, loop: Loop, enough: int, limit: int, i: int) -> bool:
    """At a place: top-k or min-p has taken the token from the list; or the loop ends; or it keeps the token."""
    if not has(row, i):
        return True
    token = row.ranking[i]
    if not has(row, token):
        return False
    stays = loop.runs[i + 1] == loop.runs[i] and loop.before[i + 1] == loop.before[i]
    if i >= limit or not loop.runs[i] or not row.probable[token]:
        return not loop.keeps[i] and stays
    if loop.before[i] * P_UNIT >= enough:
        return not loop.keeps[i] and not loop.runs[i + 1] and loop.before[i + 1] == loop.before[i]
    return loop.keeps[i] and loop.runs[i + 1] and loop.before[i + 1] == loop.before[i] + row.weights[token]


def is_state(top_k: int, top_p: int) -> bool:
    """What a sampler state has."""
    return 0 <= top_k and 0 < top_p <= P_UNIT


def accepts(row: Row, reached: Sums, top_k: int, top_p: int, kth: int, last: int) -> bool:
    """`cut_ends` of two tokens, given what step 2 says of the sums."""
    if not (has(row, kth) and has(row, last) and has(row, row.places[kth]) and has(row, row.places[last])):
        return False
    counted = row.places[kth] + 1
    return cut_ends(
        len(row.logits),
        top_k,
        top_p,
        reached[len(row.logits)],
        counted,
        reached[counted],
        reached[row.places[last] + 1],
        row.weights[last],
    )


# ---------------------------------------------------------------- 1 and 2: sums


def stand_apart(row: Row, t: int, e: int) -> bool:
    """`stands_before`, of two tokens' places."""
    if not (has(row, t) and has(row, e)):
        return True
    return stands_before(row, row.places[t], row.places[e]) and stands_before(row, row.places[e], row.places[t])


def through_is_place(row: Row, t: int, e: int) -> bool:
    """A token is through another if its place is not behind the other's."""
    return not (has(row, t) and has(row, e)) or is_through(row, t, e) == (row.places[t] <= row.places[e])


def is_first(row: Row, e: int) -> bool:
    """The token stands first."""
    return has(row, e) and row.places[e] == 0


def is_next(row: Row, d: int, e: int) -> bool:
    """e stands right behind d."""
    return has(row, d) and has(row, e) and row.places[e] == row.places[d] + 1


def is_last(row: Row, e: int) -> bool:
    """The token stands last."""
    return has(row, e) and row.places[e] + 1 == len(row.logits)


def first_sum(row: Row, amounts: tuple[int, ...], e: int, sums: Sums, t: int) -> bool:
    """Through the first token there is itself."""
    if not (is_first(row, e) and 0 <= t <= len(row.logits)):
        return True
    return sums[t] == (amounts[e] if e < t else 0)


def next_sum(row: Row, amounts: tuple[int, ...], d: int, less: Sums, e: int, sums: Sums, t: int) -> bool:
    """Through the next token there is what is through the one before it, and itself."""
    if not (is_next(row, d, e) and 0 <= t <= len(row.logits)):
        return True
    return sums[t] == less[t] + (amounts[e] if e < t else 0)


def last_sum(row: Row, e: int, sums: Sums, every: Sums, t: int) -> bool:
    """Through the last token there is everything."""
    return not (is_last(row, e) and 0 <= t <= len(row.logits)) or sums[t] == every[t]


def sum_is_reached(row: Row, e: int, sums: Sums, reached: Sums) -> bool:
    """What is through a token weighs what the ranking has reached with it."""
    if not has(row, e):
        return True
    return has(row, row.places[e]) and sums[len(row.logits)] == reached[row.places[e] + 1]


def all_is_reached(row: Row, e: int, every: Sums, reached: Sums) -> bool:
    """All tokens weigh what the ranking reaches in the end."""
    return not is_last(row, e) or every[len(row.logits)] == reached[len(row.logits)]


def is_one(row: Row, amounts: tuple[int, ...], t: int) -> bool:
    """Tokens are counted."""
    return not has(row, t) or amounts[t] == 1


def counts_places(row: Row, reached: Sums, i: int) -> bool:
    """As many tokens as places."""
    return not 0 <= i <= len(row.logits) or reached[i] == i


@dataclass(frozen=True)
class Found:
    """What the check is given of a row, each of sums by ids up to the last."""

    every: Sums
    """Of all weights."""

    counts: Sums
    """Of ones, through the kth."""

    shares: Sums
    """Of weights, through the kth."""

    sums: Sums
    """Of weights, through the last."""


def accepts_sums(row: Row, found: Found, top_k: int, top_p: int, last: int) -> bool:
    """`cut_ends`, given such sums."""
    width = len(row.logits)
    every = found.every[width]
    own = row.weights[last] if has(row, last) else 0
    return cut_ends(width, top_k, top_p, every, found.counts[width], found.shares[width], found.sums[width], own)


def accepted_alike(row: Row, found: Found, reached: Sums, top_k: int, top_p: int, kth: int, last: int) -> bool:
    """So it accepts what it accepts of what the ranking has reached."""
    if not (has(row, kth) and has(row, last)):
        return True
    return accepts_sums(row, found, top_k, top_p, last) == accepts(row, reached, top_k, top_p, kth, last)


# ---------------------------------------------------------------- 3: the loop


def adds_probable(row: Row, totals: Sums, i: int) -> bool:
    """Sums of what min-p leaves, in the order of the ranking: of the first k, `total` in `kept`."""
    if not has(row, i):
        return True
    token = row.ranking[i]
    return has(row, token) and totals[i + 1] == totals[i] + (row.weights[token] if row.probable[token] else 0)


def total_is_reached(row: Row, totals: Sums, reached: Sums, i: int) -> bool:
    """What min-p drops adds nothing."""
    return not 0 <= i <= len(row.logits) or totals[i] == reached[i]


def ascends(row: Row, reached: Sums, i: int, k: int) -> bool:
    """No sum is below an earlier one."""
    return not 0 <= i <= k <= len(row.logits) or reached[i] <= reached[k]


def loop_follows(row: Row, loop: Loop, reached: Sums, enough: int, limit: int, i: int) -> bool:
    """While the loop runs, it has summed what the ranking reaches; when it has ended, that was enough."""
    if not 0 <= i <= limit <= len(row.logits):
        return True
    return loop.before[i] == reached[i] if loop.runs[i] else reached[i] * P_UNIT >= enough


def keeps_by_sum(row: Row, loop: Loop, reached: Sums, enough: int, limit: int, i: int) -> bool:
    """A token is kept if top-k and min-p leave it, and what stands before it is not enough."""
    if not (has(row, i) and limit <= len(row.logits)):
        return True
    token = row.ranking[i]
    return has(row, token) and loop.keeps[i] == (i < limit and row.probable[token] and reached[i] * P_UNIT < enough)


# ---------------------------------------------------------------- 4: the cut


def share_is_within(top_p: int, total: int) -> bool:
    """A lemma of arithmetic: a share of something is something, and not more than all of it."""
    return not (0 < top_p <= P_UNIT and 0 < total) or 0 < top_p * total <= P_UNIT * total


def first_weighs(row: Row) -> bool:
    """The most probable token weighs something: 2²⁴, and no min-p drops it."""
    return len(row.logits) > 0 and has(row, row.ranking[0]) and row.weights[row.ranking[0]] > 0


def total_weighs(row: Row, reached: Sums, top_k: int) -> bool:
    """So does what top-k keeps."""
    return 0 < limit_of(row, top_k) <= len(row.logits) and reached[limit_of(row, top_k)] > 0


def enough_of(row: Row, reached: Sums, top_k: int, top_p: int) -> int:
    """What top-p asks for, in units of weights times 2⁻²⁰."""
    return top_p * reached[limit_of(row, top_k)]


def share_of_total(row: Row, reached: Sums, top_k: int, top_p: int) -> bool:
    """`share_is_within`, of what top-k keeps."""
    return share_is_within(top_p, reached[limit_of(row, top_k)])


def kept_is_through(row: Row, loop: Loop, last: int, t: int) -> bool:
    """The loop keeps a token that weighs something exactly if it is through the last."""
    if not (has(row, t) and has(row, last)) or row.weights[t] == 0:
        return True
    return has(row, row.places[t]) and loop.keeps[row.places[t]] == is_through(row, t, last)


def is_end(row: Row, reached: Sums, enough: int, i: int) -> bool:
    """With the token at this place there is enough, and not before."""
    return has(row, i) and reached[i] * P_UNIT < enough <= reached[i + 1] * P_UNIT


def is_short(row: Row, reached: Sums, enough: int, i: int) -> bool:
    """What stands before a place is not enough."""
    return not 0 <= i <= len(row.logits) or reached[i] * P_UNIT < enough


def some_end(row: Row, reached: Sums, enough: int) -> bool:
    """Not everything would be too little: so there is a place with `is_end`."""
    return not is_short(row, reached, enough, len(row.logits))


def end_is_accepted(row: Row, reached: Sums, top_k: int, top_p: int, kth: int, last: int) -> bool:
    """The token there is accepted, together with the one that top-k keeps last."""
    if not (has(row, kth) and has(row, last)) or row.places[kth] + 1 != limit_of(row, top_k):
        return True
    enough = enough_of(row, reached, top_k, top_p)
    return not is_end(row, reached, enough, row.places[last]) or accepts(row, reached, top_k, top_p, kth, last)


def one_end(row: Row, top_k: int, kth: int, last: int, first: int, end: int) -> bool:
    """No other tokens are accepted, if top-k cuts; else no other last one."""
    return last == end and (kth == first or not 0 < top_k < len(row.logits))


# ---------------------------------------------------------------- 5: the draw


def is_choice(choice: Choice, cut: tuple[int, ...]) -> bool:
    """How `choose` begins."""
    sizes = len(choice.chosen) == len(cut) + 1 and len(choice.reached) == len(cut) + 1
    return sizes and choice.chosen[0] == -1 and choice.reached[0] == 0


def passes(choice: Choice, t: int) -> bool:
    """Nothing changes with a token."""
    return choice.chosen[t + 1] == choice.chosen[t] and choice.reached[t + 1] == choice.reached[t]


def takes_of_all(choice: Choice, cut: tuple[int, ...], draw: int, t: int) -> bool:
    """`choose`, given all tokens, also those that weigh 0."""
    if not 0 <= t < len(cut):
        return True
    if choice.chosen[t] >= 0:
        return passes(choice, t)
    reached = choice.reached[t] + cut[t]
    return choice.reached[t + 1] == reached and choice.chosen[t + 1] == (t if reached > draw else -1)


def takes_of_kept(choice: Choice, cut: tuple[int, ...], draw: int, t: int) -> bool:
    """`choose`, given those that weigh something."""
    return not 0 <= t < len(cut) or (passes(choice, t) if cut[t] == 0 else takes_of_all(choice, cut, draw, t))


def chosen_alike(every: Choice, kept: Choice, cut: tuple[int, ...], draw: int, t: int) -> bool:
    """Both have taken the same token; or none, and have reached the same sum, which does not exceed the draw."""
    if not 0 <= t <= len(cut):
        return True
    open_alike = every.chosen[t] == -1 and every.reached[t] == kept.reached[t] and every.reached[t] <= draw
    return every.chosen[t] == kept.chosen[t] and (every.chosen[t] >= 0 or open_alike)


def is_draw(draw: int) -> bool:
    """⌊u S / 2⁶⁴⌋ is not negative. It is the same for both: what weighs 0 adds nothing to S."""
    return draw >= 0
