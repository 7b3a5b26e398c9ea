"""Requests to the memory, statements to remember, and facts mentioned in passing are recognized, with near misses."""

from __future__ import annotations

import pytest

from app.chat.help_answers import help_answer
from py_core.learning.teaching.lessons import Told, lesson_of, takes_back, told_by
from py_core.learning.teaching.memory_requests import Asked, Correct, Forget, ListLessons, asked_of_memory
from py_core.learning.teaching.passing_facts import told_in_passing

ASKED: list[tuple[str, Asked]] = [
    ("Forget the door code of the office.", Forget("the door code of the office")),
    ("Can you please forget my door code?", Forget("my door code")),
    ("Forget that my dentist is Dr. Quill.", Forget("my dentist is Dr. Quill", surely=True)),
    ("Delete what I told you about my sister", Forget("my sister", surely=True)),
    ("Could you delete my address from your memory?", Forget("my address", surely=True)),
    ("Do not remember my door code any more", Forget("my door code")),
    ("Forget everything", Forget("")),
    ("Forget everything you know about me.", Forget("", surely=True)),
    ("Wipe your memory", Forget("", surely=True)),
    ("Vergiss bitte den Türcode vom Büro.", Forget("den Türcode vom Büro", language="de")),
    ("Vergiss, dass mein Zahnarzt Dr. Quill heißt.", Forget("mein Zahnarzt Dr. Quill heißt", True, "de")),
    ("Lösche, was ich dir über meine Schwester gesagt habe.", Forget("meine Schwester", True, "de")),
    ("Bitte vergiss alles, was du über mich weißt.", Forget("", True, "de")),
    ("No, that is wrong. My dentist is Dr. Bauer now.", Correct("My dentist is Dr. Bauer")),
    ("That\u2019s not right: my dentist is now Dr. Bauer.", Correct("my dentist is Dr. Bauer")),
    ("No, my dentist is Dr. Bauer now", Correct("my dentist is Dr. Bauer")),
    ("Nein, mein Zahnarzt heißt jetzt Dr. Bauer.", Correct("mein Zahnarzt heißt Dr. Bauer", "de")),
    ("Das stimmt nicht. Mein Zahnarzt ist Dr. Bauer.", Correct("Mein Zahnarzt ist Dr. Bauer", "de")),
    ("What do you know about me?", ListLessons()),
    ("what did I teach you", ListLessons()),
    ("Show me everything you know about me", ListLessons()),
    ("Do you know anything about me?", ListLessons()),
    ("Was weisst du über mich?", ListLessons("de")),
    ("Was habe ich dir beigebracht?", ListLessons("de")),
]


@pytest.mark.parametrize(("message", "asked"), ASKED)
def test_a_message_that_asks_something_of_the_memory_is_understood(message: str, asked: Asked) -> None:
    assert asked_of_memory(message) == asked


NOT_ASKED = """
forget it / Forget about it. / forget that / forget me / Vergiss es! / vergiss das / forget what I just said
never forget that I love you / don't forget that my dentist is Dr. Quill / Don't forget to write
How do I forget my ex? / Do you forget things? / I forgot my password / Delete the last line / Clear the table
Remove the comma from the sentence / What do you know about bees? / What did I tell you about bees?
Was weißt du über Bienen? / What do you know about my sister? / That is wrong. / No, the capital is Canberra.
That is right, my dentist is Dr. Quill / It was wrong to leave my job / No, is my dentist Dr. Bauer?
""".replace("\n", " / ").split(" / ")


@pytest.mark.parametrize("message", [message for message in NOT_ASKED if message.strip()])
def test_a_message_that_only_looks_so_is_for_the_model(message: str) -> None:
    assert asked_of_memory(message) is None
    assert told_by(message)[0] == []


def en(question: str, answer: str) -> Told:
    return Told(question, answer)


def de(question: str, answer: str) -> Told:
    return Told(question, answer, "de")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Remember that Peter is allergic to nuts and Mia is vegetarian.",
         [en("What is Peter allergic to?", "Peter is allergic to nuts."), en("What is Mia?", "Mia is vegetarian.")]),
        ("remember: I live in Bonn, my cat is called Tim, and my dentist is Dr. Quill.",
         [en("Where do I live?", "You live in Bonn."), en("What is my cat called?", "Your cat is called Tim."),
          en("Who is my dentist?", "Your dentist is Dr. Quill.")]),
        ("Remember my name is Anna", [en("What is my name?", "Your name is Anna.")]),
        ("Remember: my sister is Ann and she lives in Rome",
         [en("Who is my sister?", "Your sister is Ann and she lives in Rome.")]),
        ("Remember that I like tea and coffee", [en("What do I like?", "You like tea and coffee.")]),
        ("Merk dir: Mein Zahnarzt ist Dr. Quill.", [de("Wer ist mein Zahnarzt?", "Dein Zahnarzt ist Dr. Quill.")]),
        ("Merke dir, dass mein Zahnarzt Dr. Quill heißt.",
         [de("Wie heißt mein Zahnarzt?", "Dein Zahnarzt heißt Dr. Quill.")]),
        ("Merk dir, dass ich in Bonn wohne.", [de("Wo wohne ich?", "Du wohnst in Bonn.")]),
        ("Merke dir, dass der Türcode vom Büro 4471 ist.",
         [de("Wie lautet der Türcode vom Büro?", "Der Türcode vom Büro ist 4471.")]),
        ("Merk dir, dass Peter gegen Nüsse allergisch ist und Mia Vegetarierin ist.",
         [de("Wogegen ist Peter allergisch?", "Peter ist gegen Nüsse allergisch."),
          de("Was ist Mia?", "Mia ist Vegetarierin.")]),
        ("Bitte merk dir, dass meine Schwester am 14. März Geburtstag hat.",
         [de("Wann hat meine Schwester Geburtstag?", "Deine Schwester hat am 14. März Geburtstag.")]),
        ("Merk dir, dass ich in Bonn wohne und in Köln arbeite",
         [de("Wo wohne ich?", "Du wohnst in Bonn."), de("Wo arbeite ich?", "Du arbeitest in Köln.")]),
        ("Merk dir, dass meine Schwester in Graz wohnt und dort arbeitet",
         [de("Wo wohnt meine Schwester?", "Deine Schwester wohnt in Graz und arbeitet dort.")]),
        ("Merk dir, dass wir in Bonn wohnen und arbeiten",
         [de("Wo wohnen wir?", "Ihr wohnt in Bonn und arbeitet.")]),
        ("Merk dir, dass ich um 6 Uhr aufstehe", [de("Wann stehe ich auf?", "Du stehst um 6 Uhr auf.")]),
        ("Merk dir, dass ich bei Ulm aufgewachsen bin",
         [de("Wo bin ich aufgewachsen?", "Du bist bei Ulm aufgewachsen.")]),
        ("Merk dir, dass ich Tee mag, wenn ich krank bin", [de("Was mag ich?", "Du magst Tee, wenn du krank bist.")]),
        ("Merk dir, dass ich seit 2015 in Wien lebe", [de("Wo lebe ich?", "Du lebst seit 2015 in Wien.")]),
        ("Merk dir, dass Frau Dr. Weiß meine Ärztin ist",
         [de("Wer ist meine Ärztin?", "Frau Dr. Weiß ist deine Ärztin.")]),
        ("Merk dir, dass Herr Özdemir im dritten Stock wohnt",
         [de("Wo wohnt Herr Özdemir?", "Herr Özdemir wohnt im dritten Stock.")]),
        ("Merk dir, dass 王伟 mein Nachbar ist", [de("Wer ist mein Nachbar?", "王伟 ist dein Nachbar.")]),
        ("Merk dir, dass unser Hochzeitstag der 12. Juni ist",
         [de("Wann ist unser Hochzeitstag?", "Euer Hochzeitstag ist der 12. Juni.")]),
        ("Merk dir, dass mein Mann und ich in Kiel wohnen",
         [de("Wo wohnen mein Mann und ich?", "Dein Mann und du wohnen in Kiel.")]),
        ("Merk dir, dass mich meine Schwester anruft", [de("Was ruft mich?", "Dich ruft deine Schwester an.")]),
        ("Merk dir, dass meine Tochter, die in Kiel lebt, Mia heißt",
         [de("Wie heißt meine Tochter, die in Kiel lebt?", "Deine Tochter, die in Kiel lebt, heißt Mia.")]),
        ("Merk dir, dass Peter Vegetarier ist, aber Fisch isst",
         [de("Was ist Peter?", "Peter ist Vegetarier, aber isst Fisch.")]),
        ("Merk dir, dass du Nova heißt", [de("Wie heißt du?", "Ich heiße Nova.")]),
        ('Remember that my nickname is "The Fox"', [en("What is my nickname?", 'Your nickname is "The Fox"')]),
        ("Remember that the code is 7714 and has to be typed twice",
         [en("What is the code?", "The code is 7714 and has to be typed twice.")]),
        ("Remember that my website is https://ann.example/x?y=1",
         [en("What is my website?", "Your website is https://ann.example/x?y=1.")]),
        ("Remember that I like Bonn. I live there.", [en("What do I like?", "You like Bonn. You live there.")]),
        ("Remember that my name's Ann, I'm 41 and I live in Rome",
         [en("What is my name?", "Your name is Ann."), en("How old am I?", "You are 41."),
          en("Where do I live?", "You live in Rome.")]),
        ('Remember that by "the usual" I mean tea',
         [en("What do you know about by \"the usual\" I mean tea?", 'By "the usual" you mean tea.')]),
        ("Merk dir, dass .", []),
        ("Merk dir das", []), ("Lerne Deutsch", []), ("Remember the Alamo", []), ("Remember my dog", []),
    ],
)  # fmt: skip
def test_each_fact_of_a_message_becomes_a_lesson_of_its_own(message: str, told: list[Told]) -> None:
    assert told_by(message)[0] == told


TAKEN_BACK = """
I live in Bonn: I no longer live in Bonn / I'm no longer living in Bonn / I don't live in Bonn
I eat fish: I don't eat fish any more / I never eat fish / I stopped eating fish
my dentist is Dr. Quill: my dentist is not Dr. Quill / Dr. Quill isn't my dentist now
I drive a blue Skoda: I don't drive a Skoda any more
I am vegetarian: I'm not vegetarian any more
I can swim: I can't swim any more
I don't eat pork: I eat pork / I do eat pork again
I can't swim: I can swim now
I no longer live in Bonn: I live in Bonn again
Ich esse kein Fleisch: Ich esse wieder Fleisch
Ich wohne in Bonn: Ich wohne nicht mehr in Bonn / In Bonn wohne ich nicht mehr / Ich wohne jetzt nicht mehr in Bonn
Mein Zahnarzt ist Dr. Quill: Dr. Quill ist nicht mehr mein Zahnarzt / Mein Zahnarzt heißt nicht mehr Dr. Quill
Ich esse Fisch: Ich esse keinen Fisch mehr / Ich esse nie Fisch
"""
KEPT = """
I live in Bonn: I no longer live in Rome / I live in Bonn / I don't live alone / I don't like Bonn / I am not in Bonn
my dentist is Dr. Quill: Dr. Bauer isn't my dentist now / my dentist is not nice
Who is my dentist? Dr. Quill: my dentist is not Dr. Quill but Dr. Bauer / my dentist isn't Dr. Quill, he is Dr. Bauer
I drive a blue Skoda: I no longer drive a blue BMW
I live in Bonn: do I no longer live in Bonn / She no longer lives in Bonn / you don't live in Bonn
I live in Bonn: I can't live in Bonn / I would not live in Bonn / I won't live in Bonn / I didn't live in Bonn
my dentist is Dr. Quill: isn't Dr. Quill my dentist / Her dentist is no longer Dr. Quill / Dr. Quill was not my dentist
I don't eat pork on Fridays: I eat pork / I don't eat pork
I would not live in Bonn: I live in Bonn
I am allergic to nuts and milk: I'm no longer allergic to nuts
Ich wohne in Bonn: Ich wohne nicht mehr in Rom / wohne ich nicht mehr in Bonn / Er wohnt nicht mehr in Bonn
"""


@pytest.mark.parametrize(
    ("taught", "told", "taken"),
    [
        (taught, told, table is TAKEN_BACK)
        for table in (TAKEN_BACK, KEPT)
        for taught, _, others in (line.partition(": ") for line in table.strip().splitlines())
        for told in others.split(" / ")
    ],
)
def test_what_is_denied_is_taken_back_and_nothing_else(taught: str, told: str, taken: bool) -> None:
    lesson, denial = lesson_of(taught), lesson_of(told)
    assert lesson is not None
    assert denial is not None
    assert takes_back(denial, lesson.question, lesson.answer) is taken


@pytest.mark.parametrize(
    ("message", "answers"),
    [
        ("My sister's birthday is on 14 March.", ["Your sister's birthday is on 14 March."]),
        ("Hi, my name is Anna.", ["Your name is Anna."]),
        ("I live in Lisbon and am allergic to peanuts.", ["You live in Lisbon.", "You are allergic to peanuts."]),
        ("Note: the wifi password is blue-tiger-9.", ["The wifi password is blue-tiger-9."]),
        ("My dentist is Dr. Quill. Can you write him a mail?", ["Your dentist is Dr. Quill."]),
        ("Mein Geburtstag ist am 3. Mai.", ["Dein Geburtstag ist am 3. Mai."]),
        ("My cat is hungry", []), ("My head hurts", []), ("My code is Python", []), ("My car is broken", []),
        ("The password is wrong", []), ("My name is not Bob", []), ("What is my name?", []), ("I live in fear", []),
        ("Translate: my name is Anna.", []), ("My number is too long", []), ("the answer\nMy name is Anna.", []),
    ],
)  # fmt: skip
def test_only_what_is_worth_remembering_is_offered(message: str, answers: list[str]) -> None:
    assert [one.answer for one in told_in_passing(message)] == answers


def test_sonata_says_of_itself_only_what_is_asked_of_itself() -> None:
    for asked in ("What can you do?", "who are you", "How do I teach you something?", "Is this private?"):
        said = help_answer(asked)
        assert said is not None
        assert "Remember" in said.words or "device" in said.words
    for asked in ("Was kannst du?", "Wer bist du?", "Wie bringe ich dir etwas bei?", "Ist das privat?"):
        said = help_answer(asked)
        assert said is not None
        assert "Gerät" in said.words or "Merk dir" in said.words
    for asked in ("What can you do about my back?", "Who are you to judge?", "How do I teach my dog?", "Help me"):
        assert help_answer(asked) is None
