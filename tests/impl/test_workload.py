"""Workloads: the format, its errors, and what becomes of it for a model."""

import json
from typing import Any

import pytest

from vosti.impl import workload as workloads
from vosti.impl.errors import WorkloadError
from vosti.impl.options import SamplingParams
from vosti.impl.workload import FORMAT, Job, Workload

BUILTIN = {"default": 93, "long": 511, "short": 45}
"""Built-in workloads, and the slots that the longest request of each needs, as docs/workloads.md says."""


def encode(text: str, special: bool) -> list[int]:
    """One token for each character, after a 0 if special."""
    return [0] * special + [ord(character) % 90 for character in text]


def written(*requests: dict[str, Any], **fields: Any) -> str:
    """A workload file."""
    return json.dumps({"format": FORMAT, "requests": requests, **fields})


def made(*requests: dict[str, Any], seed: int = 0, **fields: Any) -> tuple[Job, ...]:
    """The jobs of a workload."""
    workload = workloads.parse(written(*requests, **fields), "w")
    return workloads.jobs(workload, vocab_size=90, encode=encode, seed=seed)


def entry(**fields: Any) -> dict[str, Any]:
    """A request that is in order, but for some fields."""
    return {"id": "a", "prompt": "xyz", "max_tokens": 4, **fields}


def test_a_request_is_greedy_and_arrives_first_unless_it_says_otherwise() -> None:
    """What a file leaves out has the documented default."""
    (job,) = made(entry())

    assert (0, "", None, None) == (job.at, job.domain, job.cancel_at, job.draft)
    assert SamplingParams(max_tokens=4, temperature=0.0, seed=job.params.seed) == job.params
    assert job.params.seed is not None


def test_every_field_reaches_the_job() -> None:
    """What a file says is what is run."""
    (job,) = made(
        entry(
            at=3,
            sampling={"temperature": 0.5, "top_k": 4, "top_p": 0.5, "min_p": 0.25, "seed": 9},
            stop_token_ids=[1, 2],
            ignore_eos=True,
            logprobs=2,
            domain="blue",
            cancel_at=3,
            draft={"length": 3, "right": 0},
        )
    )

    assert (3, "blue", 3) == (job.at, job.domain, job.cancel_at)
    assert workloads.Draft(length=3, right=0) == job.draft
    assert (
        SamplingParams(
            max_tokens=4,
            temperature=0.5,
            top_k=4,
            top_p=0.5,
            min_p=0.25,
            seed=9,
            stop_token_ids=(1, 2),
            ignore_eos=True,
            logprobs=2,
        )
        == job.params
    )


def test_pieces_are_put_together() -> None:
    """A prompt is its pieces in order; only a text at its beginning gets the tokenizer's special tokens."""
    text, tokens = {"text": "abcdef", "length": 3}, {"tokens": [7, 8]}
    jobs = made(
        entry(prompt=["named", tokens, text]),
        entry(id="b", prompt=[tokens, "named"]),
        entry(id="c", prompt="abc"),
        pieces={"named": text},
    )

    first, second, third = (job.prompt for job in jobs)
    assert (0, *encode("ab", False), 7, 8, *encode("abc", False)) == first
    assert (7, 8, *encode("abc", False)) == second
    assert (0, *encode("abc", False)) == third


def test_random_pieces_of_one_seed_begin_alike() -> None:
    """A random piece depends on its seed and the run's; a longer one begins with a shorter one."""
    requests = (
        entry(prompt=[{"random": 30, "seed": 1}]),
        entry(id="b", prompt=[{"random": 40, "seed": 1}]),
        entry(id="c", prompt=[{"random": 30, "seed": 2}]),
    )
    short, long, other = (job.prompt for job in made(*requests))

    assert short == long[:30]
    assert short != other
    assert short == made(*requests)[0].prompt
    assert short != made(*requests, seed=1)[0].prompt
    assert all(0 <= token < 90 for token in long)


def test_random_pieces_are_the_same_on_every_machine() -> None:
    """The tokens are those of SHA-256, not of a library's generator."""
    (job,) = made(entry(prompt=[{"random": 4, "seed": 1}]))

    assert (23, 32, 35, 83) == job.prompt


def test_seeds_that_are_left_open_depend_on_run_and_request() -> None:
    """Each request gets a seed of its own, another one for each run seed; a given one stands, a greedy one is 0."""
    requests = (
        entry(sampling={}),
        entry(id="b", sampling={}),
        entry(id="c", sampling={"seed": 5}),
        entry(id="d"),
        entry(id="e", sampling={"temperature": 0}),
    )
    zero = [job.params.seed for job in made(*requests)]
    one = [job.params.seed for job in made(*requests, seed=1)]

    assert [5, 0, 0] == zero[2:] == one[2:]
    assert 4 == len({*zero[:2], *one[:2]})


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_workloads_need_the_slots_that_are_documented(name: str) -> None:
    """The longest request of a built-in workload fits into what docs/workloads.md says, also with other seeds."""
    jobs = workloads.jobs(
        workloads.load(name), vocab_size=4096, encode=lambda text, special: encode(text, special) * 2, seed=3
    )

    assert BUILTIN[name] == max(len(job.prompt) + job.params.max_tokens - 1 for job in jobs)


def test_every_shipped_workload_is_known() -> None:
    """The built-in names are the files of the folder."""
    assert sorted(BUILTIN) == workloads.builtin_names()


def test_a_path_is_a_workload(tmp_path: Any) -> None:
    """A name that is not built in is the path of a file."""
    path = tmp_path / "mine.json"
    path.write_text(written(entry(), about="mine"))

    workload = workloads.load(str(path))

    assert isinstance(workload, Workload)
    assert ("mine", ["a"]) == (workload.about, [entry.id for entry in workload.entries])


NESTED = "[" * 100_000

ERRORS = {
    "no JSON": ("{", "Workload w is not valid JSON: Expecting property name"),
    "too deep": (NESTED, "Workload w is not valid JSON"),
    "not a number": ('{"format": NaN}', "Workload w is not valid JSON: NaN is no number."),
    "a key twice": ('{"format": "a", "format": "b"}', "the key 'format' stands twice"),
    "half a character": (written(entry(id="\ud800")), "Workload w holds half of a surrogate pair, which is no text."),
    "no object": ("[]", "Workload w: Expected `object`, got `array`."),
    "no format": ('{"requests": []}', "Workload w: Object missing required field `format`."),
    "another format": ('{"format": "x", "requests": [{}]}', "format is 'x'; it must be 'vosti-workload-1'."),
    "no requests": (written(), "Workload w has no requests."),
    "another field": (written(entry(), extra=1), "Workload w: Object contains unknown field `extra`."),
    "no id": (written({"prompt": "x"}), "request 1 (without an id): Object missing required field `id`."),
    "empty id": (written(entry(id="")), "request 1 (''): the id is empty."),
    "no object as request": (written(entry(), 3), "request 2 (without an id): Expected `object`, got `int`."),  # type: ignore[arg-type]
    "an id twice": (written(entry(), entry()), "request 2 ('a'): an earlier request has this id, too."),
    "a field's name": (written(entry(top_k=3)), "request 1 ('a'): Object contains unknown field `top_k`."),
    "a field's type": (written(entry(at="3")), "request 1 ('a'): Expected `int`, got `str` - at `$.at`."),
    "a truth for a number": (written(entry(at=True)), "request 1 ('a'): Expected `int`, got `bool` - at `$.at`."),
    "at": (written(entry(at=-1)), "request 1 ('a'): at is -1; it must be at least 0."),
    "max_tokens": (written(entry(max_tokens=0)), "request 1 ('a'): max_tokens is 0: it must be"),
    "temperature": (written(entry(sampling={"temperature": -1})), "request 1 ('a'): temperature is -1.0"),
    "infinite": (written(entry()).replace('"max_tokens": 4', '"max_tokens": 4, "sampling": {"top_p": 1e999}'), "top_p"),
    "cancel_at": (written(entry(at=5, cancel_at=4)), "('a'): cancel_at is 4, before the request arrives at 5."),
    "draft": (written(entry(draft={"length": 2, "right": 3})), "('a'): a draft of length 2 of which 3 are right"),
    "empty draft": (written(entry(draft={"length": 0, "right": 0})), "('a'): a draft of length 0 of which 0 are right"),
    "no pieces": (written(entry(prompt=[])), "request 1 ('a'): the prompt has no pieces."),
    "unknown piece": (written(entry(prompt=["x"])), "request 1 ('a'): there is no piece 'x'."),
    "two in one piece": (
        written(entry(prompt=[{"text": "x", "tokens": [1]}])),
        "('a'): a piece has exactly one of text, tokens and random, not text and tokens.",
    ),
    "empty piece": (written(entry(prompt=[{}])), "a piece has exactly one of text, tokens and random, not none of"),
    "random without seed": (written(entry(prompt=[{"random": 3}])), "('a'): random and seed go together."),
    "seed without random": (written(entry(prompt=[{"text": "x", "seed": 3}])), "('a'): random and seed go together."),
    "no random tokens": (written(entry(prompt=[{"random": 0, "seed": 1}])), "('a'): random is 0; it must be between"),
    "too many": (written(entry(prompt=[{"random": 2**30, "seed": 1}])), "random is 1073741824; it must be between"),
    "length of tokens": (written(entry(prompt=[{"tokens": [1], "length": 1}])), "('a'): length belongs to text."),
    "named piece": (written(entry(), pieces={"p": {"random": 1}}), "Workload w, piece 'p': random and seed go"),
    "named piece's type": (written(entry(), pieces={"p": 1}), "Workload w, piece 'p': Expected `object`, got `int`."),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_malformed_workload_is_refused(case: str) -> None:
    """Each error is one sentence that names the entry and what is wrong with it."""
    text, message = ERRORS[case]

    with pytest.raises(WorkloadError) as caught:
        workloads.parse(text, "w")

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_that_is_too_short_is_refused() -> None:
    """A length that a text does not have is an error, not a shorter prompt."""
    with pytest.raises(WorkloadError, match=r"request 'a': a text of 4 tokens cannot give 9"):
        made(entry(prompt=[{"text": "abc", "length": 9}]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "There is no workload 'nothing': No such file or directory (the built-in ones are default, long,"),
        ("a\0b", "There is no workload 'a\\x00b': embedded null byte"),
    ],
)
def test_a_missing_workload_is_refused(name: str, message: str) -> None:
    """The error says which ones there are."""
    with pytest.raises(WorkloadError) as caught:
        workloads.load(name)

    assert message in str(caught.value)


def test_a_workload_that_is_no_text_is_refused(tmp_path: Any) -> None:
    """Bytes that are not UTF-8 are an error."""
    path = tmp_path / "w"
    path.write_bytes(b"\xff")

    with pytest.raises(WorkloadError, match="is not UTF-8 text"):
        workloads.load(str(path))
