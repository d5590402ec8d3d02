"""Of every batch: its rows, positions and slots are those that contracts speak of, and each slot read is canonical.

Let Inv hold of s, and `forward_ok` of the rows; let `packed` be how the device's backend lists them by sequence
(`vosti.impl.backends.cuda.metadata.pack`, of which `listed` says what it checks and makes: a test compares). Then

- the rows of sequence b are `row_of(b, i)` for 0 ≤ i < counts[b], each live row being one of them and padding none, and
  row i stands at `position_of(b, i)`: the last of its positions at the end, and each before the next by induction;
- they begin where the request's cached positions end;
- what contracts assume of integers holds: `counts_fit`, `rows_fit`, `ranges_differ`, `tables_reach`, `slots_differ`;
- after the store of a layer (`stored`: each row's slot holds its part of f_KV, every other slot what it held), the slot
  of each position j that a row reads holds the layer's part of f_KV(W, h, j), h being the row's own history, whoever
  computed it: an earlier forward (`cached_is_found`), or a row of this one (`computed_is_found`);
- no row writes a slot that holds a value, whoever holds the page, and whether or not he has rows in this batch
  (`initialised_is_left`): so of all that was computed before, nothing changes;
- a flat slot names one page and one offset (`flat_is_unique`).

`vosti.proofs.forward` reads the first five functions in the texts of contracts. They are for one backend; the CPU's
has `position` and `write slot` of each row as `forward_ok` has them, and needs the last two points only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

from vosti.proofs.book import Book, Replaced, state
from vosti.proofs.canonical_output import reads_canonical
from vosti.proofs.definedness import ceilings
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.terms import Term
from vosti.refinement.smt.values import Value
from vosti.spec.invariants import cached_in_range, page_size_positive
from vosti.spec.reference import canonical_kv, opaque
from vosti.spec.rows import Rows, forward_ok, row_is_live, row_is_next
from vosti.spec.state import PageId, State, sequence
from vosti.spec.state import Value as KV

Part = NewType("Part", object)
"""The key and the value of one position in one layer."""


@opaque
def layer_part(value: KV, layer: int) -> Part:
    """What of a position's KV pairs belongs to a layer."""
    return Part((value, layer))


# ---------------------------------------------------------------- what contracts compute with integers


def row_of(b: int, i: int, starts: tuple[int, ...]) -> int:
    """The row of the batch that is row i of sequence b."""
    return starts[b] + i


def position_of(b: int, i: int, counts: tuple[int, ...], lengths: tuple[int, ...]) -> int:
    """The position of row i of sequence b: its rows are the last of its positions."""
    return lengths[b] - counts[b] + i


def slot_of(b: int, j: int, tables: tuple[tuple[int, ...], ...], page_size: int) -> int:
    """The slot of position j of sequence b."""
    return tables[b][j // page_size] * page_size + j % page_size


def is_row(b: int, i: int, sequences: int, counts: tuple[int, ...]) -> bool:
    """Whether sequence b has a row i."""
    return 0 <= b < sequences and 0 <= i < counts[b]


def has_slot(i: int, rows: int, slots: tuple[int, ...]) -> bool:
    """Whether row i of the batch keeps a key and a value."""
    return 0 <= i < rows and slots[i] >= 0


# ---------------------------------------------------------------- a batch by sequence


@dataclass(frozen=True)
class Packed:
    """A batch by sequence."""

    sequences: tuple[int | None, ...]
    """Of each row, whose it is; None for padding."""

    tables: tuple[tuple[PageId, ...], ...]
    """Of each sequence, its pages."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    lengths: tuple[int, ...]


def row_is_listed(rows: Rows, packed: Packed, i: int) -> bool:
    """The row is one of its sequence's, and reads through its table; or it is padding."""
    b = packed.sequences[i]
    row = rows[i]
    if b is None or row.request is None:
        return b is None and row.request is None
    return (
        0 <= b < len(packed.counts)
        and packed.starts[b] <= i < packed.starts[b] + packed.counts[b]
        and packed.tables[b] == row.table
    )


def same_sequence(rows: Rows, packed: Packed, i: int, k: int) -> bool:
    """Rows of one sequence are rows of one request, and the other way round."""
    return (
        rows[i].request is None
        or rows[k].request is None
        or (packed.sequences[i] == packed.sequences[k]) == (rows[i].request == rows[k].request)
    )


def sequence_is_listed(rows: Rows, packed: Packed, b: int) -> bool:
    """Its rows stand side by side, the last one at its last position."""
    start = packed.starts[b]
    count = packed.counts[b]
    return (
        0 <= start
        and 0 <= count
        and start + count <= len(rows)
        and (count > 0 or start == 0)
        and all(packed.sequences[i] == b for i in range(start, start + count))
        and packed.lengths[b] == (rows[start + count - 1].position + 1 if count > 0 else 0)
    )


def listed(rows: Rows, packed: Packed) -> bool:
    """What the backend makes of a batch that it accepts."""
    return (
        len(packed.sequences) == len(rows)
        and len(packed.starts) == len(packed.counts)
        and len(packed.lengths) == len(packed.counts)
        and len(packed.tables) == len(packed.counts)
        and all(row_is_listed(rows, packed, i) for i in range(len(rows)))
        and all(same_sequence(rows, packed, i, k) for i in range(len(rows)) for k in range(len(rows)))
        and all(sequence_is_listed(rows, packed, b) for b in range(len(packed.counts)))
    )


# ---------------------------------------------------------------- statements: integers


def is_row_of(packed: Packed, b: int, i: int) -> bool:
    """`is_row`, of a batch."""
    return is_row(b, i, len(packed.counts), packed.counts)


def stands_at(rows: Rows, packed: Packed, b: int, i: int) -> bool:
    """Row i of sequence b stands at the position that contracts take it to."""
    return rows[row_of(b, i, packed.starts)].position == position_of(b, i, packed.counts, packed.lengths)


def last_stands(rows: Rows, packed: Packed, b: int) -> bool:
    """The last row of each sequence does."""
    return not is_row_of(packed, b, 0) or stands_at(rows, packed, b, packed.counts[b] - 1)


def earlier_stands(rows: Rows, packed: Packed, b: int, i: int) -> bool:
    """So does a row if the next one does."""
    if not (is_row_of(packed, b, i) and is_row_of(packed, b, i + 1)):
        return True
    return not stands_at(rows, packed, b, i + 1) or stands_at(rows, packed, b, i)


def row_stands(rows: Rows, packed: Packed, b: int, i: int) -> bool:
    """So every row does, by induction from the last."""
    return not is_row_of(packed, b, i) or stands_at(rows, packed, b, i)


def first_stands(rows: Rows, packed: Packed, b: int) -> bool:
    """The first among them."""
    return row_stands(rows, packed, b, 0)


def belongs(packed: Packed, b: int, i: int) -> bool:
    """Row i of sequence b is listed as one of its rows."""
    return not is_row_of(packed, b, i) or packed.sequences[row_of(b, i, packed.starts)] == b


def listed_alike(rows: Rows, packed: Packed, b: int, i: int, k: int) -> bool:
    """Rows i and k of sequence b are listed as its rows, and so are not padding."""
    if not (is_row_of(packed, b, i) and is_row_of(packed, b, k)):
        return True
    one = row_of(b, i, packed.starts)
    other = row_of(b, k, packed.starts)
    return (
        row_is_listed(rows, packed, one)
        and row_is_listed(rows, packed, other)
        and same_sequence(rows, packed, one, other)
    )


def one_request(rows: Rows, packed: Packed, b: int, i: int, k: int) -> bool:
    """The rows of a sequence are rows of one request, and none is padding."""
    if not (is_row_of(packed, b, i) and is_row_of(packed, b, k)):
        return True
    request = rows[row_of(b, i, packed.starts)].request
    return request is not None and request == rows[row_of(b, k, packed.starts)].request


def begins_a_request(rows: Rows, packed: Packed, b: int) -> bool:
    """The row before a sequence's first is of another request."""
    if not is_row_of(packed, b, 0):
        return True
    first = row_of(b, 0, packed.starts)
    return first == 0 or rows[first - 1].request != rows[first].request


def first_is_listed(rows: Rows, packed: Packed, b: int) -> bool:
    """A sequence's first row is a row, and no padding."""
    if not is_row_of(packed, b, 0):
        return True
    first = packed.starts[b]
    return 0 <= first < len(rows) and packed.sequences[first] == b and row_is_listed(rows, packed, first)


def first_is_next(s: State, rows: Rows, packed: Packed, b: int) -> bool:
    """It belongs to a live request, and follows as `forward_ok` says."""
    if not is_row_of(packed, b, 0):
        return True
    first = packed.starts[b]
    return rows[first].request is not None and row_is_live(s, rows, first) and row_is_next(s, rows, first)


def begins_after_cached(s: State, rows: Rows, packed: Packed, b: int) -> bool:
    """A sequence's rows begin at its request's first position that is not cached."""
    if not is_row_of(packed, b, 0):
        return True
    request = rows[row_of(b, 0, packed.starts)].request
    return request is not None and position_of(b, 0, packed.counts, packed.lengths) == s.requests[request].cached


def counts_fit(packed: Packed, b: int) -> bool:
    """No sequence has more rows than positions."""
    return not 0 <= b < len(packed.counts) or 0 <= packed.counts[b] <= packed.lengths[b]


def rows_fit(rows: Rows, packed: Packed, b: int) -> bool:
    """Its rows are rows of the batch."""
    return not 0 <= b < len(packed.counts) or packed.starts[b] + packed.counts[b] <= len(rows)


def common_row(packed: Packed, b: int, c: int) -> bool:
    """If two sequences have rows in common, the later start is one."""
    if not (is_row_of(packed, b, 0) and is_row_of(packed, c, 0)):
        return True
    i = max(packed.starts[b], packed.starts[c])
    ends = min(packed.starts[b] + packed.counts[b], packed.starts[c] + packed.counts[c])
    return not i < ends or (packed.sequences[i] == b and packed.sequences[i] == c)


def ranges_differ(packed: Packed, b: int, c: int) -> bool:
    """Different sequences have different rows."""
    if not (0 <= b < len(packed.counts) and 0 <= c < len(packed.counts)):
        return True
    return (
        b == c
        or packed.starts[b] + packed.counts[b] <= packed.starts[c]
        or packed.starts[c] + packed.counts[c] <= packed.starts[b]
    )


def last_reads(s: State, rows: Rows, packed: Packed, b: int) -> bool:
    """The table of a sequence reaches as far as its last row reads; it ends at its last position."""
    if not 0 <= b < len(packed.counts) or packed.counts[b] == 0:
        return not 0 <= b < len(packed.counts) or packed.lengths[b] == 0
    row = rows[row_of(b, packed.counts[b] - 1, packed.starts)]
    return (
        packed.lengths[b] == row.position + 1
        and packed.tables[b] == row.table
        and row.position // s.page_size + 1 <= len(row.table)
    )


def tables_reach(s: State, packed: Packed, b: int, c: int) -> bool:
    """A sequence has a page for each of its positions."""
    if not (0 <= b < len(packed.counts) and 0 <= c):
        return True
    return c < len(packed.tables[b]) or packed.lengths[b] <= c * s.page_size


def slots_differ(rows: Rows, i: int, k: int) -> bool:
    """No two rows write one slot."""
    if not (0 <= i < len(rows) and 0 <= k < len(rows)):
        return True
    return i == k or rows[i].write is None or rows[i].write != rows[k].write


def flat_is_unique(page: int, offset: int, other: int, place: int, page_size: int) -> bool:
    """page · page_size + offset names one page and one offset."""
    return (
        not (0 <= offset < page_size and 0 <= place < page_size)
        or page * page_size + offset != other * page_size + place
        or (page == other and offset == place)
    )


# ---------------------------------------------------------------- statements: values


def row_is_stored(s: State, rows: Rows, after: Mapping[PageId, tuple[Part, ...]], layer: int, i: int) -> bool:
    """The row's slot holds the layer's part of its position's canonical value."""
    row = rows[i]
    if row.request is None or row.write is None:
        return True
    page_id = row.write[0]
    slot = row.write[1]
    return (
        page_id in after
        and 0 <= slot < len(after[page_id])
        and after[page_id][slot]
        == layer_part(canonical_kv(sequence(s.requests[row.request])[: row.position + 1]), layer)
    )


def slot_is_left(
    s: State, rows: Rows, after: Mapping[PageId, tuple[Part, ...]], layer: int, page_id: PageId, slot: int
) -> bool:
    """A slot that no row writes holds what it held."""
    return any(row.write == (page_id, slot) for row in rows) or (
        page_id in after
        and slot < len(after[page_id])
        and after[page_id][slot] == layer_part(s.pages[page_id].kv[slot], layer)
    )


def stored(s: State, rows: Rows, after: Mapping[PageId, tuple[Part, ...]], layer: int) -> bool:
    """What a layer's pages hold after its store: by the store's contract, if each row's part is the canonical one."""
    return all(row_is_stored(s, rows, after, layer, i) for i in range(len(rows))) and all(
        slot_is_left(s, rows, after, layer, page_id, slot)
        for page_id, page in s.pages.items()
        for slot in range(len(page.kv))
    )


def is_new(s: State, rows: Rows, k: int) -> bool:
    """The row's position is not cached yet."""
    request = rows[k].request
    return request is None or request not in s.requests or s.requests[request].cached <= rows[k].position


def next_is_new(s: State, rows: Rows, k: int) -> bool:
    """A row's position is not cached, if that of the row before it is not."""
    return not 0 <= k < len(rows) or (k > 0 and not is_new(s, rows, k - 1)) or is_new(s, rows, k)


def all_are_new(s: State, rows: Rows) -> bool:
    """No row's position is cached, by induction from the first."""
    return all(is_new(s, rows, k) for k in range(len(rows)))


def cached_is_left(s: State, rows: Rows, i: int, j: int, k: int) -> bool:
    """No row k writes the slot of a cached position j that row i reads."""
    if not (0 <= i < len(rows) and 0 <= k < len(rows)):
        return True
    row = rows[i]
    if row.request is None or not 0 <= j < s.requests[row.request].cached or not j < row.readable:
        return True
    return rows[k].write != (row.table[j // s.page_size], j % s.page_size)


def none_writes_cached(s: State, rows: Rows, i: int, j: int) -> bool:
    """No row at all does."""
    return all(cached_is_left(s, rows, i, j, k) for k in range(len(rows)))


def initialised_is_left(s: State, rows: Rows, page_id: PageId, slot: int, k: int) -> bool:
    """No row writes a slot that holds a value, whoever holds its page."""
    if page_id not in s.pages or not 0 <= slot < len(s.pages[page_id].kv) or not 0 <= k < len(rows):
        return True
    return rows[k].write != (page_id, slot)


def reads_canonical_at(s: State, rows: Rows, i: int, j: int) -> bool:
    """What a row's request reads at a cached position is canonical: `vosti.proofs.canonical_output`."""
    if not 0 <= i < len(rows):
        return True
    request = rows[i].request
    return request is None or reads_canonical(s, request, j)


def cached_is_found(s: State, rows: Rows, after: Mapping[PageId, tuple[Part, ...]], layer: int, i: int, j: int) -> bool:
    """At a cached position that it reads, a row finds the layer's part of its history's canonical value."""
    if not 0 <= i < len(rows):
        return True
    row = rows[i]
    if row.request is None or not 0 <= j < s.requests[row.request].cached or not j < row.readable:
        return True
    found = after[row.table[j // s.page_size]][j % s.page_size]
    return found == layer_part(canonical_kv(sequence(s.requests[row.request])[: j + 1]), layer)


def reads_own_pages(s: State, rows: Rows, packed: Packed, b: int, i: int, k: int) -> bool:
    """The page that row i of a sequence reads of the position of row k ≤ i is its request's."""
    if not (is_row_of(packed, b, i) and is_row_of(packed, b, k) and k <= i):
        return True
    row = rows[row_of(b, i, packed.starts)]
    if row.request is None:
        return True
    own = s.requests[row.request].table
    c = rows[row_of(b, k, packed.starts)].position // s.page_size
    blocks = row.position // s.page_size + 1
    return row.table[:blocks][c] == own[:blocks][c] and row.table[c] == own[c]


def row_of_is_stored(
    s: State, rows: Rows, packed: Packed, after: Mapping[PageId, tuple[Part, ...]], layer: int, b: int, k: int
) -> bool:
    """`row_is_stored`, of row k of sequence b."""
    return not is_row_of(packed, b, k) or row_is_stored(s, rows, after, layer, row_of(b, k, packed.starts))


def reads_its_slot(s: State, rows: Rows, packed: Packed, b: int, i: int, k: int) -> bool:
    """Row i of a sequence reads position k's key where row k ≤ i writes it."""
    if not (is_row_of(packed, b, i) and is_row_of(packed, b, k) and k <= i):
        return True
    row = rows[row_of(b, i, packed.starts)]
    j = position_of(b, k, packed.counts, packed.lengths)
    return rows[row_of(b, k, packed.starts)].write == (row.table[j // s.page_size], j % s.page_size)


def computed_is_found(
    s: State, rows: Rows, packed: Packed, after: Mapping[PageId, tuple[Part, ...]], layer: int, b: int, i: int, k: int
) -> bool:
    """At the position of row k of its sequence, itself included, so does row i ≥ k."""
    if not (is_row_of(packed, b, i) and is_row_of(packed, b, k) and k <= i):
        return True
    row = rows[row_of(b, i, packed.starts)]
    j = position_of(b, k, packed.counts, packed.lengths)
    if row.request is None:
        return False
    found = after[row.table[j // s.page_size]][j % s.page_size]
    return found == layer_part(canonical_kv(sequence(s.requests[row.request])[: j + 1]), layer)


# ---------------------------------------------------------------- obligations


def obligations(replaced: Replaced | None = None) -> list[Obligation]:
    """Integers, then values."""
    book = Book("forward_rows", replaced)
    s = state(book)
    rows, packed = book.symbol("rows", Rows), book.symbol("packed", Packed)
    after, layer = book.symbol("after", Mapping[PageId, tuple[Part, ...]]), book.symbol("layer", int)
    i, j, k, b, c = (book.symbol(name, int) for name in "ijkbc")
    fine = [book.term(page_size_positive, s), book.term(forward_ok, s, rows)]
    inv = [*book.invariant(s), book.term(ceilings, s, rows), *fine]

    book.holds("slots_differ", inv, slots_differ, rows, i, k)
    book.holds("next_is_new", inv, next_is_new, s, rows, k)
    inv.append(book.term(all_are_new, s, rows))
    page_id, slot = book.symbol("page_id", PageId), book.symbol("slot", int)
    book.holds("initialised_is_left", inv, initialised_is_left, s, rows, page_id, slot, k)
    book.holds("cached_is_left", inv, cached_is_left, s, rows, i, j, k)
    places = [book.symbol(name, int) for name in ("page", "offset", "other", "place", "page_size")]
    book.holds("flat_is_unique", [], flat_is_unique, *places)
    kept = book.term(stored, s, rows, after, layer)
    found = [book.term(reads_canonical_at, s, rows, i, j), book.term(none_writes_cached, s, rows, i, j)]
    book.holds("cached_is_found", [*inv, kept, *found], cached_is_found, s, rows, after, layer, i, j)

    made = book.run(listed, rows, packed)
    book.defined("listed", fine, made.needs)
    have = [*fine, made.term]

    def holds(statement: Callable[..., bool], *args: Value, given: Sequence[Term] = ()) -> Term:
        """Prove a statement, from what is given alone if anything is; return it as a premise of others."""
        name, compiled = statement.__name__, book.run(statement, *args)
        book.defined(name, [*have, *given], compiled.needs)
        book.prove(name, given or have, compiled.term)
        return compiled.term

    holds(last_stands, rows, packed, b)
    holds(earlier_stands, rows, packed, b, i)
    first = book.term(first_stands, rows, packed, b)
    its = holds(first_is_listed, rows, packed, b, given=[made.term])
    follows = holds(first_is_next, s, rows, packed, b, given=[*fine, its])
    begins = [first, holds(begins_a_request, rows, packed, b), follows]
    begun = holds(begins_after_cached, s, rows, packed, b, given=begins)
    holds(counts_fit, packed, b, given=[*have, begun, book.term(cached_in_range, s)])
    holds(rows_fit, rows, packed, b)
    holds(ranges_differ, packed, b, c, given=[*have, holds(common_row, packed, b, c)])
    reach = [*fine[:1], holds(last_reads, s, rows, packed, b)]
    holds(tables_reach, s, packed, b, c, given=reach)

    mine = [holds(belongs, packed, b, i), book.term(belongs, packed, b, k)]
    alike = holds(listed_alike, rows, packed, b, i, k, given=[made.term, *mine])
    one = holds(one_request, rows, packed, b, i, k, given=[*mine, alike])
    stand = [book.term(row_stands, rows, packed, b, row) for row in (i, k)]
    reads = holds(reads_own_pages, s, rows, packed, b, i, k, given=[*have, *mine, one, *stand])
    reads = holds(reads_its_slot, s, rows, packed, b, i, k, given=[*have, *mine, one, *stand, reads])
    put = holds(row_of_is_stored, s, rows, packed, after, layer, b, k, given=[*have, kept])
    holds(computed_is_found, s, rows, packed, after, layer, b, i, k, given=[*have, *mine, one, *stand, reads, put])
    return book.obligations
