"""`LLM` on the two bundled checkpoints: text in, text out, the same whatever else is served."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from vosti.impl.bundled import BUNDLED, find_checkpoint
from vosti.impl.errors import CapacityError, CheckpointError, InvalidOptionError
from vosti.impl.llm import LLM
from vosti.impl.options import SamplingParams
from vosti.impl.tokenizer import TextStream, Tokenizer

PROMPT = "import os\n\ndef read_file(path):\n"

CONTINUED = {"tiny-gemma3": "\ndef _read_file(path):\n", "tiny-llama3": "\ndef read_file(path):\n"}
"""How each checkpoint goes on after `PROMPT`, greedily."""

GREEDY = SamplingParams(max_tokens=16, temperature=0.0)
SEEDED = SamplingParams(max_tokens=12, temperature=0.9, top_p=0.95, seed=5)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def served(name: str) -> LLM:
    """One LLM for all tests of a checkpoint: they must not disturb each other."""
    return LLM(name, pages=64)


@pytest.fixture(params=BUNDLED)
def llm(request: pytest.FixtureRequest) -> LLM:
    """An LLM on each checkpoint."""
    return served(request.param)


@pytest.fixture
def llama() -> LLM:
    """An LLM on the smaller checkpoint."""
    return served("tiny-llama3")


@pytest.mark.parametrize("name", BUNDLED)
def test_greedy_text(name: str) -> None:
    """A prompt is continued as the trained model continues it, and everything about it is told."""
    (completion,) = served(name).generate(PROMPT, GREEDY)

    assert CONTINUED[name] == completion.text[: len(CONTINUED[name])]
    assert PROMPT == completion.prompt
    assert 0 == completion.prompt_token_ids[0]  # the tokenizer's post-processor puts a begin-of-text token first
    assert (16, "length", ()) == (len(completion.token_ids), completion.finish_reason, completion.logprobs)
    assert 64 == len(completion.fingerprint)


def test_text_and_its_tokens_are_one_prompt(llm: LLM) -> None:
    """Token ids are taken as they are: those of the text, framed as the tokenizer frames it, give the same."""
    of_text, of_tokens = llm.generate([PROMPT, llm.encode(PROMPT)], GREEDY)

    assert of_text.token_ids == of_tokens.token_ids
    assert (PROMPT, None) == (of_text.prompt, of_tokens.prompt)


def test_company_and_cache_change_nothing(llm: LLM) -> None:
    """A seeded completion is the same alone, in company, and with its prompt in the prefix cache."""
    (alone,) = llm.generate(PROMPT, SEEDED)
    *_, crowded = llm.generate(["def f(", "class A:\n", PROMPT, PROMPT], [GREEDY, SEEDED, GREEDY, SEEDED])
    (cached,) = llm.generate(PROMPT, SEEDED)

    assert alone.token_ids == crowded.token_ids == cached.token_ids


def test_hits_are_told(llama: LLM) -> None:
    """The second time, whole pages of the prompt come from the prefix cache, and the text is the same."""
    prompt = "# hits\n" + PROMPT * 3
    first, second = (llama.generate(prompt, GREEDY)[0] for _ in range(2))

    assert 0 == first.hit_tokens
    assert (len(second.prompt_token_ids) - 1) // 16 * 16 == second.hit_tokens > 0
    assert first.text == second.text


def test_a_drawn_seed_is_told_and_repeats(llama: LLM) -> None:
    """Without a seed one is drawn; given as a seed, it gives the same text."""
    params = SamplingParams(max_tokens=12, temperature=1.0)
    one, two = llama.generate([PROMPT, PROMPT], params)
    (again,) = llama.generate(PROMPT, SamplingParams(max_tokens=12, temperature=1.0, seed=one.seed))

    assert one.seed != two.seed
    assert (one.seed, one.token_ids) == (again.seed, again.token_ids)


def test_logprobs(llama: LLM) -> None:
    """One entry for each token: of greedy decoding, the most likely token is the one that was emitted."""
    (completion,) = llama.generate(PROMPT, SamplingParams(max_tokens=4, temperature=0.0, logprobs=3))

    assert completion.token_ids == tuple(entry.token for entry in completion.logprobs)
    assert completion.token_ids == tuple(entry.top[0][0] for entry in completion.logprobs)
    assert [3, 3, 3, 3] == [len(entry.top) for entry in completion.logprobs]
    assert all(entry.logprob == entry.top[0][1] <= 0 for entry in completion.logprobs)


def test_the_token_that_stops_is_no_text(llama: LLM) -> None:
    """A stop token is among the tokens and not in the text."""
    (whole,) = llama.generate(PROMPT, GREEDY)
    stop = whole.token_ids[5]
    (cut,) = llama.generate(PROMPT, SamplingParams(max_tokens=16, temperature=0.0, stop_token_ids=(stop,)))
    end = whole.token_ids.index(stop) + 1

    assert ("stop", whole.token_ids[:end]) == (cut.finish_reason, cut.token_ids)
    assert llama.tokenizer.decode(whole.token_ids[: end - 1]) == cut.text


def test_streamed_text_is_the_text(llm: LLM) -> None:
    """The pieces of a stream are the text of the completion."""
    pieces = list(llm.stream(PROMPT, SEEDED))
    (completion,) = llm.generate(PROMPT, SEEDED)

    assert completion.text == "".join(pieces)
    assert len(pieces) > 3


def test_streams_may_be_interleaved_and_dropped(llama: LLM) -> None:
    """Streams take each other nothing; one that is closed is called off, and the others go on."""
    (expected,) = llama.generate(PROMPT, GREEDY)
    one, two, three = (llama.stream(PROMPT, GREEDY) for _ in range(3))
    heard = [next(one), next(two), next(three), next(two)]
    one.close()  # type: ignore[attr-defined]
    rest = heard[1] + heard[3] + "".join(two)
    (meanwhile,) = llama.generate(PROMPT, GREEDY)

    assert expected.text == rest == meanwhile.text == heard[2] + "".join(three)
    assert not llama.engine.unfinished


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ("", None),
        ([[]], "is empty"),
        ([[5, 4096]], "holds token 4096: token ids go from 0 to 4095"),
        ([3], "A prompt is a text or token ids, not 3."),
        ([["a"]], r"A prompt is a text or token ids, not \['a'\]."),
        (["a\ud800"], "is not valid Unicode"),
    ],
)
def test_bad_prompts_are_refused_whole(llama: LLM, prompts: object, message: str | None) -> None:
    """A bad prompt is named, and those beside it are not generated either; an empty text is its begin-of-text token."""
    steps = llama.engine.steps
    if message is None:
        assert [(0,)] == [completion.prompt_token_ids for completion in llama.generate(prompts, GREEDY)]  # type: ignore[arg-type]
        return

    with pytest.raises(InvalidOptionError, match=message):
        llama.generate([PROMPT, *prompts], GREEDY)  # type: ignore[misc]

    assert steps == llama.engine.steps
    assert [] == llama.generate([], GREEDY)


def test_a_prompt_that_can_never_fit_is_refused(llama: LLM) -> None:
    """A prompt beyond pool or model is an error that says so, and nothing is left behind."""
    with pytest.raises(CapacityError, match="may need 65 pages of 16 slots, and the pool has 64"):
        llama.generate([PROMPT, [0] * 1025], GREEDY)
    with pytest.raises(CapacityError, match="the model takes 4096"):
        llama.generate([[0] * 4096], GREEDY)

    assert 1 == len(llama.generate(PROMPT, GREEDY))
    assert not llama.engine.unfinished


def test_as_many_parameters_as_prompts(llama: LLM) -> None:
    """Parameters are for all prompts, or one for each."""
    with pytest.raises(InvalidOptionError, match="There are 2 prompts and 1 sampling parameters"):
        llama.generate([PROMPT, PROMPT], [GREEDY])


def test_numpy_token_ids_are_token_ids(llama: LLM) -> None:
    """Anything that counts as an integer is taken as a token id."""
    one, two = llama.generate([np.array([0, 5, 6]), (0, 5, 6)], GREEDY)  # type: ignore[list-item]

    assert one.token_ids == two.token_ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "tpu"}, "There is no backend 'tpu': the backends are auto, cpu, cuda."),
        ({"pagesize": 4}, "There is no engine option 'pagesize'"),
        ({"pages": 0}, "pages is 0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    """An option that does not exist, or is out of its range, is an error before anything is loaded."""
    with pytest.raises(InvalidOptionError, match=message):
        LLM("tiny-llama3", **options)  # type: ignore[arg-type]


def test_a_missing_folder_is_refused() -> None:
    """A folder that is not there is an error that names it."""
    with pytest.raises(CheckpointError, match="no-such-folder"):
        LLM("no-such-folder")


def test_a_folder_goes_before_a_bundled_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a bundled checkpoint is that, unless a folder here has it."""
    monkeypatch.chdir(tmp_path)

    assert (find_checkpoint("tiny-llama3") / "config.json").is_file()
    (tmp_path / "tiny-llama3").mkdir()
    assert Path("tiny-llama3") == find_checkpoint("tiny-llama3")


@pytest.mark.parametrize("text", ["a — 😀 日本 naïve\n", "", "   ", "\u0000\ufffd x \ufffd"])
def test_streamed_characters_are_whole(text: str) -> None:
    """However the tokens come, no piece ends in half a character, and together they are the text."""
    tokenizer = Tokenizer(find_checkpoint("tiny-llama3"))
    tokens = tokenizer.encode(text, special=False)
    stream = TextStream(tokenizer)
    pieces = [stream.add([token]) for token in tokens]

    assert text == "".join([*pieces, stream.rest()])
    assert not any(piece.endswith("\ufffd") for piece in pieces)


def test_half_a_character_comes_out_at_the_end() -> None:
    """Bytes that never become a character are shown as such when the stream ends."""
    tokenizer = Tokenizer(find_checkpoint("tiny-llama3"))
    tokens = tokenizer.encode("x😀", special=False)[:-1]
    stream = TextStream(tokenizer)

    assert ["x", ""] == [stream.add(tokens[:1]), stream.add(tokens[1:])]
    assert "\ufffd" in stream.rest()
