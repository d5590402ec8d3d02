"""The engine in the shape that people know: `LLM(path).generate(prompts, params)`.

from vosti.impl.llm import LLM
from vosti.impl.options import SamplingParams

llm = LLM("tiny-gemma3", pages=128)
for completion in llm.generate(["import os\\n", "def read("], SamplingParams(temperature=0.0, max_tokens=32)):
    print(completion.text)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path

from vosti.impl.engine import Engine
from vosti.impl.errors import InvalidOptionError
from vosti.impl.opening import AUTO, open_backend, open_tokenizer
from vosti.impl.options import PROVE_MISSING, Certification, EngineOptions, SamplingParams
from vosti.impl.outputs import RequestOutput
from vosti.impl.sampling import Logprobs
from vosti.impl.tokenizer import TextStream

Prompt = str | Sequence[int]
"""Text, or token ids that are taken as they are."""


@dataclass(frozen=True)
class Completion:
    """What became of one prompt."""

    prompt: str | None
    """The prompt's text; None if token ids were given."""

    prompt_token_ids: tuple[int, ...]
    text: str
    """The text of `token_ids`, without special tokens and without the token that stopped it."""

    token_ids: tuple[int, ...]
    """The tokens that were emitted, the one that stopped it included."""

    finish_reason: str
    """"stop", "length", or "error" if some value of its history was not finite."""

    logprobs: tuple[Logprobs, ...]
    """One for each token, if they were asked for."""

    prompt_logprobs: tuple[Logprobs | None, ...]
    """One for each token of the prompt, if they were asked for; see `RequestOutput`."""

    hit_tokens: int
    """How many tokens of the prompt were found in the prefix cache."""

    seed: int
    """The sampler's seed: the one that was given, or the one that was drawn."""

    fingerprint: str
    """The configuration W: equal prompts, parameters and seeds give equal completions where it is equal."""


class LLM:
    """A model, its tokenizer and one engine, which keeps its prefix cache from call to call."""

    def __init__(
        self,
        path: str | Path,
        *,
        backend: str = AUTO,
        dummy_weights: int | None = None,
        unsafe_unprobed: bool = False,
        certification: Certification = PROVE_MISSING,
        **engine_options: object,
    ) -> None:
        """Load a model.

        Args:
            path: a folder with config.json, tokenizer.json and safetensors, or the name of a bundled checkpoint.
            backend: one of `vosti.impl.opening.BACKENDS`.
            dummy_weights: a seed for weights that are made up; then the path may be a shape's name or config.json.
            unsafe_unprobed: whether a GPU is used on which the kernels were never checked.
            certification: which certificates are asked for of the kernels that a GPU runs.
            engine_options: the fields of `EngineOptions`.

        Raises:
            InvalidOptionError: for an option that does not exist or is out of its range.
            NoDeviceError: for a backend that needs what is not here.
            UncertifiedKernelError: for a kernel that has no certificate, and gets none.
            CheckpointError: for a folder that cannot be served; `UnsupportedModelError` for an architecture.
        """
        options = EngineOptions.from_keywords(**engine_options)
        self.tokenizer = open_tokenizer(path)
        opened = open_backend(
            path,
            backend,
            dummy_weights=dummy_weights,
            unsafe_unprobed=unsafe_unprobed,
            certification=replace(certification, page_sizes=(*certification.page_sizes, options.page_size)),
        )
        self.engine = Engine(opened, options)
        self._inbox: dict[str, list[RequestOutput]] = {}

    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Complete all prompts, together, and return one completion for each, in order.

        Args:
            prompts: a text, or several; or several lists of token ids.
            params: for all of them, or one for each.

        Raises:
            InvalidOptionError: for a prompt that is empty, or neither text nor token ids of the vocabulary, and if
                there are not as many parameters as prompts. Then nothing is generated.
            CapacityError: for a prompt that can never fit. Then nothing is generated.
        """
        all_prompts: list[Prompt] = [prompts] if isinstance(prompts, str) else list(prompts)
        ids = self._add(all_prompts, _for_each(params, len(all_prompts)))
        last = {output.request_id: output for output in self._outputs(ids)}
        return [self._completion(prompt, last[name]) for prompt, name in zip(all_prompts, ids, strict=True)]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[str]:
        """Complete one prompt and yield its text as it comes. An iterator that is closed calls its request off.

        Raises what `generate` raises, when the first piece is asked for.
        """
        text = TextStream(self.tokenizer)
        for output in self._outputs(self._add([prompt], [params or SamplingParams()])):
            piece = text.add(_spoken(output.new_token_ids, output.finish_reason))
            yield piece + (text.rest() if output.finish_reason else "")

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """A prompt's tokens: those of a text as the tokenizer frames it, token ids as they are.

        Raises `InvalidOptionError` for anything else.
        """
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        try:
            return tuple(index(token) for token in prompt)
        except TypeError as error:
            raise InvalidOptionError(f"A prompt is a text or token ids, not {prompt!r:.60}.") from error

    def _add(self, prompts: Sequence[Prompt], params: Sequence[SamplingParams]) -> list[str]:
        """Add all requests, or none."""
        tokens = [self.encode(prompt) for prompt in prompts]
        names: list[str] = []
        try:
            for ids, param in zip(tokens, params, strict=True):
                names.append(self.engine.add_request(ids, param))
        except Exception:
            for name in names:
                self.engine.cancel(name)
            raise
        self._inbox.update((name, []) for name in names)
        return names

    def _outputs(self, names: Sequence[str]) -> Iterator[RequestOutput]:
        """The outputs of some requests until all have ended. Outputs of others that come meanwhile wait for them."""
        try:
            while any(name in self._inbox for name in names):
                for output in self.engine.step():
                    if output.request_id in self._inbox:
                        self._inbox[output.request_id].append(output)
                for name in names:
                    for output in self._inbox.get(name, []):
                        if output.finish_reason is not None:
                            del self._inbox[name]
                        yield output
                    if name in self._inbox:
                        self._inbox[name] = []
        finally:
            for name in names:
                if self._inbox.pop(name, None) is not None:
                    self.engine.cancel(name)

    def _completion(self, prompt: Prompt, output: RequestOutput) -> Completion:
        assert output.finish_reason is not None
        return Completion(
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=output.prompt_token_ids,
            text=self.tokenizer.decode(_spoken(output.token_ids, output.finish_reason)),
            token_ids=output.token_ids,
            finish_reason=output.finish_reason,
            logprobs=output.logprobs,
            prompt_logprobs=output.prompt_logprobs,
            hit_tokens=output.hit_tokens,
            seed=output.seed,
            fingerprint=output.fingerprint,
        )


def _spoken(tokens: tuple[int, ...], finish_reason: str | None) -> tuple[int, ...]:
    """The tokens that are text: the one that stopped the request is not."""
    return tokens[:-1] if finish_reason == "stop" else tokens


def _for_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise InvalidOptionError(f"There are {count} prompts and {len(params)} sampling parameters: give one for each.")
    return list(params)
