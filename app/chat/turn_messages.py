"""Turns a conversation's turns into the messages that the model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from app.chat.turn_details import is_unread
from app.generation.assistant import assistant_message, user_message
from app.records.branches import Turn
from py_core.routing.agents import Agent
from py_core.tokenizers.chat_template import Message

LEAST_REPEATED = 40
"""The fewest characters of an answer that counts as a repeat if it was said before: "Yes." may be right twice."""


def messages_of(turns: Sequence[Turn], agents: Mapping[str, Agent]) -> list[Message]:
    """Return each message with the instruction of the agent that answered it. Some answers are left out, with their
    messages: answers in which the model had no part, and answers that loop or repeat an earlier answer. Read again,
    they would make the model loop again."""
    messages = list[Message]()
    said, left_out = set[str](), set[int]()
    for place, turn in enumerate(turns):
        if turn.role == "assistant":
            words = " ".join(turn.content.split())
            if is_unread(turn) or turn.details.get("reason") == "loop" or words in said:
                left_out |= {place - 1, place}
            elif len(words) >= LEAST_REPEATED:
                said.add(words)
    for place, turn in enumerate(turns):
        answer = turns[place + 1] if place + 1 < len(turns) else None
        if place in left_out:
            continue
        if turn.role == "user":
            messages.append(user_message(turn.content, agent_of(answer, agents)))
        else:
            messages += _answer_messages(turn, messages)
    return messages


def _answer_messages(turn: Turn, before: Sequence[Message]) -> list[Message]:
    """An answer, with what it has called."""
    if turn.details.get("calls"):
        from app.generation.called_messages import count_calls, made_calls, said_messages  # late: few answers have any

        with suppress(KeyError, TypeError, AttributeError, ValueError):  # a damaged file was imported
            return said_messages(turn.content, made_calls(turn.details["calls"]), 1 + count_calls(before))
    return [assistant_message(turn.content)]


def agent_of(answer: Turn | None, agents: Mapping[str, Agent]) -> Agent | None:
    """Return the agent that gave an answer, as it is now; None if that is not known."""
    agent = answer.details.get("agent") if answer else None
    return agents.get(agent) if isinstance(agent, str) else None
