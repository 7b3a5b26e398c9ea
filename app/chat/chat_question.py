"""The message to answer, and its place in the tree of the conversation: a new message, or an earlier one once more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.chat.turn_details import is_unread
from app.chat.turn_messages import agent_of, messages_of
from app.generation.stop_token import StopToken
from app.records.branches import Branches, Turn
from app.records.sessions import Place
from py_core.messages import UserError
from py_core.routing.agents import Agent, AgentError
from py_core.store.errors import StoreError
from py_core.tokenizers.chat_template import Message


class CannotAnswerError(UserError, ValueError):
    """There is nothing to answer again, or to continue. The message is for the user."""


Agents = Mapping[str, Agent]


@dataclass(frozen=True)
class ChatQuestion:
    """text: the message. after: the number of the turn that it follows, None if it begins the conversation. agent: must
    answer. before: what the model reads first, None for all that was said.

    again: the message was asked before, and gets another answer; replaced: the answer that is shown. rest: that answer
    did not come to its end, and is continued. table: the id of an attached table, for whose analysis the model writes
    Python. stop: ends the answer.
    """

    text: str
    after: int | None
    agent: Agent | None = None
    before: list[Message] | None = None
    again: bool = False
    replaced: Turn | None = None
    rest: bool = False
    table: str | None = None
    stop: StopToken = field(default_factory=StopToken)


def new_message(
    branches: Branches, agents: Agents, text: str, after: Place, agent: str | None, table: str | None = None
) -> ChatQuestion:
    """Raises StoreError("record"), AgentError."""
    if after == "leaf":
        return ChatQuestion(text, branches.leaf, _agent(agents, agent), table=table)
    before = [] if after is None else _path(branches, after)
    return ChatQuestion(text, after, _agent(agents, agent), messages_of(before, agents), table=table)


def another_answer(branches: Branches, agents: Agents, number: int | None, agent: str | None) -> ChatQuestion:
    """number: of the message, None for the last message. Raises CannotAnswerError, StoreError("record"), AgentError."""
    shown = branches.path()
    if number is None:
        if len(shown) < 2:
            raise CannotAnswerError("chat.nothing-to-retry", "There is no answer to try again yet.")
        number = shown[-2].number
    *before, question = _path(branches, number)
    if question.role != "user":
        raise CannotAnswerError("chat.only-yours", "Only your own messages can be answered again.")
    answers = branches.followers(number)
    here = [turn for turn in shown if turn.number in answers]
    replaced = here[0] if here else branches.turn(answers[-1]) if answers else None
    table = replaced.details.get("table") if replaced and agent is None else None
    return ChatQuestion(
        question.content, number, _agent(agents, agent), messages_of(before, agents), True, replaced, table=table
    )


def rest_of_answer(branches: Branches, agents: Agents) -> ChatQuestion:
    """Ask for the rest of the last answer that is shown, if it did not come to its end. Raises CannotAnswerError."""
    shown = branches.path()
    if [turn.role for turn in shown[-2:]] != ["user", "assistant"]:
        raise CannotAnswerError("chat.nothing-to-continue", "There is no answer to continue yet.")
    *before, question, answer = shown
    details = answer.details
    if details.get("lesson") or is_unread(answer) or not details.get("request"):
        raise CannotAnswerError(
            "chat.not-the-models",
            "The model did not write this answer, so it cannot continue it. Ask for another one.",
        )
    if details.get("calls"):
        raise CannotAnswerError(
            "chat.called-tools", "This answer called tools, so it cannot be continued. Ask for another one."
        )
    if details.get("reason") == "end":
        raise CannotAnswerError("chat.complete", "This answer is complete. Ask for more in a new message.")
    agent = agent_of(answer, agents)
    return ChatQuestion(question.content, answer.after, agent, messages_of(before, agents), True, answer, rest=True)


def _path(branches: Branches, number: int) -> list[Turn]:
    if number not in branches:
        raise StoreError(
            "record",
            "chat.message-gone-unchanged",
            "This message is no longer in this conversation. Nothing was changed.",
        )
    return branches.path(number)


def _agent(agents: Agents, id: str | None) -> Agent | None:
    if id is not None and id not in agents:
        raise agent_gone()
    return None if id is None else agents[id]


def agent_gone() -> AgentError:
    return AgentError("agents.gone", "This agent no longer exists. Choose another one.")
