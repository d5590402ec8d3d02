"""From text to tokens and back: as a checkpoint's tokenizer.json says, or byte by byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from vosti.impl.errors import InvalidOptionError
from vosti.impl.models.model import load_tokenizer

INCOMPLETE = "\ufffd"
"""What a decoder writes for bytes that are not, or not yet, a character."""


class TextTokenizer(Protocol):
    """From text to tokens and back."""

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text, framed by special ones if asked. Raises `InvalidOptionError` for invalid Unicode."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones."""


class ByteTokenizer:
    """A token for each byte of a text: for models that come without a tokenizer. Other tokens are no text."""

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """The bytes of the text, in UTF-8; there are no special tokens."""
        try:
            return tuple(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidOptionError(f"The text {text[:40]!r} is not valid Unicode.") from error

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens that are bytes."""
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


class Tokenizer:
    """The tokenizer of a checkpoint."""

    def __init__(self, folder: str | Path) -> None:
        """Read the tokenizer.json of a checkpoint's folder. Raises `CheckpointError` if it is missing or malformed."""
        self._tokenizer = load_tokenizer(Path(folder))
        # A prompt is taken whole or refused, and never filled up: that is the engine's business.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text; with `special`, framed as the tokenizer's post-processor says (such as a first token).

        Raises `InvalidOptionError` for text that is not Unicode (half of a surrogate pair).
        """
        try:
            return tuple(self._tokenizer.encode(text, add_special_tokens=special).ids)
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidOptionError(f"The text {text[:40]!r} is not valid Unicode.") from error

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)


class TextStream:
    """The text of a growing sequence of tokens, piece by piece: together the pieces are `decode` of all tokens.

    A token may be less than a character, and its text may depend on the one before it (a space that a decoder drops
    at the start). A piece therefore comes out once it ends on a character, and is decoded with the piece before it.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """Nothing yet."""
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._context = 0
        self._done = 0

    def add(self, tokens: Iterable[int]) -> str:
        """Take tokens; return the text that is complete now."""
        self._tokens += tokens
        piece = self._pending()
        if piece.endswith(INCOMPLETE):
            return ""
        self._context, self._done = self._done, len(self._tokens)
        return piece

    def rest(self) -> str:
        """The text of what is left at the end, be it complete or not."""
        piece = self._pending()
        self._context, self._done = self._done, len(self._tokens)
        return piece

    def _pending(self) -> str:
        before = self._tokenizer.decode(self._tokens[self._context : self._done])
        return self._tokenizer.decode(self._tokens[self._context :])[len(before) :]
