"""Answers messages to the memory instead of the model: remember, correct, forget, list.

talked = await talk(runtime, "Forget the door code of the office.")   # None if the message is none of that
talked.words       # "I have forgotten what you taught me for “What is the door code of the office?” ..."
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from app.lessons.chat_lessons import paused
from app.lessons.feedback import NOTHING_TOLD
from app.lessons.imprints import LessonError
from app.lessons.match import lesson_names
from app.lessons.service import Learned, LearningService
from app.protocol import Card
from app.records.lessons import Lesson, plain
from py_core.backend_errors import BackendError
from py_core.learning.teaching.lessons import Told, denies, lesson_of, takes_back, told_by
from py_core.learning.teaching.memory_requests import Correct, Forget, ListLessons, asked_of_memory
from py_core.learning.teaching.passing_facts import sentences_of, told_in_passing
from py_core.passages.words import telling_words
from py_core.routing.embedder import EmbedderError
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.runtime import Runtime

OFFERS = "offers"
"""A key of a session's state: False once the person has dismissed an offer to remember something."""
MOST_SHOWN = 100
"""The most lessons that a card lists."""
_ASKING = {"where", "when", "who", "how", "which", "why", "wo", "wann", "wer", "wie", "welche", "warum"}
COVERED = 0.5
"""The share of a question's words that a topic must name, so that the lesson is forgotten without being shown first."""


@dataclass(frozen=True)
class TalkReply:
    """words: the reply. learned: what was taught. card: lessons that are shown with it."""

    words: str
    learned: tuple[Learned, ...] = ()
    card: Card | None = None


async def talk(runtime: Runtime, text: str) -> TalkReply | None:
    """Return None if the message asks nothing of the memory, or means nothing that was taught. Failures are told in the
    reply."""
    learning = runtime.learning
    if learning is None or not learning.is_on:
        return None
    told, language = told_by(text)
    asked = None if told else asked_of_memory(text)
    if not told and asked is None:
        return TalkReply(_say("nothing", language)) if language else await _take_back(runtime, learning, text)
    try:
        with paused(runtime):
            if told:
                return await _teach(learning, told)
            if isinstance(asked, Correct):
                return await _correct(learning, asked)
            if isinstance(asked, Forget):
                return await _forget(learning, asked)
            assert isinstance(asked, ListLessons)
            return await _list(learning, asked)
    except (EmbedderError, StoreError, BackendError, LessonError) as error:
        language = told[0].language if told else asked.language if asked else "en"
        return TalkReply(f"{_say('untaught' if told else 'failed', language)} {error}")


async def offered(runtime: Runtime, text: str) -> tuple[Told, ...]:
    """Return what a message tells in passing that is not known yet."""
    learning = runtime.learning
    if learning is None or not learning.is_on:
        return ()
    told = told_in_passing(text)
    with suppress(EmbedderError, BackendError):
        for one in map(lesson_of, sentences_of(text)):
            if one is not None and (lesson := await _taken_back(learning, one)) is not None:
                told.append(replace(one, question=lesson.question))
    known = {(plain(one.question), one.answer) for one in await _current(learning)} if told else set()
    return tuple(one for one in told if (plain(one.question), one.answer) not in known)


async def _take_back(runtime: Runtime, learning: LearningService, text: str) -> TalkReply | None:
    """Take a lesson back if the message says that it is no longer true. `recall` reports failures."""
    sentences = sentences_of(text)
    told = lesson_of(sentences[0]) if len(sentences) == 1 else None
    if told is None:
        return None
    with suppress(EmbedderError, StoreError, BackendError, LessonError), paused(runtime):
        if (known := await _taken_back(learning, told)) is not None:
            return await _replace(learning, known, told)
    return None


async def _taken_back(learning: LearningService, told: Told, is_taught: bool = False) -> Lesson | None:
    """Return the lesson that the told statement takes back. In passing only a denial takes one back."""
    for asked in (told.question, told.statement) if is_taught or denies(told.answer) else ():
        known = await learning.lesson_for(asked)
        if known is not None and takes_back(told, known.question, known.answer):
            return known
    return None


async def _replace(learning: LearningService, known: Lesson, told: Told) -> TalkReply:
    learned = await learning.teach(
        _asks_for(known, told), told.answer, edited=None if known.answer == told.answer else known
    )
    said = _say("corrected", told.language)
    return TalkReply(said.format(question=learned.lesson.question, answer=learned.lesson.answer), (learned,))


def _asks_for(known: Lesson, told: Told) -> str:
    """Return the question of the statement that replaces a lesson: "What do I not eat?" has no answer "You eat
    pork."."""
    return told.question if denies(known.answer) and not denies(told.answer) else known.question


async def _teach(learning: LearningService, told: Sequence[Told]) -> TalkReply:
    learned = [await _learn(learning, one) for one in told]
    language = told[0].language
    if len(learned) == 1:
        lesson = learned[0].lesson
        said = _say("corrected" if learned[0].replaced else "learned", language)
        return TalkReply(said.format(question=lesson.question, answer=lesson.answer), tuple(learned))
    facts = [f"\u201c{one.lesson.question}\u201d {one.lesson.answer}" for one in learned]
    return TalkReply("\n- ".join([_say("several", language).format(count=len(facts)), *facts]), tuple(learned))


async def _learn(learning: LearningService, told: Told) -> Learned:
    """Raises LessonError if the statement denies something else than the lesson for the same question."""
    if (known := await _taken_back(learning, told, is_taught=True)) is not None:
        return await learning.teach(_asks_for(known, told), told.answer, edited=known)
    same = await learning.lesson_for(told.question) if denies(told.answer) else None
    if same is not None and plain(same.question) == plain(told.question) and not denies(same.answer):
        raise LessonError("talk.stays", _say("stays", told.language), question=same.question, answer=same.answer)
    return await learning.teach(told.question, told.answer)


async def _correct(learning: LearningService, asked: Correct) -> TalkReply | None:
    told = lesson_of(asked.statement, asked.language if asked.language == "de" else "")
    if told is None:
        return None
    known = await _taken_back(learning, told, is_taught=True)
    if known is None and not denies(told.answer):  # "No, I don't live in Rome" leaves Bonn
        known = await learning.lesson_for(told.question)
    return await _replace(learning, known, told) if known else None


async def _forget(learning: LearningService, asked: Forget) -> TalkReply | None:
    if not asked.topic:
        every = await _current(learning)
        return _shown("choose", every, "all", asked.language) if every else TalkReply(_say("empty", asked.language))
    found, is_sure = await _meant(learning, asked)
    if not found:
        return TalkReply(_say("unknown", asked.language).format(topic=asked.topic)) if asked.surely else None
    if not is_sure:
        return _shown("choose", found, "choose", asked.language)
    await learning.forget(*(one.id for one in found))
    said = _say("forgotten", asked.language).format(question=found[0].question)
    return TalkReply(said, card=Card("forgotten", lesson_names(found), new=True, originals=tuple(found)))


async def _meant(learning: LearningService, asked: Forget) -> tuple[list[Lesson], bool]:
    """Return the lessons that a topic means, and True if they are surely meant: a single lesson, by most of its
    words."""
    told, words = lesson_of(asked.topic), telling_words(asked.topic)
    lessons = await _current(learning)
    same = [one for one in lessons if told is not None and plain(one.question) == plain(told.question)]
    if same:
        return same, True
    literal = [one for one in lessons if words and words <= telling_words(f"{one.question} {one.answer}")]
    if literal:
        asks = telling_words(literal[0].question)
        return literal, len(literal) == 1 and len(words & asks) >= COVERED * len(asks)
    is_question = asked.topic.split()[0].lower() in _ASKING
    what = "Was ist" if asked.language == "de" else "What is"
    found = await learning.lesson_for(f"{asked.topic}?" if is_question else f"{what} {asked.topic}?")
    return ([found], asked.surely or is_question) if found else ([], False)


async def _list(learning: LearningService, asked: ListLessons) -> TalkReply:
    every = await _current(learning)
    return _shown("listed", every, "listed", asked.language) if every else TalkReply(_say("empty", asked.language))


def _shown(kind: Literal["choose", "listed"], lessons: Sequence[Lesson], said: str, language: str) -> TalkReply:
    shown = lessons[:MOST_SHOWN]
    card = Card(kind, lesson_names(shown), new=True, originals=tuple(shown))
    words = _say(said, language) if len(lessons) > 1 else _say(f"{kind}_one", language)
    return TalkReply(words.format(count=len(lessons)), card=card)


async def _current(learning: LearningService) -> list[Lesson]:
    """Return the lessons that are not history, the newest first."""
    return [one for one in reversed(await learning.memory.lessons.all()) if not one.replaced_by]


def _say(what: str, language: str) -> str:
    return _WORDS[language][what]


_WORDS = {
    "en": {
        "learned": "I will remember that. When you ask \u201c{question}\u201d, I say: {answer}",
        "several": "I will remember {count} things:",
        "corrected": "I have corrected that. When you ask \u201c{question}\u201d, I say now: {answer}",
        "untaught": "I could not remember that.",
        "stays": "For \u201c{question}\u201d you taught me: {answer} That stays, since it is not what you take back. "
        "Tell me what is right, and it takes its place.",
        "nothing": str(NOTHING_TOLD),
        "failed": "That did not work.",
        "forgotten": "I have forgotten what you taught me for \u201c{question}\u201d. You still see what was said in "
        "this chat, and the log keeps your questions; I no longer read any of it.",
        "choose": "I know {count} things that may be meant. Choose what I should forget.",
        "choose_one": "This may be meant. Shall I forget it?",
        "all": "I know {count} things from you. Choose what I should forget.",
        "unknown": "You have not taught me anything about \u201c{topic}\u201d, so there is nothing to forget.",
        "listed": "You have taught me {count} things:",
        "listed_one": "You have taught me one thing:",
        "empty": "You have not taught me anything yet. Write \u201cRemember that my dentist is Dr. Quill.\u201d, for "
        "example, and I know it in every chat.",
    },
    "de": {
        "learned": "Das merke ich mir. Auf die Frage \u201e{question}\u201c sage ich: {answer}",
        "several": "Ich merke mir {count} Dinge:",
        "corrected": "Das habe ich berichtigt. Auf die Frage \u201e{question}\u201c sage ich jetzt: {answer}",
        "untaught": "Das konnte ich mir nicht merken.",
        "stays": "Auf die Frage \u201e{question}\u201c hast du mir beigebracht: {answer} Das bleibt so, denn du nimmst "
        "etwas anderes zurück. Sag mir, was stimmt, dann ersetzt es die alte Antwort.",
        "nothing": "Darin ist nichts zu merken. Schreib einen Satz wie: Mein Zahnarzt ist Dr. Quill.",
        "failed": "Das hat nicht geklappt.",
        "forgotten": "Ich habe vergessen, was du mir zu \u201e{question}\u201c beigebracht hast. Du siehst noch, "
        "was in "
        "diesem Chat stand, und das Protokoll behält deine Fragen; ich lese nichts mehr davon.",
        "choose": "Das könnten {count} Dinge sein. Wähle aus, was ich vergessen soll.",
        "choose_one": "Das könnte gemeint sein. Soll ich es vergessen?",
        "all": "Ich weiß {count} Dinge von dir. Wähle aus, was ich vergessen soll.",
        "unknown": "Über \u201e{topic}\u201c hast du mir nichts beigebracht, also gibt es nichts zu vergessen.",
        "listed": "Du hast mir {count} Dinge beigebracht:",
        "listed_one": "Du hast mir eine Sache beigebracht:",
        "empty": "Du hast mir noch nichts beigebracht. Schreib zum Beispiel \u201eMerk dir, dass mein Zahnarzt "
        "Dr. Quill heißt.\u201c, und ich weiß es in jedem Chat.",
    },
}
