"""This project's engine under the suite: driven through its own requests and steps, watched through its observer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

from vosti.impl.abstraction import LiveRequest
from vosti.impl.backend import NO_PAGE, Backend, Batch, ForwardResult
from vosti.impl.checking import serve
from vosti.impl.determinism.environment import environment, process
from vosti.impl.determinism.protocol import Ability, Answer, Ask, Piece, Schedule, Settings, Vocabulary
from vosti.impl.drafting import Drafter, NoDrafter, Script, ScriptedDrafter
from vosti.impl.engine import Engine
from vosti.impl.ghost import NoGhost
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.planning import Chunk
from vosti.impl.pool_state import Pool
from vosti.impl.workload import Job
from vosti.spec.state import RequestId, Token
from vosti.spec.step import Action, Evict, Preempt


@dataclass(frozen=True)
class Ran:
    """How a backend ran its last forward; see `Piece`."""

    tiles: str = ""
    replayed: bool | None = None


Shows = Callable[[Backend, Batch], Ran]
"""How a backend ran a batch, which was its last one."""


def shows_nothing(backend: Backend, batch: Batch) -> Ran:
    """Of a backend that has one way to run a batch."""
    return Ran()


class Watch(NoGhost):
    """An observer that keeps, of each request, its rows of logits and how it was scheduled."""

    def __init__(self, backend: Backend, *, keep_kv: bool, shows: Shows = shows_nothing) -> None:
        """Watch an engine of this backend, whose pool is read only if keys and values are to be kept."""
        self._backend = backend
        self._shows = shows
        self._keep_kv = keep_kv
        self._taken: dict[int, bytes] = {}
        self._cached: dict[RequestId, int] = {}
        self._reached: dict[RequestId, int] = {}
        self._page_size = 1
        self.evictions = 0
        self.pieces: dict[str, list[Piece]] = {}
        self.taken: dict[str, list[int]] = {}
        self.pages: dict[str, tuple[int, ...]] = {}
        self.preempted: dict[str, list[int]] = {}
        self.rows: dict[str, list[bytes]] = {}
        self.observed: dict[str, dict[int, bytes]] = {}
        self.kv: dict[str, tuple[bytes, ...]] = {}

    def planned(self, step: int, actions: Sequence[Action]) -> None:
        """Count evictions, and note where a request was preempted."""
        for action in actions:
            if isinstance(action, Evict):
                self.evictions += 1
            elif isinstance(action, Preempt):
                self.preempted.setdefault(action.request, []).append(self._cached.get(action.request, 0))

    def computed(
        self, step: int, chunks: Sequence[Chunk], pool: Pool, batch: Batch | None, result: ForwardResult | None
    ) -> None:
        """Keep the arrays' own account of who stood beside whom, and the rows of logits."""
        self._taken = {}
        if batch is None or result is None:
            return
        logits = result.logits.cpu().float().numpy().astype("<f4", copy=False)
        self._taken = {int(row): logits[i].tobytes() for i, row in enumerate(batch.logit_rows)}
        live = int((batch.sequences >= 0).sum())
        ran = self._shows(self._backend, batch)
        for sequence, chunk in enumerate(chunks):
            rows = (batch.sequences == sequence).nonzero()[0]
            positions = batch.positions[rows].tolist()
            piece = Piece(
                start=min(positions),
                stop=max(positions) + 1,
                company=len(chunks) - 1,
                live=live,
                rows=len(batch.tokens),
                draft=len(chunk.draft),
                tiles=ran.tiles,
                replayed=ran.replayed,
            )
            self.pieces.setdefault(chunk.request, []).append(piece)
            self.pages[chunk.request] = tuple(page for page in batch.tables[sequence].tolist() if page != NO_PAGE)
            for row, position in zip(rows.tolist(), positions, strict=True):
                if row in self._taken and not chunk.draft:
                    self.observed.setdefault(chunk.request, {})[position] = self._taken[row]
            self._page_size = pool.page_size
            self._reached[chunk.request] = max(positions) + 1

    def settled(self, step: int, actions: Sequence[Action], pool: Pool, live: Mapping[RequestId, LiveRequest]) -> None:
        """Remember how far everybody has come."""
        self._cached = {request: pool.requests[request].cached for request in live}

    def returned(
        self, step: int, request: RequestId, tokens: tuple[Token, ...], rows: Sequence[int], ended: str | None
    ) -> None:
        """Keep the rows that this step's tokens were sampled from, where the caller takes the tokens."""
        self.rows.setdefault(request, []).extend(self._taken[row] for row in rows)
        self.taken.setdefault(request, []).extend([len(self.pieces.get(request, []))] * len(rows))
        if ended is not None and self._keep_kv and request in self.pages:
            # Its pages are nobody's by now, and nobody has written to them since.
            places = (divmod(position, self._page_size) for position in range(self._reached[request]))
            table = self.pages[request]
            slots = [table[block] * self._page_size + offset for block, offset in places]
            self.kv[request] = tuple(self._backend.slot_bytes(slots))


class Scripts(NoDrafter):
    """A drafter whose scripts change from call to call."""

    def __init__(self) -> None:
        self.drafter: Drafter = NoDrafter()

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """What the present scripts say."""
        return self.drafter.propose(request, prompt, output)


class VostiArm:
    """An engine of this project; see `vosti.impl.determinism.protocol.Arm`."""

    def __init__(self, backend: Backend, settings: Settings, shows: Shows = shows_nothing) -> None:
        self._settings = settings
        self._backend = backend
        self._scripts = Scripts()
        self._watch = Watch(backend, keep_kv=settings.keep_kv, shows=shows)
        options = EngineOptions(
            page_size=settings.page_size,
            pages=settings.pages,
            max_seqs=settings.max_seqs,
            token_budget=settings.token_budget,
            prefix_caching=settings.prefix_caching,
            page_seed=settings.page_seed,
            poison=settings.poison,
        )
        self._engine = Engine(backend, options, drafter=self._scripts, observer=self._watch)
        self._calls = 0

    def __enter__(self) -> VostiArm:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The pool goes when the next arm is opened."""

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        """Serve requests together: arrivals and cancellations come between steps."""
        self._calls += 1
        jobs = [self._job(ask) for ask in asks]
        self._scripts.drafter = ScriptedDrafter(
            {
                RequestId(job.id): Script(tuple(map(Token, ask.draft.expected)), ask.draft.length, ask.draft.right)
                for job, ask in zip(jobs, asks, strict=True)
                if ask.draft is not None
            },
            self._backend.vocab_size,
        )
        before = self._watch.evictions
        run = serve(self._engine, jobs)
        names = tuple(ask.name for ask in asks)
        schedule = Schedule(self._settings, process(), names, evictions=self._watch.evictions - before)
        answers = []
        for job in jobs:
            output, watch = run.outputs[job.id], self._watch
            answer = Answer(
                tokens=output.token_ids,
                rows=tuple(watch.rows.pop(job.id, ())),
                hit_tokens=output.hit_tokens,
                ended=str(output.finish_reason),
                schedule=replace(
                    schedule,
                    pieces=tuple(watch.pieces.pop(job.id, ())),
                    taken=tuple(watch.taken.pop(job.id, ())),
                    pages=watch.pages.pop(job.id, ()),
                    preempted_at=tuple(watch.preempted.pop(job.id, ())),
                ),
                observed=watch.observed.pop(job.id, {}),
                kv=watch.kv.pop(job.id, ()),
            )
            answers.append(answer)
        return answers

    def _job(self, ask: Ask) -> Job:
        chosen = ask.sampling
        params = SamplingParams(
            max_tokens=ask.max_tokens,
            temperature=chosen.temperature,
            top_k=chosen.top_k,
            top_p=chosen.top_p,
            min_p=chosen.min_p,
            seed=chosen.seed,
            ignore_eos=True,
            prompt_logprobs=0 if ask.observe else None,
        )
        name = f"{self._calls}:{ask.name}"
        return Job(name, ask.prompt, params, at=ask.at, domain="", cancel_at=ask.cancel_at, draft=None)


PLAIN = Settings(token_budget=1, max_seqs=1, page_size=1, pages=1)
"""Settings that ask nothing of a backend."""


class VostiSubject:
    """This project's engine with a model; see `vosti.impl.determinism.protocol.Subject`."""

    def __init__(
        self,
        open_backend: Callable[[Settings], Backend],
        vocabulary: Vocabulary,
        *,
        window: int | None = None,
        variants: Mapping[str, Sequence[str]] | None = None,
        shows: Shows = shows_nothing,
        fresh: Sequence[str] = (),
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """The engine.

        Args:
            open_backend: the backend for some settings: its variant, and the token whose embedding is NaN. Nothing else
                here keeps one.
            vocabulary: what prompts are made of.
            window: of the model's local layers.
            variants: what the backend's kernels may use without changing a value, by axis.
            shows: what they used.
            fresh: how another process makes the same subject.
            release: lets go of what backends share; `open_backend` takes it again.
        """
        self._open_backend = open_backend
        self._release = release
        self._context = open_backend(PLAIN).max_positions
        self._vocabulary = vocabulary
        self._window = window
        self._variants = dict(variants or {})
        self._shows = shows
        self._fresh = tuple(fresh)

    @property
    def name(self) -> str:
        """Vosti."""
        return "Vosti"

    @property
    def abilities(self) -> frozenset[Ability]:
        """All."""
        return frozenset(Ability)

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """What the backend's kernels may use."""
        return self._variants

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's."""
        return self._vocabulary

    @property
    def context(self) -> int:
        """The longest sequence that the model takes."""
        return self._context

    @property
    def window(self) -> int | None:
        """Of the model's local layers."""
        return self._window

    def configuration(self) -> Mapping[str, object]:
        """W."""
        return self._open_backend(PLAIN).fingerprint()

    def environment(self) -> Mapping[str, str]:
        """Versions and hardware."""
        return environment()

    def open(self, settings: Settings) -> VostiArm:
        """A fresh engine over a fresh pool."""
        return VostiArm(self._open_backend(settings), settings, self._shows)

    def release(self) -> None:
        """Let weights and pool go."""
        self._release()

    def fresh(self) -> Sequence[str]:
        """How another process makes the same subject."""
        return self._fresh
