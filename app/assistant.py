"""One conversation turn from text to text: prompt, generate, record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Delta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True)
class Done:
    """The answer is complete.

    `reason` is "end" (the model stopped), "length" (max_tokens), "context" (no room left) or "stopped" (by the user).
    """

    reason: str
    prompt_tokens: int
    new_tokens: int
    prefill_tok_s: float
    decode_tok_s: float


Event = Delta | Done


class Assistant:
    """A conversation with one engine.

    `respond` streams the answer; `stop` ends the running answer after the token at hand (what was said stays in the
    conversation); `reset` starts a new conversation.
    """

    def respond(self, text: str) -> AsyncIterator[Event]:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        raise NotImplementedError
