"""The axes of kernels believe no setting: an engine shows that other kernels ran, or that a graph was replayed."""

from __future__ import annotations

from collections import Counter

import pytest

from hashing_backend import HashingBackend
from hashing_subject import hashing_subject
from vosti.impl.backend import Backend, Batch
from vosti.impl.determinism.cases import Bench
from vosti.impl.determinism.prompts import Geometry
from vosti.impl.determinism.protocol import Settings, Vocabulary
from vosti.impl.determinism.results import compare
from vosti.impl.determinism.suites import EXTENDED, plan
from vosti.impl.determinism.vosti_engine import Ran, Shows, VostiSubject, shows_nothing

VARIANTS = {"tiles": ["tile-0"], "splits": ["one-pass"], "graphs": ["eager"]}


class Shown(HashingBackend):
    """A backend that says how it runs: it replays what it has run before, unless it is told not to."""

    variant = ""

    def allocate(self, pages: int, page_size: int) -> None:
        """Make a fresh pool, and forget what was run."""
        super().allocate(pages, page_size)
        self.met: Counter[int] = Counter()

    def ran(self, batch: Batch) -> Ran:
        """Rows that decode run with tiles of their own, unless keys are in one pass."""
        decodes = len(batch.tokens) <= 4 and self.variant != "one-pass"
        self.met[len(batch.tokens)] += 1
        replayed = self.met[len(batch.tokens)] > 1 and self.variant != "eager"
        return Ran(f"{self.variant if self.variant == 'tile-0' else ''}{decodes}", replayed)


def shown(backend: Backend, batch: Batch) -> Ran:
    """What the backend says."""
    assert isinstance(backend, Shown)
    return backend.ran(batch)


def verdicts(axis: str, shows: Shows) -> Counter[tuple[str, str | None]]:
    """How many pairs of an axis have which state, and why, in a small suite."""
    subject = hashing_subject(Shown, variants=VARIANTS, shows=shows)
    plain = subject.open

    def opened(settings: Settings) -> object:
        arm = plain(settings)
        backend = arm._backend
        assert isinstance(backend, Shown)
        backend.variant = settings.variant
        return arm

    subject.open = opened  # type: ignore[method-assign,assignment]
    bench = Bench(subject, Geometry(16))
    cases = plan("extended", subject, bench.geometry, [axis]).cases
    return Counter((found.state, found.why) for case in cases[:2] for found in map(compare, case.run(bench)))


@pytest.mark.parametrize("axis", VARIANTS)
def test_what_is_shown_to_differ_counts(axis: str) -> None:
    """All pairs match."""
    assert {("match", None)} == set(verdicts(axis, shown))


@pytest.mark.parametrize(
    ("axis", "why"),
    [
        ("tiles", "the schedules did not differ in tiles"),
        ("splits", "the kernels did not differ"),
        ("graphs", "no forward was replayed from a graph"),
    ],
)
def test_a_setting_alone_is_no_witness(axis: str, why: str) -> None:
    """Other variants of an engine that does not show its kernels are invalid."""
    assert {("invalid", why)} == set(verdicts(axis, shows_nothing))


def test_tiles_that_do_not_change_are_invalid() -> None:
    """The engine shows its kernels, and they are those of the reference."""
    assert {("invalid", "the schedules did not differ in tiles")} == set(
        verdicts("tiles", lambda backend, batch: Ran("always these", False))
    )


@pytest.mark.slow
@pytest.mark.parametrize("axis", [axis.name for axis in EXTENDED if axis.variant is None and axis.name != "restart"])
def test_every_axis_is_valid_at_full_size(axis: str) -> None:
    """With pages of 64 slots as with the small ones of the bundled checkpoints: every pair compares something."""
    _all_match(axis)


def test_the_spoilt_neighbour_is_valid_at_full_size() -> None:
    """With pages of 64 slots nobody's first row is computed alone, either."""
    _all_match("non-finite")


def test_a_neighbour_that_stays_finite_shows_nothing() -> None:
    """Where the backend knows no such token the request goes on, and the pairs are invalid."""
    subject = hashing_subject(lambda sick_tokens, **sizes: HashingBackend(**sizes))
    bench = Bench(subject, Geometry(16))
    cases = plan("quick", subject, bench.geometry, ["non-finite"]).cases
    found = Counter(compare(pair).why for case in cases for pair in case.run(bench))

    assert {"some requests were to be error, and ended otherwise: {'spoilt': 'length'}": 48} == found


def _all_match(axis: str) -> None:
    subject: VostiSubject = hashing_subject(vocabulary=Vocabulary(size=2000, bos=0, special=frozenset({0, 1})))
    bench = Bench(subject, Geometry(1))
    cases = plan("extended", subject, bench.geometry, [axis]).cases
    found = Counter(compare(pair).state for case in cases for pair in case.run(bench))

    assert {"match"} == set(found)
