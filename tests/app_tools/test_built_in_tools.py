"""The tools that are there without a file: exact answers, dates, time, the memory, files, Python."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from app.interpreter.child import PythonChild
from app.memory.items import MemoryItems
from app.runtime import Runtime, RuntimeConfig
from app.tools import ToolFailure, needs_in_words, tools_by_name
from app.tools.built_in import built_in_tools
from app.tools.memory_tools import LONGEST_NOTE, file_tools, memory_tools
from app.tools.python_tool import python_tool
from py_core.store.volatile import VolatileRows

NOW = datetime(2026, 11, 28, 10, 5)
TOOLS = tools_by_name(built_in_tools(lambda: NOW))


@pytest.mark.parametrize(
    ("name", "given", "result"),
    [
        ("calculate", {"expression": "847 * 62"}, "847 × 62 = 52,514"),
        ("calculate", {"expression": "math.sqrt(16) / 3"}, "√(16) / 3 ≈ 1.333333333"),
        ("calculate", {"expression": "17 % 5 + pow(2, 8)"}, "17 mod 5 + (2)^(8) = 258"),
        ("calculate", {"expression": "9/11"}, "9 / 11 ≈ 0.8181818182"),
        ("calculate", {"expression": "3-1"}, "3 - 1 = 2"),
        ("calculate", {"expression": "2x + 3 = 7"}, "x = 2"),
        ("calculate", {"expression": "3 apples cost 2.40, what do 7 cost"}, "7 apples cost 5.60."),
        (
            "convert_units",
            {"amount": 26.2, "from_unit": "miles", "to_unit": "km"},
            "26.2 miles are about 42.165 kilometers. (1 mile = 1.609344 kilometers. Less rounded: 42.1648128.)",
        ),
        (
            "convert_units",
            {"amount": 1e-7, "from_unit": "kilometers", "to_unit": "m"},
            "0.0000001 kilometers are 0.0001 meters. (1 kilometer = 1000 meters.)",
        ),
        ("dates", {"question": "weekday of 2026-12-24"}, "24 December 2026 is a Thursday."),
        ("dates", {"question": "Easter 2027"}, "28 March 2027 is a Sunday."),
        ("dates", {"question": "the date 45 days after 2026-03-01?"},
         "45 days after 1 March 2026 is Wednesday, 15 April 2026."),
        ("dates", {"question": "2026-03-01 to 2026-05-05"}, "There are 65 days between 1 March 2026 and 5 May 2026."),
        ("dates", {"question": "days until Christmas"}, "There are 27 days until Christmas (25 December 2026)."),
        ("dates", {"question": "3 weeks ago"}, "3 weeks ago it was Saturday, 7 November 2026."),
        ("dates", {"question": "in 10 days"}, "In 10 days it will be Tuesday, 8 December 2026."),
        ("dates", {"question": "from 9:40 to 13:05"}, "From 9:40 to 13:05 it is 3 hours and 25 minutes."),
    ],
)  # fmt: skip
async def test_what_is_computed(name: str, given: dict[str, Any], result: str) -> None:
    assert await TOOLS[name].run(given) == result


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("calculate", {"expression": "the answer"}, "'the answer' cannot be computed: write numbers with"),
        ("calculate", {"expression": "1 / 0"}, "Nothing can be divided by zero, so this has no result."),
        ("calculate", {"expression": "9**9**9"}, "The result would be longer than 1,000 digits"),
        ("calculate", {"expression": "1+" * 100_000 + "1"}, "This is longer than the 1000 characters"),
        ("convert_units", {"amount": 1, "from_unit": "kg", "to_unit": "m"}, "'kg' cannot be converted into 'm'."),
        ("convert_units", {"amount": 1, "from_unit": "USD", "to_unit": "m"}, "The unit 'USD' is not known."),
        ("convert_units", {"amount": -300, "from_unit": "C", "to_unit": "F"}, "Colder than absolute zero"),
        ("dates", {"question": "3/4/2026"}, "'3/4/2026' is not a question about dates that can be computed."),
        ("dates", {"question": "2026-02-30"}, "February 2026 has 28 days: it has no day 30."),
        ("dates", {"question": "9999999 days after today"}, "I count from the year 1 to the year 9999."),
    ],
)
async def test_what_is_refused_with_a_sentence(name: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await TOOLS[name].run(given)
    assert sentence in str(failed.value)


async def test_the_time_has_its_weekday_and_its_distance_from_utc() -> None:
    offset = NOW.astimezone().strftime("%z")
    expected = f"It is Saturday, 28 November 2026, 10:05 (UTC{offset[:3]}:{offset[3:]})."
    assert await TOOLS["current_time"].run({}) == expected


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async def rows() -> VolatileRows:
        return VolatileRows()

    opened = await Runtime.open(RuntimeConfig(rows=rows))
    yield opened
    await opened.close()


def given(items: MemoryItems) -> Callable[[], Awaitable[MemoryItems]]:
    async def opened() -> MemoryItems:
        return items

    return opened


async def test_a_note_is_a_lesson_that_a_search_finds_and_the_user_can_delete(runtime: Runtime) -> None:
    items = MemoryItems(runtime)
    tools = tools_by_name(memory_tools(given(items)))
    assert [needs_in_words(tool.needs) for tool in tools.values()] == [["read your memory"], ["add to your memory"]]
    search, keep = tools["search_memory"].run, tools["keep_note"].run
    assert await search({"query": "landlord"}) == "The memory has nothing about 'landlord'."
    said = await keep({"note": "The user's landlord is called Mr. Hale."})
    assert said == (
        'Noted. When the user asks "What is my landlord called?", the answer is "Your landlord is called Mr. Hale."'
    )
    assert (
        await search({"query": "landlord"}) == "Taught: What is my landlord called? Your landlord is called Mr. Hale."
    )
    said = await keep({"note": "My landlord is called Ms. Voss."})
    assert said.endswith('It replaces: "Your landlord is called Mr. Hale."')
    (lesson,) = [one for one in await runtime.memory.lessons.all() if not one.replaced_by]
    assert (lesson.answer, lesson.source) == ("Your landlord is called Ms. Voss.", "taught")
    await items.forget(f"sonata://lesson/{lesson.id}")
    assert await search({"query": "landlord"}) == "The memory has nothing about 'landlord'."
    for note, sentence in (("Hello!", "says nothing"), ("x y " * LONGEST_NOTE, f"may have {LONGEST_NOTE} characters")):
        with pytest.raises(ToolFailure, match=sentence):
            await keep({"note": note})


async def test_files_of_this_conversation_are_searched_and_no_others(runtime: Runtime) -> None:
    text = "# Parking\n\nThe garage closes at ten.\n\n# Notice\n\nEither side may give three months' notice.\n"
    long = text + "\n\n".join(f"# Part {number}\n\n{'Nothing of interest. ' * 20}" for number in range(20))
    first = (await runtime.files.attach(None, "contract.md", "", long.encode())).session
    other = (await runtime.files.attach(None, "menu.md", "", b"# Menu\n\nNotice the soup.\n")).session
    (search,) = file_tools(runtime.files, first)
    said = await search.run({"query": "notice months"})
    assert "From the file contract.md" in said
    assert "three months' notice" in said
    assert "soup" not in said
    assert len(said) < 4_100
    assert await search.run({"query": "zebra"}) == "The files have nothing about 'zebra'."
    assert "Notice the soup." in await file_tools(runtime.files, other)[0].run({"query": "soup"})
    found = await memory_tools(given(MemoryItems(runtime)))[0].run({"query": "soup"})
    assert found == "File menu.md: # Menu Notice the soup."


async def test_python_keeps_its_variables_and_its_errors_are_failures() -> None:
    child = PythonChild()
    assert python_tool(child).definition.description.endswith("Variables stay for later calls.")
    child.put("sales.csv", b"a,b\n1,2\n")
    python = python_tool(child)
    try:
        assert python.definition.description.endswith("Its folder has sales.csv.")
        assert await python.run({"code": "print(open('sales.csv').readline())"}) == "a,b"
        assert needs_in_words(python.needs) == ["run Python on this device"]
        assert await python.run({"code": "a = 20\nprint('hi')\na + 1"}) == "hi\n21"
        assert await python.run({"code": "a = a * 2"}) == "The code ran and printed nothing: print what is wanted."
        with pytest.raises(ToolFailure) as failed:
            await python.run({"code": "print(a)\na / 0"})
        assert str(failed.value) == "40\nLine 2: a / 0\nZeroDivisionError: division by zero"
    finally:
        await child.close()
