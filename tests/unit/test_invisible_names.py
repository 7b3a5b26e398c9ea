"""An invisible name counts as empty, and no name reverses the order of others."""

from __future__ import annotations

import pytest

from app.chat.turn_details import title_of
from app.files.text import shown_name
from app.lessons.rows import problem_of_text
from py_core.display import is_blank, one_line, plain
from py_core.routing.agents import AgentError, agent_from_dict

BLANK = [
    "",
    " \t\n",
    "\u3164",
    "\u200b\u200d\ufeff",
    "\u115f\u1160\uffa0",
    "\u2800\u00ad",
    "\u202e\u2066",
    "\ufe0f\U000e0041",
]
SEEN = ["a", "\u3164a", "\U0001f469\u200d\U0001f467", "\u0301", "\ue000", "\u0378", "ㄱ", "."]


@pytest.mark.parametrize("text", BLANK)
def test_what_shows_nothing_is_empty_wherever_something_gets_a_name(text: str) -> None:
    assert is_blank(text)
    assert shown_name(text) == "file"
    assert problem_of_text(text).startswith("is empty")
    assert title_of(text) == ""
    with pytest.raises(AgentError, match="needs the key title"):
        agent_from_dict({"id": "a", "title": text, "definition": "d", "system_prompt": "s"})


@pytest.mark.parametrize("text", SEEN)
def test_what_shows_anything_is_not_empty(text: str) -> None:
    assert not is_blank(text)
    assert title_of(text) == text


def test_characters_that_turn_the_order_around_are_seen_in_a_terminal() -> None:
    turning = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    assert plain(f"a{turning}b\u200fc") == "a" + 9 * "\ufffd" + "b\u200fc"
    assert one_line("photo\u202egpj.exe") == "photo\ufffdgpj.exe"
