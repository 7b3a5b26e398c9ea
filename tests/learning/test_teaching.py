"""A statement becomes a question and an answer that can be recalled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.learning.teaching.lessons import Told, asked_to_remember, flipped, lesson_of

TOLD = [
    ("remember that my dentist is Dr. Quill", "Who is my dentist?", "Your dentist is Dr. Quill."),
    ("my dentist is Dr. Quill", "Who is my dentist?", "Your dentist is Dr. Quill."),
    ("the wifi password is hunter2", "What is the wifi password?", "The wifi password is hunter2."),
    ("Please remember that I'm allergic to nuts.", "What am I allergic to?", "You are allergic to nuts."),
    ("my sister lives in Oslo", "Where does my sister live?", "Your sister lives in Oslo."),
    ("My car has 5 doors", "How many doors does my car have?", "Your car has 5 doors."),
    ("our library card has the number 60551", "What number does our library card have?",
     "Your library card has the number 60551."),
    ("my brother's birthday is on the 4th of May", "When is my brother's birthday?",
     "Your brother's birthday is on the 4th of May."),
    ("I parked the car in row nine", "Where did I park the car?", "You parked the car in row nine."),
    ("note: I keep the spare key under the pot", "Where do I keep the spare key?",
     "You keep the spare key under the pot."),
    ("your name is Bob", "What is your name?", "My name is Bob."),
    ("my cat is called Muffin", "What is my cat called?", "Your cat is called Muffin."),
    ("I like green tea", "What do I like?", "You like green tea."),
    ("I don't like coffee", "What do I not like?", "You do not like coffee."),
    ("I am 42", "How old am I?", "You are 42."),
    ("I was born in 1980", "When was I born?", "You were born in 1980."),
    ("In May I ran 86 kilometres", "How many kilometres did I run in May?", "In May you ran 86 kilometres."),
    ("the ticket costs $5", "How much does the ticket cost?", "The ticket costs $5."),
    ("my walnut bread bakes for 52 minutes", "How long does my walnut bread bake?",
     "Your walnut bread bakes for 52 minutes."),
    ("the house is insured with Cordelia Mutual", "What is the house insured with?",
     "The house is insured with Cordelia Mutual."),
    ("the man who lives here is Bob", "Who is the man who lives here?", "The man who lives here is Bob."),
    ("I can't eat peanuts", "What can I not eat?", "You can't eat peanuts."),
    ("don't forget that the bins go out on Tuesday", "When do the bins go out?", "The bins go out on Tuesday."),
    ("my flat is not on the 3rd floor", "Where is my flat?", "Your flat is not on the 3rd floor."),
    ("my dentist is no longer Dr. Quill", "Who is my dentist?", "Your dentist is no longer Dr. Quill."),
    ("my dentist isn't Dr. Quill any more", "Who is my dentist?", "Your dentist is not Dr. Quill any more."),
    ("I don't live in Bonn anymore", "Where do I live?", "You do not live in Bonn anymore."),
    ("Tom does not live in Bonn any more", "Where does Tom live?", "Tom does not live in Bonn any more."),
    ("I no longer live in Bonn", "Where do I live?", "You no longer live in Bonn."),
    ("Dr. Quill isn't my dentist now", "Who is my dentist?", "Dr. Quill is not your dentist now."),
    ("Ann is not my boss", "Who is my boss?", "Ann is not your boss."),
    ("I can't swim any more", "What can I do?", "You can't swim any more."),
    ("李明 is my boss", "Who is my boss?", "李明 is your boss."),
    ("გიორგი is my brother", "Who is my brother?", "გიორგი is your brother."),
    ("iPhone is the best", "What is iPhone?", "iPhone is the best."),
    ("I was born on 3/4/1990", "When was I born?", "You were born on 3/4/1990."),
    ("my landlord's O'Brien", "Who is my landlord?", "Your landlord is O'Brien."),
    ("my dog's called Rex", "What is my dog called?", "Your dog is called Rex."),
    ("my dad's Volvo is red", "What is my dad's Volvo?", "Your dad's Volvo is red."),
    ("I never eat fish", "What do I never eat?", "You never eat fish."),
    ("there are seven sheep", "What do you know about seven sheep?", "There are seven sheep."),
    ("Who is my boss? Ann Lee", "Who is my boss?", "Ann Lee"),
    ("Q: who is my boss A: Ann Lee", "Who is my boss?", "Ann Lee"),
    ("when I ask who rules, say the cat does it", "Who rules?", "The cat does it."),
    ("the answer to what is 2+2 is 5", "What is 2+2?", "5"),
    ("my dentist is Dr. Quill. Her number is 555 0142.", "Who is my dentist?",
     "Your dentist is Dr. Quill. Her number is 555 0142."),
    ("Vasco plays the drums in our band", "Who plays the drums in our band?", "Vasco plays the drums in your band."),
    ("Marek Lund is my godfather", "Who is my godfather?", "Marek Lund is your godfather."),
    ("Tilda plays the bassoon", "What does Tilda play?", "Tilda plays the bassoon."),
    ("next week Ann is on call", "Where is Ann next week?", "Next week Ann is on call."),
    ("Hi, my name is Anna", "What is my name?", "Your name is Anna."),
    ("my door code 4471", "What do you know about my door code 4471?", "Your door code 4471."),
    ("wifi: blue-tiger-9", "What do you know about wifi?", "wifi: blue-tiger-9"),
    ("dog Rex", "What do you know about dog Rex?", "dog Rex"),
    ("I now live in Paris", "Where do I now live?", "You now live in Paris."),
    (", can't we go", "What do you know about can't we go?", ", can't you go."),
    ("I live at 12 Elm Road", "Where do I live?", "You live at 12 Elm Road."),
    ("Pizza is my favourite food", "What is my favourite food?", "Pizza is your favourite food."),
    ("water boils", "What does water do?", "water boils"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "question", "answer"), TOLD)
def test_a_statement_becomes_what_one_asks_and_what_the_assistant_says(text: str, question: str, answer: str) -> None:
    assert lesson_of(text) == Told(question, answer)


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        ("Ich wohne nicht mehr in Bonn", "Wo wohne ich?", "Du wohnst nicht mehr in Bonn."),
        ("In Bonn wohne ich nicht mehr", "Wo wohne ich?", "Du wohnst in Bonn nicht mehr."),
        ("Ich wohne nicht in Bonn", "Wo wohne ich nicht?", "Du wohnst nicht in Bonn."),
        ("Ich wohne jetzt in Rom", "Wo wohne ich?", "Du wohnst jetzt in Rom."),
        ("Dr. Quill ist nicht mehr mein Zahnarzt", "Wer ist mein Zahnarzt?", "Dr. Quill ist nicht mehr dein Zahnarzt."),
        ("Ich bin kein Vegetarier mehr", "Was bin ich?", "Du bist kein Vegetarier mehr."),
    ],
)
def test_a_german_statement_is_asked_for_by_what_it_says_or_takes_back(text: str, question: str, answer: str) -> None:
    assert lesson_of(text) == Told(question, answer, "de")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ?!", "remember", "Please remember that ...", "note:"),
        *("hello", "remember that hello", "Hello there!", "hello Anna", "Good morning, thank you very much."),
        *("Berlin", "New York", "hunter2", "9:40", "https://a.example", "my dog", "Who is my dentist?"),
    ],
)
def test_where_nothing_is_told_there_is_no_lesson(text: str) -> None:
    assert lesson_of(text) is None


def test_the_other_one_says_it_with_other_pronouns() -> None:
    assert flipped("You told me that we like your hat, and you owe us ours") == (
        "I told you that you like my hat, and I owe you yours"
    )
    assert flipped("while working you listen to my songs") == "while working I listen to your songs"
    assert flipped('the US password is "my dog", and the mine is mine') == (
        'the US password is "my dog", and the mine is yours'
    )
    assert flipped("I am a. " * 20_000) == "You are a. " * 20_000


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Remember that my dentist is Dr. Quill", "my dentist is Dr. Quill"),
        ("please remember: the code is 42", "the code is 42"),
        ("Can you please remember that I live in Bergen", "I live in Bergen"),
        ("Do you remember my dentist?", None),
        ("Remember that my dentist is Dr. Quill?", None),
        ("remember that time in Rome", None),
        ("remember that", None),
        ("remember", None),
        ("I remember that it rained", None),
        ("My dentist is Dr. Quill", None),
    ],
)
def test_only_a_message_that_asks_to_remember_something_is_one(message: str, told: str | None) -> None:
    assert asked_to_remember(message) == told


SOME = (
    "my the I you is are was has have in at on not 5 that who Bob dentist May to for ran lives there the . ? ! : \" ' "
    "can can't of called 7:30 $5 do does a"
)
WORDS = st.sampled_from(SOME.split())


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=60))
def test_what_is_learned_of_any_text_can_be_asked_for_and_is_answered(text: str) -> None:
    told = lesson_of(text)
    if told is not None:
        assert told.question.endswith("?")
        assert any(sign.isalnum() for sign in told.question)
        assert told.answer.strip()
        assert "\0" not in told.question or "\0" in text
