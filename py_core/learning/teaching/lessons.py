"""Rules that turn what a person tells into a question and its answer: something that can be asked for later.

    lesson_of("remember that my dentist is Dr. Quill")     # Told("Who is my dentist?", "Your dentist is Dr. Quill.")

The answer is the statement from the assistant's view (my becomes your, you becomes I). The question asks for what the
statement tells about its subject; if no rule knows that, it asks what is known about the subject. The person sees both
before they are kept, and can change them. The rules here are English; german.py has the German ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from py_core.learning.teaching import german
from py_core.learning.teaching.english import has_no_case, has_verb, is_statement, question_of
from py_core.learning.teaching.words import BASES, BE, MODALS, PAST, words_of
from py_core.passages.words import telling_words
from py_core.text_search import fold

_BEGINNING = re.compile(
    r"^\s*(?:(?:please|hey|ok|okay|sonata|and|also)[\s,]+)*(?:(?:can|could|will|would)\s+you\s+(?:please\s+)?)?"
    r"(?:please\s+)?(?:remember|memorise|memorize|learn|note|keep in mind|bear in mind|don't forget|do not forget"
    r"|you should know|for the record|for the future)\b\s*[:,-]?\s*(?:that\b\s*[:,]?\s*)?",
    re.IGNORECASE,
)
_ASKED_TO_REMEMBER = re.compile(
    r"^\s*(?:(?:please|hey|ok|okay|sonata|and|also)[\s,]+)*(?:(?:can|could|will|would)\s+you\s+(?:please\s+)?)?"
    r"(?:please\s+)?remember\s*(?:(?P<sign>that\b|:)(?!\s+(?:time|day|night|one|guy|summer|evening|moment)\b)|(?=(?:my|our|i)\b))"
    r"\s*+[:,]?\s*+(?=\S)",
    re.IGNORECASE,
)
_WHEN_ASKED = re.compile(
    r"^(?:when|if) (?:i|someone|anybody|anyone|somebody|people) asks? (?:you )?(?:about )?"
    r"[\"“']?(?P<q>.+?)[\"”']?,? "
    r"(?:then )?(?:you (?:should )?)?(?:say|answer|reply|respond(?: with)?) ?:? [\"“']?(?P<a>.+?)[\"”']?$",
    re.IGNORECASE,
)
_ANSWER_TO = re.compile(
    r"^the (?:right |correct )?answer to (?:the question )?[\"“']?(?P<q>.+)[\"”']? is:? "
    r"[\"“']?(?P<a>.+?)[\"”']?$",
    re.IGNORECASE,
)
_Q_AND_A = re.compile(r"^(?:q|question)\s*:(?P<q>.+?)\b(?:a|answer)\s*:(?P<a>.+)$", re.IGNORECASE | re.DOTALL)
_QUESTION_FIRST = re.compile(r"^(?P<q>[^?]{3,}\?)\s+(?P<a>\S.*)$", re.DOTALL)
_HELLO = (
    r"(?:hello|hi|hey|good\s+(?:morning|afternoon|evening|day|night)|thanks|thank\s+you(?:\s+(?:so|very)\s+much)?|bye"
    r"|goodbye|hallo|guten\s+(?:morgen|tag|abend)|gute\s+nacht|danke)(?:\s+(?:there|again|everyone|all|sonata)\b)?"
)
_GREETED = re.compile(rf"^(?:{_HELLO}\s*(?:[,.!]+\s*|$))+", re.IGNORECASE)
_GREETING_OF_ONE = re.compile(rf"{_HELLO}\s+\w+", re.IGNORECASE)
_PAIR = re.compile(r"\b[^\W\d]\w*\s*[:=]\s*\w")
"""A name and its value: "wifi: blue-tiger-9"."""
_CONTRACTIONS = (
    (r"\b(I)['\u2019]m\b", r"\1 am"), (r"\b(I|you|we|they)['\u2019]ve\b", r"\1 have"),
    (r"\b(you|we|they)['\u2019]re\b", r"\1 are"),
    (r"\b(he|she|it|there)['\u2019]s\b", r"\1 is"), (r"\b(I|you|he|she|it|we|they)['\u2019]ll\b", r"\1 will"),
    (r"\bisn['\u2019]t\b", "is not"), (r"\baren['\u2019]t\b", "are not"), (r"\bwasn['\u2019]t\b", "was not"),
    (r"\bdoesn['\u2019]t\b", "does not"), (r"\bdon['\u2019]t\b", "do not"), (r"\bdidn['\u2019]t\b", "did not"),
)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """A fact that a person told: a question as the person would ask it, and its answer as the assistant gives it.
    language: "en" or "de". statement: the person's words, if it was a statement."""

    question: str
    answer: str
    language: str = "en"
    statement: str = field(default="", compare=False)


def told_by(message: str) -> tuple[list[Told], str]:
    """The facts that a chat message asks to remember, a lesson for each ("remember that Peter is allergic to nuts and
    Mia is vegetarian" tells two), and the message's language: "" if it asks for something else, as "Do you remember my
    dentist?" does.
    """
    if (statement := asked_to_remember(message)) is not None:
        return lessons_of(statement), "en"
    statements = german.asked_to_remember(message)
    return [lesson for one in statements for lesson in lessons_of(one, "de")], "de" if statements else ""


def asked_to_remember(message: str) -> str | None:
    """The statement that an English message asks to remember ("remember that my dentist is Dr. Quill"). None if it asks
    for something else, as "Remember that time in Rome?" does."""
    if message.rstrip().endswith("?") or not (found := _ASKED_TO_REMEMBER.match(message)):
        return None
    statement = message[found.end() :].strip()
    if found["sign"]:
        return statement or None
    return statement if is_statement(statement) and not _JOINED & set(statement.lower().split()) else None


def lessons_of(statement: str, language: str = "") -> list[Told]:
    """A lesson for each fact of a statement. A continuation about the same subject ("my sister is Ann, and she lives in
    Rome") stays one fact. language: as in `lesson_of`."""
    return [told for fact in _facts(" ".join(statement.split())) if (told := lesson_of(fact, language)) is not None]


_JOINED = words_of(
    "if when while because unless until that whether who which or than so but although wenn weil dass ob oder als aber "
    "obwohl"
)
"""If a statement has one of these, its parts may depend on each other."""
_SAID_OF_ME = words_of("am was have live work like love hate prefer play speak")
_GOES_ON = words_of("it he she they this that these those there then so also es er sie das dies diese dort dann auch")

_POINTS_BACK = words_of("there then it them him her")


def _facts(statement: str) -> list[str]:
    """The parts of a statement that can stand alone; the whole statement if one cannot."""
    text = _without_titles(statement)
    if re.search(r"[\"“”„?:]", text) or _JOINED & set(re.findall(r"\w+", text.lower())):
        return [statement]
    parts = re.split(r"(?<=[^ .][.!;]) |,? (?:and|und) |, ", text)
    parts = [stripped for part in parts if (stripped := part.strip(" ,;"))]
    if parts[:1] and parts[0].startswith("I "):
        parts = [f"I {part}" if part.split()[0] in _SAID_OF_ME else part for part in parts]
    stand = all(
        part.split()[0].lower() not in _GOES_ON
        and part.split()[-1].lower().rstrip(".!") not in _POINTS_BACK
        and (is_statement(_spelled_out(part)) or german.is_statement(part))
        for part in parts
    )
    return [part.replace("\0", ".") for part in parts] if stand else [statement]


def lesson_of(text: str, language: str = "") -> Told | None:
    """The question and the answer of what a person tells. None if it states no fact: a greeting, a single word, a
    question without its answer. language: "de", or "" to detect it from the words."""
    whole = _GREETED.sub("", _unquoted(" ".join(text.split())), count=1)
    statement = _GREETED.sub("", _unquoted(_BEGINNING.sub("", whole, count=1)), count=1)
    if not re.search(r"\w", statement):
        return None
    for pattern in (_Q_AND_A, _WHEN_ASKED, _ANSWER_TO, _QUESTION_FIRST):
        if (found := pattern.match(statement)) and re.search(r"\w", found["q"]) and re.search(r"\w", found["a"]):
            return Told(_asked(found["q"]), _said(found["a"]))
    statement = _spelled_out(statement)
    if not _tells_something(statement):
        return None
    if language == "de" or german.is_german(statement):
        statement = german.straight(statement)
        return Told(german.question_of(statement), _said(german.flipped(statement)), "de", statement)
    first = re.split(r"(?<=[^\s.][.!])\s+(?=[A-Z])", _without_titles(statement))[0].replace("\0", ".")
    return Told(question_of(first.rstrip(" .!")), _said(flipped(statement)), statement=statement)


def _spelled_out(statement: str) -> str:
    """The statement without contractions."""
    for contraction, words in _CONTRACTIONS:
        statement = re.sub(contraction, words, statement, flags=re.IGNORECASE)
    statement = re.sub(r"(?<=\w)['\u2019]s\s+(?=(?:called|named|at|on|in|not|a|an|the)\s)", " is ", statement, count=1)
    if not has_verb(statement) and not german.is_german(statement):  # "my landlord's O'Brien"
        statement = re.sub(r"(?<=\w)['\u2019]s\s+(?=\S)", " is ", statement, count=1)
    return statement


def _unquoted(text: str) -> str:
    """The text without quotes around all of it."""
    found = re.fullmatch(r"\s*[\"“„'](?P<inner>[^\"“”„]*)[\"“”']\s*", text)
    return (found["inner"] if found else text).strip()


def _tells_something(statement: str) -> bool:
    """True if something is said about something. Three words count as that, since the rules do not know every verb.
    With a value, two are enough: "code 4471", "dog Rex"."""
    words = [word for word in statement.split() if re.search(r"\w", word)]
    if statement.endswith("?") or _GREETING_OF_ONE.fullmatch(statement.rstrip(" .!")):
        return False
    if len(words) > 2 or _PAIR.search(statement) or has_verb(statement):
        return True
    if len(words) < 2:
        return False
    first, last = words
    has_value = bool(re.search(r"\d", statement)) or (first[0].islower() and last[0].isupper())
    return has_value or first.lower() in ("he", "she", "it")


_DENIES = re.compile(
    r"\b(?:not|no longer|never|cannot|\w+n['\u2019]t|stopped|quit|used to|nicht|nie|kein(?:e[nrms]?)?)\b", re.IGNORECASE
)
_INSTEAD = re.compile(
    r"\b(?:but|instead|rather|sondern|stattdessen)\b|, (?:it|he|she|they|you|es|er|sie|du|ihr) \w", re.IGNORECASE
)
_WHO_AND_HOW = words_of(
    "i me my he him his she her it its they them their can could may might must should wo will would shall was were "
    "had ich mich mir mein meine er ihn sie ihr es war waren hatte"
)
"""A denial with one of these is about somebody else, or another time, than a lesson without it."""
_OF_DENIALS = words_of(
    "not no longer never cannot t any more anymore now again stopped quit used nicht mehr langer jetzt nie wieder doch "
    "kein keine keinen keiner keinem heisst dein deine deinen deinem deiner euer eure ihr"
)
"""Folded words of a denial that the denied statement may lack."""


def denies(answer: str) -> bool:
    """True if an answer says only that something is not so, or no longer."""
    return _DENIES.search(answer) is not None and _INSTEAD.search(answer) is None


def takes_back(told: Told, question: str, answer: str) -> bool:
    """True if what was told takes back what a lesson says: only one of them denies, and the lesson says everything else
    that was told, too. "You no longer live in Bonn." takes back "You live in Bonn.". It leaves "You live in Rome.", and
    also "You live in Bonn and Rome.", of which it would take too much. "You eat pork." takes back "You do not eat
    pork.", and leaves "You do not eat pork on Fridays."."""
    if denies(told.answer) == denies(answer):
        return False
    if not (is_statement(told.statement) or german.is_statement(told.statement)):  # "do I no longer live in Bonn"
        return False
    here, there = _plain_words(told.answer), _plain_words(answer)
    said, of_lesson = _affirmed(told.answer), _affirmed(answer)
    asked = telling_words(question)
    value = of_lesson - asked
    known = asked | value
    names = {fold(name) for name in re.findall(r"\b[^\W\d_a-zäöüß]\w*|\d\w*", told.answer)}
    is_whole = denies(answer) or _LISTED.search(answer) is not None
    return (
        not said.isdisjoint(value)
        and not (_WHO_AND_HOW & here) - there
        and not (denies(answer) and (_WHO_AND_HOW & there) - here)
        and ("did" not in here or any(word in PAST or word.endswith("ed") for word in there))
        and not (is_whole and any(not _has_verb(said, word) for word in value))
        and (not asked or any(_has_verb(asked, word) for word in telling_words(told.statement)))
        and all(word in known or (word not in names and _has_verb(known, word)) for word in said)
    )


def _affirmed(text: str) -> set[str]:
    """The content words except those of a denial."""
    return {word for word in telling_words(text) - _OF_DENIALS if "'" not in word and "\u2019" not in word}


_LISTED = re.compile(r",| and | und ")


def _plain_words(text: str) -> set[str]:
    """Words without a contracted "not": "can" from "can't", "would" from "wouldn't", "wo" from "won't"."""
    return set(re.findall(r"can(?=not\b|['\u2019]t\b)|\w+(?=n['\u2019]t\b)|\w+", text.lower()))


def _has_verb(known: set[str], word: str) -> bool:
    """True if a known word is this one, or differs from it only in its ending: live, lives, living."""
    lengths = [(other, max(3, min(len(word), len(other)) - 1)) for other in known]
    return any(word[:length] == other[:length] for other, length in lengths)


def flipped(statement: str) -> str:
    """A statement from the other speaker's view: "my dentist likes you" becomes "your dentist likes me". Text in double
    quotes stays."""
    parts = re.split(r"(\"[^\"]*\"|“[^”]*”)", statement)
    return "".join(part if at % 2 else _flipped(part, at == 0) for at, part in enumerate(parts))


_FLIPS = {
    "i": "you", "me": "you", "my": "your", "mine": "yours", "myself": "yourself", "we": "you", "us": "you",
    "our": "your", "ours": "yours", "ourselves": "yourselves", "your": "my", "yours": "mine", "yourself": "myself",
    "you are": "I am", "you were": "I was", "i am": "you are", "i was": "you were", "am i": "are you",
    "are you": "am I", "was i": "were you",
}  # fmt: skip
_FLIPPED = re.compile(
    r"\b(you are|you were|i am|i was|am i|are you|was i|i|me|my|mine|myself|we|us|our|ours|ourselves|yourself|yours|"
    r"your|you)\b",
    re.IGNORECASE,
)


NEAR = 200
"""Characters on each side of a word that are searched for its meaning."""


def _flipped(text: str, is_first: bool) -> str:
    def other(found: re.Match[str]) -> str:
        word = found[0]
        lower, before = word.lower(), text[max(found.start() - NEAR, 0) : found.start()].rstrip()
        if word in ("US", "ME", "MY") or (word in ("i", "Mine") and before):
            return word  # the country, the state; a letter
        last = before.split()[-1].lower() if before else ""
        if lower == "mine" and last and last not in BE:
            return word  # a gold mine
        if lower == "you":
            following = text[found.end() : found.end() + NEAR].split()[:1]
            is_subject = not last or last[-1] in ".,;:!?" or last in ("that", "and", "because", "if")
            changed = "I" if is_subject or _follows_a_subject(following) else "me"
        else:
            changed = _FLIPS[lower]
        begins = (not before and is_first) or before[-1:] in (".", "!", "?")
        return changed[0].upper() + changed[1:] if begins else changed

    return _FLIPPED.sub(other, text)


def _follows_a_subject(words: list[str]) -> bool:
    """True if these words after "you" make it the subject of a verb: "there you drink tea", not "I told you that"."""
    verbs = {*BASES, *MODALS, *PAST, "have", "still", "always", "never", "usually", "often"} - {"mean", "like"}
    return bool(words) and words[0].lower() in verbs


def _asked(question: str) -> str:
    question = question.strip(" \"“”'").rstrip(" ?.!,") + "?"
    return question[0].upper() + question[1:]


def _said(answer: str) -> str:
    """With a capital and a full stop if it is a sentence; a bare word such as a password stays as it is."""
    answer = answer.strip()
    words = answer.split()
    if len(words) < 3:
        return answer
    begins = not has_no_case(answer[0]) and words[0][1:].islower() | (len(words[0]) == 1)
    answer = answer[0].upper() + answer[1:] if begins else answer
    return answer if answer[-1] in ".!?:;\"”')" else f"{answer}."


def _without_titles(text: str) -> str:
    """With the dots of titles ("Dr. Quill") hidden, since they end no sentence."""
    return re.sub(r"\b(Dr|Mr|Mrs|Ms|Prof|St|No)\.", lambda found: f"{found[1]}\0", text)
