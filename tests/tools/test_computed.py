"""The answers of the exact tools, and above all the messages that they leave to the model."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import datetime
from itertools import product
from pathlib import Path

from py_core.tools.first_look import may_be_for_a_tool
from py_core.tools.number_text import NUMBER
from py_core.tools.toolbox import answer_exactly

HERE = Path(__file__).parent
APP = HERE.parents[1] / "app"
NOW = datetime(2026, 11, 23, 14, 5)


def lines(name: str) -> list[str]:
    kept = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in kept if line and not line.startswith("# ")]


COMPUTED = [tuple(line.rsplit(" => ", 1)) for line in lines("computed.txt")]
NOT_COMPUTED = lines("not_computed.txt")


def test_these_are_computed() -> None:
    wrong = {message: computed(message) for message, result in COMPUTED if computed(message) != result}
    assert wrong == {}


def computed(message: str) -> str:
    """The value, "-" if it is only a sentence, or why there is no answer."""
    exact = answer_exactly(message, NOW)
    if exact is None or not may_be_for_a_tool(message):
        return "not computed" if exact is None else "the first look does not let it through"
    return (exact.value or "-") if exact.words and exact.working else "without words or working"


def test_the_sets_are_large_enough() -> None:
    assert len(set(COMPUTED)) >= 150
    assert len(set(NOT_COMPUTED)) >= 300


def test_the_same_in_another_format_is_the_same_or_for_the_model() -> None:
    swapped = str.maketrans(",.", ".,")
    wrong = []
    for message, result in COMPUTED:
        other = re.sub(NUMBER, lambda number: number[0].translate(swapped), message)
        if (exact := answer_exactly(other, NOW)) is not None and (exact.value or "-") != result:
            wrong.append(other)
    assert wrong == []


def test_these_are_left_to_the_model() -> None:
    computed = [message for message in NOT_COMPUTED if answer_exactly(message, NOW) is not None]
    assert computed == []


ASKED_FOR = {
    "What is 17 times 23?", "What is the square root of 81?", "How much is 15 percent of 80?", "17 times 23",
    "what's 15% of 240", "How many minutes are in a day?", "How many hours does a year have?", "What day is today?",
    "How many days does February have?", "How many litres are in a gallon?", "how many grams in an ounce",
    "how many weeks are there in 200 days", "convert 70 miles to km", "how many days till christmas",
    "What time is it?", "Solve 3x + 4 = 19",
}  # fmt: skip
"""The repository's general messages that do ask for a sum, a date or a unit."""


def general_messages() -> list[str]:
    found = (APP / "lessons" / "generic_texts.txt").read_text(encoding="utf-8").splitlines()
    for path in sorted((APP / "lessons" / "facts").glob("generic_*.jsonl")):
        found += [json.loads(line)["prompt"] for line in path.read_text(encoding="utf-8").splitlines()]
    for path in sorted((APP / "routing" / "agents").rglob("*.toml")):
        found += strings_of(tomllib.loads(path.read_text(encoding="utf-8")))
    return found


def strings_of(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in strings_of(each)]


def test_no_message_to_the_agents_is_taken_for_a_sum() -> None:
    messages = general_messages()
    assert len(messages) > 7000
    computed = {each for each in messages if may_be_for_a_tool(each) and answer_exactly(each, NOW) is not None}
    print(f"{len(computed)} of {len(messages)} are computed")
    assert computed <= ASKED_FOR


def test_the_first_look_lets_through_all_that_a_tool_answers() -> None:
    assert [message for message, _ in COMPUTED if not may_be_for_a_tool(message)] == []


HOSTILE = {
    "nested": "(" * 10_000 + "1+1" + ")" * 10_000,
    "nested a little": "(" * 60 + "1+1" + ")" * 60,
    "powers": "9**9**9**9",
    "power of a fraction": "(1/3)^999999999",
    "huge exponent": "10^(10^10)",
    "long product": "*".join(["99999999999"] * 190),
    "long sum": "+".join(["1"] * 50_000),
    "long number": "1" * 100_000 + " + 1",
    "factorials": "1000!*1000!",
    "spaces": "what is 1 +" + " " * 20_000 + "1",
    "commas": "how many days between " + ", " * 10_000,
    "quotes": 'how many words are in "' * 800,
    "words": "how many words in " + "in " * 8000,
    "dots": "5 miles in km" + "." * 20_000,
    "a long unit": "1" + "a" * 990,
    "long units": "5 " + " ".join(["a" * 150] * 6) + " in km",
    "many numbers": "1 " * 499,
    "many hyphens": "1-" * 400 + "1",
    "many words": "what is " + "one plus " * 100 + "one",
    "letters": "how many r's in " + "r" * 20_000,
}


def test_hostile_input_ends_with_words_or_nothing() -> None:
    """It takes a tenth of a second in all. The suite's own limit ends a hang."""
    for name, message in HOSTILE.items():
        if may_be_for_a_tool(message):
            exact = answer_exactly(message, NOW)
            assert exact is None or re.fullmatch(r"\S.*\.|[^.]+ = .*", exact.words, re.DOTALL), name


OPENINGS = ("", "how many words in the text: ", "what is 3 + ", "sum of 1,5 and ", "5 miles in ", "days until ",
            "solve x + ", "3 apples cost 2, what do ", "from 9:40 to ")  # fmt: skip
REPEATS = (" ", ".", "1", "1.", "1,", ", ", "a", "a ", "-", "(", '"', "please ", "und ", "²", "=")


def test_what_repeats_costs_no_more_than_its_length() -> None:
    """Milliseconds each: quadratic time on a long text, or cubic time on a short one, would be minutes."""
    for opening, part, size in product(OPENINGS, REPEATS, (900, 19_000)):
        message = f"{opening}{part * (size // len(part))}x"
        may_be_for_a_tool(message)
        exact = answer_exactly(message, NOW)
        assert exact is None or exact.words


def test_what_is_too_much_is_said_in_a_sentence() -> None:
    assert answer_exactly("9**9**9", NOW).words.startswith("The result would be longer than 1,000 digits")
    assert "50 brackets" in answer_exactly(HOSTILE["nested a little"], NOW).words
    assert "1000 characters" in answer_exactly(HOSTILE["nested"], NOW).words
    assert answer_exactly("fünf durch null", NOW).words.startswith("Durch null kann man nicht teilen")
    assert "28 days" in answer_exactly("what day is 30 February 2026", NOW).words


SAID = {
    "divide 3/4 by 1/2": "(3 / 4) / (1 / 2) = 1.5",
    "a third of 1,500": "1/3 of 1,500 = 500",
    "1e-400 * 1e-400": "(1 × 10^-400) × (1 × 10^-400) ≈ 1 × 10^-800",
    "17 * 23": "17 × 23 = 391",
    "0.1 + 0.2": "0.1 + 0.2 = 0.3",
    "1/3 =": "1 / 3 ≈ 0.3333333333",
    "was ist 3,5 mal 2": "3,5 × 2 = 7",
    "1000000 * 1000000": "1,000,000 × 1,000,000 = 1,000,000,000,000",
    "Was ist 1.000.000 mal 12?": "1.000.000 × 12 = 12.000.000",
    "what day is 24 December 2026": "24 December 2026 is a Thursday.",
    "Welcher Wochentag ist der 24. Dezember 2026?": "Der 24. Dezember 2026 ist ein Donnerstag.",
    "5 miles in km": "5 miles are 8.04672 kilometers.",
    "convert 100 F to C": "100 degrees Fahrenheit are about 37.778 degrees Celsius.",
    "12 kg in pounds": "12 kilograms are about 26.455 pounds.",
    "15% of 10,500": "15% of 10,500 = 1,575",
    "x^2 - x - 1 = 0": "x = (1 - √5)/2 ≈ -0.618034 or x = (1 + √5)/2 ≈ 1.618034",
    "x^2 + 1 = 0": "x^2 + 1 = 0 has no real solution.",
    "löse 2x = 2x": "Jedes x löst 2x = 2x.",
    "from 22:30 to 6:15": "From 22:30 to 6:15 on the next day it is 7 hours and 45 minutes.",
    "von 9:40 bis 13:05 Uhr": "Von 9:40 bis 13:05 Uhr sind es 3 Stunden und 25 Minuten.",
    "3 apples cost €2.40, what do 7 cost?": "7 apples cost €5.60.",
    "how many r's in strawberry": "The letter r occurs 3 times in “strawberry”.",
    "Wie viele r sind in Erdbeere?": "Der Buchstabe r kommt 2-mal in „Erdbeere“ vor.",
}


def test_an_answer_is_written_as_people_write() -> None:
    assert {message: answer_exactly(message, NOW).words for message in SAID} == SAID
