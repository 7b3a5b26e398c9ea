"""Stored conversations whose answers called tools: drawn again, read by the next message, and answered again."""

from __future__ import annotations

from pathlib import Path

from app.chat.conversation import Conversation
from app.chat.turn_events import stored_turns
from app.chat.turn_messages import messages_of
from app.generation.assistant import Assistant
from app.generation.tool_loop import ToolUse
from app.protocol import Delta, ToolCalled, ToolReturned
from tests.generation.test_shaped_answers import with_grammars
from tests.generation.test_tool_loop import sunny, use
from tests.runtime import runtime_over


async def test_a_turn_keeps_its_calls_which_are_drawn_and_read_again(write_model, open_model, tmp_path: Path) -> None:
    model = with_grammars(await open_model(write_model(tied=False, context=2048)))
    runtime, offered = await runtime_over(tmp_path / "memory.sqlite"), [use(sunny)[0]]

    async def tools(session: str | None) -> ToolUse | None:
        return (*offered, None)[0]

    conversation = Conversation(Assistant(model, max_tokens=140), runtime, tools)
    drawn = [event async for event in conversation.respond("How is it?")]
    assert conversation.session_id is not None
    branches = await runtime.memory.sessions.branches(conversation.session_id)
    kept = stored_turns(conversation.session_id, branches)[-1].events
    for kind in (ToolCalled, ToolReturned):
        (new,), (old,) = ([event for event in events if isinstance(event, kind)] for events in (drawn, kept))
        assert (new.id, new.__dict__ | {"seconds": None}) == (old.id, old.__dict__ | {"seconds": None})
    said = ["".join(one.text for one in events if isinstance(one, Delta)) for events in (drawn, kept)]
    assert said[0] == said[1]
    # What the model reads later is made of the turn, and is what it was.
    told = messages_of(branches.path(), {})
    assert [message["role"] for message in told][:3] == ["user", "assistant", "tool"]
    assert told == conversation.assistant.messages
    # Another answer calls again; one without tools has no calls.
    assert any([isinstance(event, ToolCalled) async for event in conversation.retry()])
    offered.clear()
    assert not any([isinstance(event, ToolCalled) async for event in conversation.retry()])
    assert "calls" not in conversation.turns[-1].details
    # Calls of a damaged file are left out of the prompt, and the text is still there.
    turn = branches.path()[-1]
    turn.details["calls"] = [{"name": 3}]
    assert messages_of([turn], {}) == [{"role": "assistant", "content": turn.content}]
    await runtime.close()
