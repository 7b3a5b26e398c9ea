"""Conversations are found by the words of their titles and messages, on every backend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import Place

from py_core.memory.memory import Memory
from py_core.memory.sessions import Turn
from py_core.memory.store import Store
from py_core.memory.text_search import TextMatch, fold, has_all, snippet, terms_of

CHATS = {
    "Holidays": ["Where is it warm?", "Try the Algarve: São Brás, or Évora."],
    "A bug": ["Why does my page crash?", "Coding mistakes: an undefined index."],
    "天气": ["今天天气很好", "Ja, straße und Übung."],
}


async def started(store: Store) -> tuple[Memory, dict[str, str]]:
    memory = await Memory.open(store)
    ids = {}
    for title, (question, answer) in CHATS.items():
        session = await memory.sessions.start(title)
        ids[title] = session.id
        await memory.sessions.add_turns(session.id, Turn("user", question), Turn("assistant", answer))
    return memory, ids


async def test_words_are_found_in_titles_and_messages(store: Store) -> None:
    memory, ids = await started(store)

    async def found(query: str) -> list[str]:
        titles = {id: title for title, id in ids.items()}
        return [titles[match.session] for match in await memory.text.search(query)]

    assert await found("holidays") == ["Holidays"]
    assert await found("ALGARVE") == ["Holidays"]
    assert await found("cod") == ["A bug"]
    assert await found("oding") == []  # not where a word begins
    assert await found("sao evora") == ["Holidays"]
    assert await found("STRASSE ubung") == ["天气"]
    assert await found("天气") == ["天气"]
    assert await found("很好") == ["天气"]  # Chinese has no spaces
    assert await found("bug coding crash?") == ["A bug"]  # in the title, the answer and the question
    assert await found("warm crash") == []
    assert await found("  ") == []


async def test_a_search_follows_what_changes(store: Store) -> None:
    memory, ids = await started(store)
    assert len(await memory.text.search("algarve")) == 1
    await memory.sessions.add_turns(ids["A bug"], Turn("user", "Is the Algarve warm?"))
    assert [match.session for match in await memory.text.search("algarve")] == [ids["Holidays"], ids["A bug"]]
    await memory.sessions.edit(ids["A bug"], title="Algarve")
    assert (await memory.text.search("algarve"))[0] == TextMatch(ids["A bug"], None)
    await memory.sessions.delete(ids["A bug"])
    assert [match.session for match in await memory.text.search("algarve")] == [ids["Holidays"]]
    await store.clear()
    assert await memory.text.search("algarve") == []


@pytest.mark.parametrize("lasting", ["sqlite", "sqlite encrypted"], indirect=True)
async def test_a_search_follows_what_another_program_writes(lasting: Place) -> None:
    memory, ids = await started(await lasting.open())
    assert await memory.text.search("zebra") == []
    other = await Memory.open(await lasting.open())
    await other.sessions.add_turns(ids["A bug"], Turn("user", "a zebra"))
    assert [match.session for match in await memory.text.search("zebra")] == [ids["A bug"]]


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("Why does it crash?", "CRASH", "Why does it [crash]?"),
        ("straße, Straße", "strasse", "[straße], [Straße]"),
        ("a ﬁne day", "fine", "a [ﬁne] day"),
        ("no match here", "zebra", "no match here"),
        ("line\n\nbreaks  and a tab\there", "tab", "line breaks and a [tab] here"),
    ],
)
def test_a_snippet_shows_what_was_found(text: str, query: str, shown: str) -> None:
    pieces = snippet(text, terms_of(query))
    assert "".join(f"[{piece}]" if match else piece for piece, match in pieces) == shown


def test_a_snippet_of_a_long_text_is_around_the_first_match() -> None:
    text = "word " * 500 + "zebra " + "word " * 500
    pieces = snippet(text, ["zebra"])
    assert (pieces[0], pieces[-1]) == (("… ", False), (" …", False))
    assert [piece for piece, match in pieces if match] == ["zebra"]
    assert sum(len(piece) for piece, _ in pieces) < 200


@given(st.text(), st.text())
def test_any_text_and_query_give_a_snippet(text: str, query: str) -> None:
    terms = terms_of(query)
    matched = any(match for _, match in snippet(text, terms))
    if terms and has_all(terms, text[:100]):
        assert matched


@given(st.text(), st.text(st.characters(categories=("L",)), min_size=1))
def test_a_word_is_found_wherever_it_stands(around: str, word: str) -> None:
    if fold(word).strip():
        assert has_all(terms_of(word), f"{around} {word} {around}")
