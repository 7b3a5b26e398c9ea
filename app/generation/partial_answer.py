"""An answer that did not come to its end: what the model had said of it, so that it can continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.generation.prompt_window import PromptWindow
from py_core.backend_errors import ContextFullError
from py_core.engine.engine import shared_length
from py_core.loading import Model
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.base import THINKING_TAGS
from py_core.tokenizers.chat_template import Message
from py_core.tokenizers.thinking import opens_thought

_OPEN, _CLOSE = THINKING_TAGS


@dataclass(frozen=True)
class PartialAnswer:
    """A prompt's tokens, followed by an answer, from `start` on. forgotten: messages that the prompt leaves out.

    sequence: holds the tokens, which are of `messages`, `answer` and `thought`. text: the answer as it was shown, its
    thought included, if the tokens do not tell it.
    """

    tokens: tuple[int, ...]
    start: int
    forgotten: int
    sequence: TokenSequence | None = None
    messages: Sequence[Message] = ()
    answer: str = ""
    thought: str = ""
    text: str | None = None

    def is_of(self, messages: Sequence[Message], answer: str, thought: str) -> bool:
        """True if this is the answer, and the sequence still holds it."""
        said = (self.answer.strip(), self.thought.strip()) == (answer.strip(), thought.strip())
        held = self.sequence is not None and tuple(self.sequence.tokens) == self.tokens
        return said and held and list(messages) == list(self.messages)


async def begun_again(
    model: Model, window: PromptWindow, messages: Sequence[Message], first: int, opening: str, answer: str, thought: str
) -> PartialAnswer:
    """Return an answer whose tokens are gone, made again from its text. messages, first, opening: as in
    PromptWindow.fit. Raises ContextFullError."""
    plain, forgotten = await window.fit(messages, first, opening)
    parts = _begun(answer, thought, opens_thought(model.tokenizer, plain), bool(thought and not answer))
    try:
        prompt, forgotten = await window.fit(messages, forgotten, opening, parts)
    except ContextFullError:
        raise ContextFullError(
            "chat.no-room",
            "There is no room to continue this answer: it is as long as the model can read. Ask for the rest of it.",
        ) from None
    plain, _ = await window.fit(messages, forgotten, opening)
    said = "".join(part for part, _ in parts)
    return PartialAnswer(tuple(prompt), shared_length(plain, prompt), forgotten, text=said)


def _begun(answer: str, thought: str, opens: bool, is_thinking: bool) -> list[tuple[str, bool]]:
    """Return the beginning of an answer as the model would have said it: (text, True if special tokens are found in
    it).

    opens: the template opens the thought itself. is_thinking: the thought had not come to its end.
    """
    parts = [] if opens or not (thought or is_thinking) else [(f"{_OPEN}\n", True)]
    if thought:
        parts.append((thought, False))
    if (thought or opens) and not is_thinking:
        parts.append((f"\n{_CLOSE}\n\n", True))
    return [*parts, (answer, False)] if answer else parts
