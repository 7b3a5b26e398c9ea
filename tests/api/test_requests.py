"""Whatever a client sends, the request is read or refused with a sentence."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from app.api.errors import ApiError
from app.api.requests import ChatRequest, CompletionRequest, Sampled, read
from app.api.responses import ResponsesRequest
from app.api.stop_texts import StopTexts

KINDS = (ChatRequest, CompletionRequest, ResponsesRequest)
NAMES = sorted({one.name for kind in KINDS for one in fields(kind)})
SHORT = st.text(max_size=5)
KEYS = st.sampled_from(
    ["role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "parameters", "json_schema",
     "schema", "call_id", "output", "id", "format", "input_text", "include_usage"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["user", "assistant", "tool", "text", "json_schema", "json_object", "function", "function_call", "message",
     "function_call_output", "required", "auto", "object", "image_url", "{}", "["]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | SHORT | WORDS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | SHORT, inner, max_size=4), max_leaves=8
)
ONE = [{"role": "user", "content": "a"}]


def assert_refused(refusal: ApiError) -> None:
    """A sentence, and the status of a wrong request."""
    assert len(str(refusal)) > 10
    assert refusal.status == 400


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(NAMES) | SHORT, VALUES, max_size=5))
@example(ChatRequest, {"messages": ONE, "response_format": {"type": "json_schema", "json_schema": {"schema": 3}}})
@example(ChatRequest, {"messages": ONE, "tools": [{"type": "function", "function": []}]})
@example(ChatRequest, {"messages": ONE, "tools": [{"name": "a"}], "tool_choice": {"function": {"name": ["a"]}}})
@example(
    ChatRequest, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 3}}]}]}
)
@example(ChatRequest, {"temperature": float("inf"), "messages": ONE})
@example(ResponsesRequest, {"input": [{"type": "message", "role": ["user"]}]})
@example(ResponsesRequest, {"input": "a", "text": {"format": {"type": "json_schema", "schema": [1]}}})
def test_a_request_is_read_or_refused(kind: type[Sampled], data: dict[str, Any]) -> None:
    try:
        request = read(kind, data)
        request.sampling(None, 1, 256)
        chat = request.chat() if isinstance(request, ResponsesRequest) else request
        if isinstance(chat, ChatRequest):
            chat.conversation()
            chat.callable_tools()
            chat.shape()
    except ApiError as refusal:
        assert_refused(refusal)


@given(st.lists(st.text("ab", max_size=4), max_size=4), st.lists(st.text("abc", max_size=4), max_size=3))
def test_an_answer_ends_before_the_first_of_its_texts(pieces: list[str], texts: list[str]) -> None:
    stops, whole, shown = StopTexts(texts), "".join(pieces), ""
    places = [whole.find(text) for text in texts if text and text in whole]
    for piece in pieces:
        if not stops.found:
            shown += stops.push(piece)
    shown += stops.flush()
    assert stops.found == bool(places)
    if not places:
        assert shown == whole
    else:
        assert whole.startswith(shown)
        assert len(shown) <= max(places)
        assert not any(text and text in shown for text in texts)
