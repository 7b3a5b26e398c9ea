"""Rules that turn a statement into a question: "my dentist is Dr. Quill" answers "Who is my dentist?".

The statement is cut into subject, verb and the rest. Their words decide the question word (where, when, who ...).
"""

from __future__ import annotations

import re

from py_core.learning.teaching.words import (
    BASES,
    BE,
    EVENTS,
    IRREGULAR_BASES,
    MODALS,
    MONEY,
    PARTICLES,
    PAST,
    PEOPLE,
    PLACES,
    RELATIVE,
    THIRD_PERSON,
    TIMES,
    TITLES,
    words_of,
)

_LOWERED = words_of(
    "my our your his her its their the a an this that these those he she it we you they there every each all some "
    "when if in on at for to with from while against during last next"
)
"""First words of a sentence that are lower case when they no longer stand at the beginning."""
_ADVERBS = words_of("never always usually often sometimes still now also")
_UNITS = words_of("° °c °f c f k degrees celsius fahrenheit kelvin percent % km/h mph")
_LEADS = words_of("in at on for with against to while during from before after this last next every")
_ABOUT = "What do you know about"
LONGEST_TOPIC = 8
"""The most words of a statement that the question repeats if no rule knows its subject."""


def question_of(statement: str) -> str:
    """The question that a statement answers, as the same person would ask it. Without its full stop; not empty. A
    statement that takes another back ("my dentist is no longer Dr. Quill") gives the same question as the other."""
    before = _NO_MORE.sub("", statement).strip()
    is_taken_back, statement = before != statement, before or statement
    words = statement.split()
    if lead := _lead(words):
        asked = question_of(" ".join(words[lead:]))
        return _about(words) if asked.startswith(_ABOUT) else f"{asked[:-1]} {_inner(words[:lead])}?"
    at = _verb_at(words)
    if at is None or not _inner(words[:at]):
        return _about(re.split(r"(?<![\d\s])\s*[:=]\s*(?=\w)", statement)[0].split() or words)
    subject, verb, rest = _inner(words[:at]), words[at].lower(), words[at + 1 :]
    if not rest and verb not in THIRD_PERSON:
        return _about(words[:at])
    if verb in MODALS and (modal := _WHOLE.get(verb, verb.removesuffix("n't"))) != verb:
        verb, rest = modal, ["not", *rest]
    is_denied = rest[:1] == ["not"] and len(rest) > 1
    if is_denied and (is_taken_back or verb in BE):
        rest = rest[1:]
    if verb in BE and len(rest) > 2 and rest[0].lower() == "my" and rest[1].lower() in ("favourite", "favorite"):
        return f"What {verb} {' '.join(rest)}?"
    if _is_name(words[:at]) and _is_about_another(verb, rest):
        return f"Who {words[at]} {' '.join(rest)}?"
    if verb in BE:
        return _of_being(subject, verb, rest)
    if subject.split()[0] == "there":
        return _about(words)
    if verb in MODALS or (verb in ("do", "does", "did") and (is_denied or not BASES.isdisjoint(rest[:1]))):
        return _of_doing(subject, verb, rest[0], rest[1:])
    if verb in ("has", "have", "had"):
        return _of_having(subject, verb, rest)
    helper, base = _base_of(verb)
    return _of_doing(subject, helper, base, rest)


_NO_MORE = re.compile(r"\b(?:now )?no longer |,? (?:any ?more|any longer|no more|now)$", re.IGNORECASE)
_WHOLE = {"cannot": "can", "can't": "can", "won't": "will"}


_HELPERS = BE | MODALS | {"has", "have", "had", "do", "does", "did"}


def is_statement(text: str) -> bool:
    """True if a text has a subject, a verb and something behind it."""
    words = text.split()
    at = _verb_at(words)
    begins = bool(words) and words[0].lower() not in _HELPERS
    return begins and at is not None and at + 1 < len(words) and not _lead(words)


def has_verb(statement: str) -> bool:
    """True if a verb that the rules know stands behind a subject."""
    return _verb_at(statement.split()) is not None


def _lead(words: list[str]) -> int:
    """The number of words before the subject: two in "In May I ran 86 miles"."""
    if words[0].lower() in ("this", "next", "last", "every") and len(words) > 3 and words[1].lower() in TIMES:
        return 2 if _verb_at(words[2:]) is not None else 0
    if words[0].lower() in _LEADS:
        for at, word in enumerate(words[1:LONGEST_TOPIC], 1):
            if word in ("I", "we", "you", "he", "she", "they") or (at > 1 and word in ("my", "our", "the")):
                return at if _verb_at(words[at:]) is not None else 0
    return 0


def _verb_at(words: list[str]) -> int | None:
    """The index of the statement's verb, skipping clauses about the subject ("the man who lives next door")."""
    skip = 0
    for at, word in enumerate(words):
        lower = word.lower().strip(",;")
        if at == 0 or word[0].isupper():
            continue
        if lower in RELATIVE and not skip:
            skip = 1
        elif _is_verb(lower, words[at - 1].lower(), at) or (
            lower in ("do", "does", "did") and words[at + 1 : at + 2] == ["not"]
        ):
            if not skip:
                return at
            skip -= 1
    return None


def _is_verb(word: str, before: str, at: int) -> bool:
    if word in BE or word in MODALS or word in ("has", "have", "had"):
        return True
    if at == 1 and before in ("i", "we", "you", "they"):
        return word not in {"and", "or", "both", "all", *_ADVERBS} and not word.endswith("ly")
    if at == 2 and before in _ADVERBS and word in BASES:
        return True
    if before in (
        "my",
        "our",
        "your",
        "the",
        "a",
        "an",
        "his",
        "her",
        "their",
        "its",
        "of",
        "for",
        "to",
        "in",
        "on",
        "at",
    ):
        return False
    several = before.endswith("s") and not before.endswith(("'s", "\u2019s", "ss"))
    return (
        word in THIRD_PERSON or word in PAST or (word.endswith("ed") and len(word) > 4) or (several and word in BASES)
    )


def _is_name(words: list[str]) -> bool:
    """True if a subject is somebody's name."""
    is_name = words[0].lower() not in _LOWERED and words[0] != "I"
    return is_name and all(word[0].isupper() or has_no_case(word[0]) for word in words)


def has_no_case(letter: str) -> bool:
    """True if the letter's script has no capitals for names, as Chinese, Arabic and Georgian."""
    return letter.isalpha() and (letter.lower() == letter.upper() or "\u10d0" <= letter <= "\u10ff")


def _is_about_another(verb: str, rest: list[str]) -> bool:
    """True if it tells more about another thing than its subject: "Vasco is my drummer", "Ann has the keys"."""
    if verb in BE:
        return rest[0].lower() in ("my", "our") or (rest[0].lower() == "the" and _head(" ".join(rest)) in PEOPLE)
    return bool({"my", "our"} & set(rest)) or (verb in _DEEDS and rest[0] == "the")


_DEEDS = words_of("has teaches leads fixes runs takes owns reviews won keeps approves wrote founded")


def _of_being(subject: str, verb: str, rest: list[str]) -> str:
    if rest[0].lower() == "not":
        return _about(subject.split())
    if rest[0].lower() in _ADVERBS and len(rest) > 1:
        return _of_being(subject, verb, rest[1:])
    if subject.split()[0] == "there":
        return _about(rest)
    first, last = rest[0].lower(), rest[-1].lower().strip(".,")
    being = "am" if verb == "are" and subject == "I" else verb
    if first == "due":
        return f"When {being} {subject} due?"
    if first in ("called", "named"):
        return f"What {being} {subject} {first}?"
    if first == "from" and len(rest) > 1:
        return f"Where {being} {subject} from?"
    if last == "old" or (subject in ("I", "he", "she") and len(rest) == 1 and first.isdigit()):
        return f"How old {being} {subject}?"
    if _is_price(rest):
        return f"How much {being} {subject}?"
    if len(rest) >= 3 and rest[1].lower() == "by" and first.isalpha():
        return f"Who {being} {subject} {first} by?"
    if _is_participle(first) and len(rest) > 1:
        if rest[1].lower() in PLACES | {"to", "with", "of", "for", "from"}:
            asks = _asks_for(rest[1:], subject)
            return f"{asks} {being} {subject} {first}{'' if asks in ('When', 'Where') else ' ' + rest[1].lower()}?"
        return f"What {being} {subject} {first}?"
    is_word = not rest[0][0].isupper() and not first[0].isdigit() and first not in {"the", "a", "an", *PLACES}
    if is_word and len(rest) >= 3 and rest[1].lower() in ("to", "of", "about", "for", "with", "at"):
        return f"What {being} {subject} {first} {rest[1].lower()}?"
    asks = _asks_for(rest, subject)
    if asks == "What" and (_names_a_person(rest) or _head(subject) in PEOPLE) and _names_someone(rest):
        asks = "Who"
    return f"{asks} {being} {subject}?"


def _of_having(subject: str, verb: str, rest: list[str]) -> str:
    helper = {"has": "does", "have": "do", "had": "did"}[verb]
    number = rest[0].lower()
    if (number.replace(",", "").isdigit() or number in _NUMBERS) and len(rest) > 1:
        return f"How many {rest[1].strip('.,')} {helper} {subject} have?"
    if number == "to" and len(rest) > 1:
        return f"What {helper} {subject} have to {rest[1]}?"
    if number == "the" and len(rest) > 2 and (rest[2][0].isdigit() or rest[2][0].isupper()):
        return f"What {rest[1]} {helper} {subject} have?"
    if number in ("a", "an", "the") and "of" in rest[1:4]:
        thing = " ".join(rest[1 : rest.index("of")])
        return f"What {thing} {helper} {subject} have?"
    return f"What {helper} {subject} have?"


_NUMBERS = words_of("no one two three four five six seven eight nine ten eleven twelve twenty thirty fifty")


def _of_doing(subject: str, helper: str, base: str, rest: list[str]) -> str:
    base = base.lower()
    if base == "not" and rest:
        base, rest = rest[0].lower(), rest[1:]
        helper = f"{helper} {subject} not"
    else:
        helper = f"{helper} {subject}"
    if rest and rest[0].lower() in PARTICLES:
        base, rest = f"{base} {rest[0].lower()}", rest[1:]
    if base in ("cost", "weigh", "earn", "pay", "save", "owe") and rest and any(c.isdigit() for c in rest[0]):
        return f"How much {helper} {base}{_tail(rest[1:])}?"
    if (rest[:1] == ["for"] or base in ("take", "last")) and any(word[0].isdigit() for word in rest[:3]):
        return f"How long {helper} {base}?"
    if len(rest) > 1 and (rest[0].isdigit() or rest[0].lower() in _NUMBERS - {"no", "one"}):
        return f"How many {rest[1].strip('.,')} {helper} {base}?"
    if base == "mean":
        return f"What {helper} mean?"
    if not rest:
        return f"What {helper} do?"
    asks = _asks_for(rest, "")
    if asks in ("Where", "When"):
        return f"{asks} {helper} {base}?"
    place = _place_at(rest)
    if place is not None and base in _PUTS:
        object_, where = rest[:place], rest[place:]
        return f"{_asks_for(where, '')} {helper} {base} {_small(' '.join(object_))}?"
    if rest[0].lower() in ("to", "for", "with", "as", "about", "of", "on", "from") and len(rest) > 1:
        if rest[0].lower() == "to" and base in ("go", "come", "travel", "move", "fly", "run"):
            return f"Where {helper} {base}?"
        return f"What {helper} {base} {rest[0].lower()}?"
    return f"What {helper} {base}?"


_PUTS = words_of("keep put leave park hide store hold buy meet see lose find forget take get order plant spend")


def _tail(words: list[str]) -> str:
    return f" {' '.join(words)}" if words and words[0].lower() in ("a", "per", "every") else ""


def _asks_for(rest: list[str], subject: str) -> str:
    """Where, When or What, depending on how the words about the subject begin."""
    first, words = rest[0].lower(), {word.lower().strip(".,;") for word in rest}
    timely = bool(words & TIMES) or any(
        re.fullmatch(r"\d{1,2}[:.]\d\d|(?:1[5-9]|20)\d\d|\d{1,2}(?:am|pm)|\d{1,4}([/.-])\d{1,2}\1\d{1,4}", w)
        for w in words
    )
    if first in ("because", "since"):
        return "Why"
    if timely and (
        first in PLACES | {"from", "every", "until", "after", "before", "today", "tomorrow"} or first in TIMES
    ):
        return "When"
    if timely and (_head(subject) in EVENTS or re.fullmatch(r"the \d+(st|nd|rd|th).*", " ".join(rest).lower())):
        return "When"
    if first in ("in", "at", "on") and len(rest) > 1 and re.fullmatch(r"\d{1,2}(:\d\d)?", rest[1]):
        is_address = len(rest) > 2 and rest[2][0].isupper() and rest[2].lower().strip(".,") not in TIMES
        return "When" if _head(subject) in EVENTS or (first == "at" and not is_address) else "Where"
    if first == "at" and len(rest) == 3 and rest[1][0].isdigit() and rest[2].lower() in _UNITS:
        return "At what"
    return "Where" if (first in PLACES and len(rest) > 1) or first in ("here", "upstairs", "downstairs") else "What"


def _place_at(rest: list[str]) -> int | None:
    """The index of the words about a place or time that follow an object."""
    for at in range(1, len(rest) - 1):
        if rest[at].lower() in PLACES:
            return at
    return None


def _base_of(verb: str) -> tuple[str, str]:
    """The auxiliary of a question with this verb, and the verb form beside it."""
    if verb in PAST:
        return "did", PAST[verb]
    if verb in ("do", "does"):
        return verb, "do"
    if verb in THIRD_PERSON:
        if verb in IRREGULAR_BASES:
            return "does", IRREGULAR_BASES[verb]
        return "does", verb[:-1]
    if verb.endswith("ed") and len(verb) > 4:
        stem = verb[:-2]
        if stem[-1] == stem[-2] and stem[-1] not in "lsfe":
            return "did", stem[:-1]
        if verb.endswith("ied"):
            return "did", f"{verb[:-3]}y"
        return "did", verb[:-1] if _drops_e(stem) else stem
    return "do", verb


def _drops_e(stem: str) -> bool:
    """True if the stem of "moved", "used" or "located" ends with an e."""
    if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", stem):
        return True  # liked, baked
    return stem.endswith(("v", "s", "c", "z", "u", "dg", "ir", "ar", "or", "ur", "at")) and not stem.endswith("ss")


def _is_participle(word: str) -> bool:
    return word in ("born", "made", "kept", "built", "sold", "hidden", "written", "known", "held", "paid", "found") or (
        word.endswith("ed") and len(word) > 4
    )


def _is_price(rest: list[str]) -> bool:
    text = " ".join(rest[:3]).lower().strip(".")
    return (
        text[0] in "$€£"
        or bool(re.match(r"[\d,.]+\s*[$€£]", text))
        or (rest[0][0].isdigit() and bool(set(text.split()) & MONEY))
    )


def _names_a_person(rest: list[str]) -> bool:
    return rest[0].lower() in TITLES and len(rest) > 1


def _names_someone(rest: list[str]) -> bool:
    """True if the words name a person, not only describe one: "Bob", "Dr. Quill", "a friend of mine", "my aunt"."""
    return rest[0][0].isupper() or rest[0].lower() in ("my", "our", "your", "the", "his", "her", "their")


def _head(subject: str) -> str:
    """The head noun: "head" in "the head of sales", the last word in "my next dentist appointment"."""
    words = re.split(r" (?:of|at|in|for|from|with|on|who|that|which) ", subject.lower())[0].split()
    return words[-1].strip(",'\u2019") if words else ""


def _inner(words: list[str]) -> str:
    """The subject as it is written inside a sentence."""
    return _small(" ".join(words).strip(" ,;"))


def _small(text: str) -> str:
    first, _, rest = text.partition(" ")
    if first.lower() == "i":
        return f"I {rest}".strip()
    return f"{first.lower()} {rest}".strip() if first.lower() in _LOWERED else text


def _about(words: list[str]) -> str:
    topic = _small(" ".join(words[:LONGEST_TOPIC]).strip(" ,;:.!?"))
    return f"{_ABOUT} {topic}?"
