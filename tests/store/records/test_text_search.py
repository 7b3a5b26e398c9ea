"""Conversations are found by the words of their titles and messages, on every backend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.records.conversation_text import TextMatch
from app.records.memory import Memory
from app.records.sessions import TURN, Turn
from py_core.store.rows import Row
from py_core.store.store import Store
from py_core.store.transfer import export, import_file
from py_core.text_search import FOLDING, fold, has_all, snippet, terms_of
from tests.store.places import Place

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
    assert await found("oding") == []  # not at the beginning of a word
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
    assert [match.session for match in await memory.text.search("algarve")] == [ids["A bug"], ids["Holidays"]]  # newest
    await memory.sessions.edit(ids["A bug"], title="Algarve")
    assert (await memory.text.search("algarve"))[0] == TextMatch(ids["A bug"], in_title=True)
    (begun,) = (await memory.sessions.path(ids["A bug"]))[2:]
    longer = replace(begun, content="Is the Algarve warm in zebra stripes?")
    await memory.sessions.replace_turn(ids["A bug"], longer, begun.content)
    await memory.sessions.add_turns(ids["A bug"], Turn("assistant", "Try the Alentejo."), after=0)
    for word in ("zebra", "alentejo"):  # the continuation, and hidden branches
        assert [match.session for match in await memory.text.search(word)] == [ids["A bug"]]
    await memory.sessions.delete(ids["A bug"])
    assert [match.session for match in await memory.text.search("algarve")] == [ids["Holidays"]]
    await store.clear()
    assert await memory.text.search("algarve") == []


async def test_a_found_conversation_shows_the_message_with_most_of_the_words(store: Store) -> None:
    memory, ids = await started(store)
    await memory.text.search("coding crash")
    assert memory.text.best_turn(ids["A bug"], "coding index crash") == f"{ids['A bug']}/000001"
    assert memory.text.best_turn(ids["A bug"], "zebra") is None


def reads_of_turns(store: Store) -> list[str]:
    """Fills as messages are read."""
    read = list[str]()
    rows: Any = store._rows
    for name in ("scan", "get", "query"):
        whole = getattr(rows, name)

        async def noted(*given: Any, whole: Any = whole) -> list[Row]:
            found = await whole(*given)
            read.extend(row.id for row in found if row.kind == TURN)
            return found

        setattr(rows, name, noted)
    return read


async def test_a_search_after_a_restart_reads_no_message_again(lasting: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, ids = await started(await lasting.open())
    assert len(await memory.text.search("algarve")) == 1
    await memory.background.settled()
    again = await Memory.open(await lasting.open())
    read = reads_of_turns(again.store)
    assert [match.session for match in await again.text.search("algarve")] == [ids["Holidays"]]
    assert read == []
    await again.sessions.edit(ids["A bug"], title="A crash")
    await again.text.search("algarve")
    assert f"{ids['A bug']}/000001" in read  # of the changed ones
    monkeypatch.setattr("app.records.conversation_text.FOLDING", FOLDING + 1)
    newer = await Memory.open(await lasting.open())
    read = reads_of_turns(newer.store)
    assert len(await newer.text.search("algarve")) == 1
    assert f"{ids['Holidays']}/000001" in read  # text that another version folded


async def test_the_text_of_a_conversation_that_was_left_is_kept_before_anybody_searches(store: Store) -> None:
    memory, ids = await started(store)
    await memory.background.settled()
    kept = {id: await store.get_blob(f"session:{id}/text") for id in ids.values()}
    assert kept.pop(ids["天气"]) is None  # the last one may continue
    assert all(data is not None for data in kept.values())


@pytest.mark.parametrize("how", ["conversation", "message", "all messages"])
async def test_the_kept_text_is_deleted_with_what_it_is_made_of(store: Store, how: str) -> None:
    memory, ids = await started(store)
    await memory.text.search("algarve")
    await memory.background.settled()
    id = ids["Holidays"]
    assert b"algarve" in (await store.get_blob(f"session:{id}/text") or b"")
    if how == "conversation":
        await memory.sessions.delete(id)
    elif how == "message":
        await store.delete(TURN, f"{id}/000001")
    else:
        await store.clear(TURN)
    assert await store.get_blob(f"session:{id}/text") is None


async def test_a_text_is_not_kept_of_a_conversation_that_is_deleted_meanwhile(store: Store) -> None:
    memory, ids = await started(store)
    with memory.background.paused():
        await memory.text.search("algarve")
        await memory.sessions.delete(ids["Holidays"])
    await memory.background.settled()
    assert await store.get_blob(f"session:{ids['Holidays']}/text") is None


async def test_messages_that_an_import_adds_to_a_conversation_are_found(store: Store) -> None:
    memory, ids = await started(store)
    await memory.text.search("algarve")
    file = await export(memory.store, in_the_clear=True)
    await memory.store.delete(TURN, f"{ids['Holidays']}/000001")
    await memory.sessions.edit(ids["Holidays"], title="Summer")  # newer than in the file
    assert await memory.text.search("algarve") == []
    await import_file(memory.store, file, "merge")
    assert [match.session for match in await memory.text.search("algarve")] == [ids["Holidays"]]


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
        ("I don\u2019t know", "don't", "I [don\u2019t] know"),
        ("I dont, I don't", "„don`t“", "I dont, I [don't]"),
        ("O\u02bcBrien and o'brien", "O\u2018BRIEN", "[O\u02bcBrien] and [o'brien]"),
        pytest.param(
            "an e\u2011mail, 1990\u201395", "E-mail 1990\u221295", "an [e\u2011mail], [1990\u201395]", id="dashes"
        ),
        ("Donau\u00addampf\u00adschiff", "donaudampf \u00ad", "[Donau\u00addampf]\u00adschiff"),
        ("½ cup", "1/2", "[½] cup"),
        ("a 10\u201dx5\u201d one", '10"x5"', "a [10\u201dx5]\u201d one"),
        ("\u2116 5, 20 \u2103, \u1d3f", "NO \u00b0c r", "[\u2116] 5, 20 [\u2103], [\u1d3f]"),
        ("Łódź, Ødegård, Æther, ISPARTA", "lodz odegard aether \u0131sparta", "[Łódź], [Ødegård], [Æther], [ISPARTA]"),
        ("a \u2764 in \u0643\u0640\u062a", "\u2764\ufe0f \u0643\u062a", "a [\u2764] in [\u0643\u0640\u062a]"),
        ("東京 y que", "「東京」。 ¿qué?", "[東京] y [que]"),
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


@given(st.text())
def test_a_folded_text_is_folded_already_and_case_does_not_count(text: str) -> None:
    assert fold(fold(text)) == fold(text) == fold(text.upper())
