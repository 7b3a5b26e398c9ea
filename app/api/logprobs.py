"""The probabilities of an answer's tokens, in OpenAI's two forms.

They come with the text that their tokens make. A character of several tokens brings all of them. A token that is shown
in part, before a text that ends the answer, is there whole; what lies behind is not, nor are thoughts. Calls of tools
are: they have no text, but the model has written them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from app.generation.answer_stream import AnswerStream, WrittenToken
from py_core.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class NamedToken:
    """A token as clients know it: its bytes, and their text. A token without whole characters is `bytes:` and its
    bytes."""

    data: bytes
    logprob: float

    @property
    def text(self) -> str:
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.data)

    def entry(self) -> dict[str, Any]:
        return {"token": self.text, "logprob": self.logprob, "bytes": list(self.data)}


@dataclass(frozen=True)
class ShownToken:
    """begin: its place in the answer's text."""

    token: NamedToken
    likeliest: Sequence[NamedToken]
    begin: int


class TokenLog:
    """Gives the tokens of one answer as they are shown."""

    def __init__(self, tokenizer: Tokenizer, answer: AnswerStream, continues: bool) -> None:
        """continues: the answer continues the prompt's text."""
        self._tokenizer, self._answer, self._continues = tokenizer, answer, continues
        self._next = 0

    def upto(self, shown: int, is_last: bool = False) -> list[ShownToken]:
        """Return the tokens that are new. shown: the number of characters as written that are shown, or thoughts.
        is_last: the answer is over, so that those of a part of a character, and one that is shown in part, come, too.
        """
        out, group = list[ShownToken](), list[tuple[int, WrittenToken]]()
        begins = self._answer.begins
        if begins is None:
            return out
        for number, one in enumerate(self._answer.tokens(self._next), self._next):
            group.append((number, one))
            if one.end == one.begin:
                continue
            if one.end > shown and not (is_last and one.begin < shown):
                return out
            if one.end > begins:
                out += self._named(group, begins)
            self._next, group = number + 1, []
        if is_last and shown >= self._answer.length:
            out += self._named(group, begins)
        return out

    def _named(self, group: Iterable[tuple[int, WrittenToken]], begins: int) -> Iterable[ShownToken]:
        for number, one in group:
            known, continues = one.probability, self._continues or number > 0

            def named(token: int, logprob: float, continues: bool = continues) -> NamedToken:
                return NamedToken(self._tokenizer.decode_bytes([token], continues=continues), logprob)

            is_hidden = not self._tokenizer.decode_bytes([known.token], skip_special=True, continues=continues)
            if one.end > one.begin or not is_hidden:
                likeliest = [named(*other) for other in known.likeliest]
                yield ShownToken(named(known.token, known.logprob), likeliest, max(one.begin - begins, 0))


def chat_logprobs(tokens: Iterable[ShownToken]) -> list[dict[str, Any]]:
    """Return the entries of a chat's `logprobs.content`."""
    return [one.token.entry() | {"top_logprobs": [other.entry() for other in one.likeliest]} for one in tokens]


def completion_logprobs(tokens: Sequence[ShownToken]) -> dict[str, Any]:
    """Return the `logprobs` of a completion. The token itself is always among the likeliest."""
    return {
        "tokens": [one.token.text for one in tokens],
        "token_logprobs": [one.token.logprob for one in tokens],
        "top_logprobs": [
            {other.text: other.logprob for other in (one.token, *reversed(one.likeliest))} for one in tokens
        ],
        "text_offset": [one.begin for one in tokens],
    }
