"""Workloads: what arrives when, as data. The format is described in docs/workloads.md.

A workload file says what requests there are; `jobs` makes them concrete for one model: token ids, and a seed for each.
Equal workloads, models and seeds give equal jobs, on any machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vosti.impl.errors import InvalidOptionError, WorkloadError
from vosti.impl.models.fields import unique_keys
from vosti.impl.options import SamplingParams

T = TypeVar("T")

FORMAT = "vosti-workload-1"
"""What a workload file says in its field `format`."""

LONGEST_PIECE = 2**20
"""A random piece has at most so many tokens."""

FOLDER = Path(__file__).parent / "workloads"

Encode = Callable[[str, bool], Sequence[int]]
"""Tokens of a text; with True, framed by the tokenizer's special tokens."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object of the file."""


class Piece(_Entry, frozen=True):
    """A part of a prompt: exactly one of `text`, `tokens` and `random` is given."""

    text: str | None = None
    tokens: tuple[int, ...] | None = None

    random: int | None = None
    """How many tokens, each any of the vocabulary."""

    seed: int | None = None
    """Of `random`: which ones. Equal seeds give sequences of which one begins with the other."""

    length: int | None = None
    """Of `text`: how many of its tokens are taken, from the first; without it, all."""


class Sampling(_Entry, frozen=True):
    """The sampling of a request; the defaults are those of `SamplingParams`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None


class Draft(_Entry, frozen=True):
    """A scripted draft before each step: so many tokens, of which so many are right, and the one after them wrong."""

    length: int
    right: int


class Entry(_Entry, frozen=True):
    """A request of the file."""

    id: str
    prompt: str | tuple[str | Piece, ...]
    max_tokens: int
    at: int = 0
    sampling: Sampling | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprobs_start: int = 0
    domain: str = ""
    cancel_at: int | None = None
    draft: Draft | None = None


class _File(_Entry, frozen=True):
    format: str
    requests: tuple[Any, ...]
    about: str = ""
    pieces: dict[str, Any] = {}


@dataclass(frozen=True)
class Workload:
    """A checked workload file."""

    name: str
    about: str
    pieces: Mapping[str, Piece]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Job:
    """A request of a workload, made concrete for a model."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    """Its seed is set."""

    at: int
    """Before which step it arrives."""

    domain: str
    cancel_at: int | None
    """Before which step it is called off, if it has not ended by then."""

    draft: Draft | None


# ---------------------------------------------------------------- reading


def builtin_names() -> list[str]:
    """The names of the workloads that ship with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Workload:
    """The built-in workload of that name, or else the one in that file. Raises `WorkloadError`."""
    path = FOLDER / f"{name}.json" if name in builtin_names() else Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"Workload {name} is not UTF-8 text.") from error
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise WorkloadError(
            f"There is no workload {name!r}: {cause} (the built-in ones are {', '.join(builtin_names())})."
        ) from error
    return parse(text, name)


def parse(text: str, name: str) -> Workload:
    """The workload that a text describes. Raises `WorkloadError`, which names the entry that is wrong."""
    where = f"Workload {name}"
    try:
        content = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_constant)
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise WorkloadError(f"{where} holds half of a surrogate pair, which is no text.") from error
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{where} is not valid JSON: {error}.") from error
    file = _convert(content, _File, where)
    _check(file.format == FORMAT, f"{where}: format is {file.format!r}; it must be {FORMAT!r}.")
    _check(len(file.requests) > 0, f"{where} has no requests.")
    pieces = {key: _convert(piece, Piece, f"{where}, piece {key!r}") for key, piece in file.pieces.items()}
    for key, piece in pieces.items():
        _check_piece(piece, f"{where}, piece {key!r}")
    entries: list[Entry] = []
    for number, item in enumerate(file.requests, start=1):
        label = repr(item["id"]) if isinstance(item, dict) and "id" in item else "without an id"
        at = f"{where}, request {number} ({label})"
        entry = _convert(item, Entry, at)
        _check_entry(entry, pieces, at)
        _check(entry.id not in {other.id for other in entries}, f"{at}: an earlier request has this id, too.")
        entries.append(entry)
    return Workload(name=name, about=file.about, pieces=pieces, entries=tuple(entries))


def _no_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


def _convert(value: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise WorkloadError(f"{where}: {error}.") from error


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise WorkloadError(message)


def _check_piece(piece: Piece, where: str) -> None:
    given = [name for name in ("text", "tokens", "random") if getattr(piece, name) is not None]
    _check(
        len(given) == 1,
        f"{where}: a piece has exactly one of text, tokens and random, not {' and '.join(given) or 'none of them'}.",
    )
    _check((piece.random is not None) == (piece.seed is not None), f"{where}: random and seed go together.")
    _check(piece.length is None or piece.text is not None, f"{where}: length belongs to text.")
    for name in ("random", "length"):
        value = getattr(piece, name)
        _check(
            value is None or 1 <= value <= LONGEST_PIECE,
            f"{where}: {name} is {value}; it must be between 1 and {LONGEST_PIECE}.",
        )


def _check_entry(entry: Entry, pieces: Mapping[str, Piece], where: str) -> None:
    _check(entry.id != "", f"{where}: the id is empty.")
    _check(entry.at >= 0, f"{where}: at is {entry.at}; it must be at least 0.")
    _check(
        entry.cancel_at is None or entry.cancel_at >= entry.at,
        f"{where}: cancel_at is {entry.cancel_at}, before the request arrives at {entry.at}.",
    )
    if not isinstance(entry.prompt, str):
        _check(len(entry.prompt) > 0, f"{where}: the prompt has no pieces.")
        for piece in entry.prompt:
            if isinstance(piece, str):
                _check(piece in pieces, f"{where}: there is no piece {piece!r}.")
            else:
                _check_piece(piece, where)
    if entry.draft is not None:
        length, right = entry.draft.length, entry.draft.right
        _check(
            length >= 1 and 0 <= right <= length,
            f"{where}: a draft of length {length} of which {right} are right is impossible; "
            "length must be at least 1, and right between 0 and length.",
        )
    try:
        _params(entry, 0)
    except InvalidOptionError as error:
        raise WorkloadError(f"{where}: {error}") from error


# ---------------------------------------------------------------- making it concrete


def jobs(workload: Workload, *, vocab_size: int, encode: Encode, seed: int = 0) -> tuple[Job, ...]:
    """The requests of a workload for one model, in the order of the file.

    Args:
        workload: what there is to do.
        vocab_size: random tokens are below it.
        encode: the model's tokenizer.
        seed: chooses the random tokens, and the sampling seeds that the file leaves open.

    Raises:
        WorkloadError: for a text that has fewer tokens than its `length` asks for.
    """
    result = []
    for entry in workload.entries:
        where = f"Workload {workload.name}, request {entry.id!r}"
        own = _own_seed(entry)
        job = Job(
            id=entry.id,
            prompt=_prompt(entry, workload.pieces, vocab_size, encode, seed, where),
            params=_params(entry, _hash(f"sampling:{seed}:{entry.id}") if own is None else own),
            at=entry.at,
            domain=entry.domain,
            cancel_at=entry.cancel_at,
            draft=entry.draft,
        )
        result.append(job)
    return tuple(result)


def _own_seed(entry: Entry) -> int | None:
    """The seed that the file fixes: greedy requests draw nothing, and have one seed so that equal ones are equal."""
    if entry.sampling is None or (entry.sampling.temperature == 0 and entry.sampling.seed is None):
        return 0
    return entry.sampling.seed


def _params(entry: Entry, seed: int) -> SamplingParams:
    sampling = entry.sampling or Sampling(temperature=0.0)
    return SamplingParams(
        max_tokens=entry.max_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=seed if sampling.seed is None else sampling.seed,
        stop_token_ids=entry.stop_token_ids,
        ignore_eos=entry.ignore_eos,
        logprobs=entry.logprobs,
        prompt_logprobs=entry.prompt_logprobs,
        prompt_logprobs_start=entry.prompt_logprobs_start,
    )


def _prompt(
    entry: Entry, pieces: Mapping[str, Piece], vocab_size: int, encode: Encode, seed: int, where: str
) -> tuple[int, ...]:
    if isinstance(entry.prompt, str):
        return tuple(encode(entry.prompt, True))
    tokens: list[int] = []
    for number, item in enumerate(entry.prompt):
        piece = pieces[item] if isinstance(item, str) else item
        if piece.text is not None:
            found = encode(piece.text, number == 0)
            wanted = len(found) if piece.length is None else piece.length
            _check(
                wanted <= len(found),
                f"{where}: a text of {len(found)} tokens cannot give {wanted}: give more text, or a smaller length.",
            )
            tokens += found[:wanted]
        elif piece.tokens is not None:
            tokens += piece.tokens
        else:
            assert piece.random is not None
            tokens += [_hash(f"prompt:{seed}:{piece.seed}:{i}") % vocab_size for i in range(piece.random)]
    return tuple(tokens)


def _hash(text: str) -> int:
    """64 bits that depend on the text alone."""
    return int.from_bytes(hashlib.sha256(f"vosti.workload.1:{text}".encode()).digest()[:8], "big")
