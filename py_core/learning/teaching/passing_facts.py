"""Facts that a person tells about themselves in passing, and may want remembered: "My sister's birthday is on 14
March.".

Precision before recall: what is only true today ("my head hurts", "I am tired", "my code does not work") is not
offered.
"""

from __future__ import annotations

import re

from py_core.learning.teaching.lessons import Told, lessons_of

LONGEST = 300
"""The most characters of a message that may tell something in passing."""
_SENTENCES = re.compile(r"(?<=[^\s.][.!])(?<!\bDr\.)(?<!\bMr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\d\.)\s+")
_GREETING = re.compile(r"^(?:hi|hello|hey|hallo)\b[\s,!.]*(?:sonata\b[\s,!.]*)?", re.IGNORECASE)
_NOTE = re.compile(
    r"^(?:note|notiz|fyi|for the record|for your information|by the way|btw|actually|übrigens)\s*[:,]\s*(?=\S)",
    re.IGNORECASE,
)

_NAME = r"(?:(?:Dr|Mr|Mrs|Ms|Prof|Herr|Frau)\.? )?[A-ZÄÖÜ][\w'\u2019.-]*(?: [A-ZÄÖÜ][\w'\u2019.-]*){0,3}"
_DATE = (
    r"(?:on |am )?(?:the )?\d{1,2}(?:st|nd|rd|th|\.)? (?:of )?[A-ZÄÖÜ][a-zä]+(?: \d{4})?|on [A-Z]\w+day"
    r"|(?:on |in )?[A-Z][a-z]+ \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?"
)
_OWN = (
    r"(?:my|our) (?:[a-z]+ ){0,2}[a-z]+(?:['\u2019]s? (?:[a-z]+ ){0,2}[a-z]+)?"
    r"(?: (?:of|at|for|in) (?:the |my |our )?[a-zA-Z]+)?"
)
_KEPT = (
    r"(?:passwords?|passcode|code|pin|number|address|e-?mail|iban|username|birthday|anniversary|name|"
    r"blood type|shoe size|size|timezone|time zone|native language|mother tongue|licen[cs]e plate)"
)
_VALUE = r"(?=\S*[\dA-Z@-])\S+(?: [\w-]*[\dA-Z][\w-]*)*"
_ENGLISH = [
    rf"{_OWN} (?:is|was) (?:called |named )?{_NAME}",
    rf"{_OWN} (?:is|are) (?:called|named) \S.*",
    rf"{_OWN} is {_DATE}",
    rf"(?:(?:my|our) (?:[\w-]+['\u2019]?s? ){{0,3}}|the (?:[\w-]+['\u2019]?s? ){{1,3}}){_KEPT}(?: (?:of|at"
    rf"|for) (?:[\w-]+ ){{0,2}}[\w-]+)? (?:is|are) {_VALUE}",
    r"my favou?rite [a-z]+ (?:is|are) (?!not\b)[\w-]+(?: [\w-]+){0,3}",
    rf"I(?: am|['\u2019]m) (?:called|named) {_NAME}",
    r"(?:I|we) (?:(?:live|work) (?:in|at|near) (?:the )?[A-Z][\w-]+|work for [A-Z][\w-]+|work as an? [a-z]+)(?: .*)?",
    r"I(?: am|['\u2019]m) (?:(?:severely |very )?allergic to|intolerant to|a (?:vegetarian|vegan|diabetic)"
    r"|vegetarian\b|vegan\b).*",
    rf"I(?: was|['\u2019]m|am) born (?:in|on) {_NAME}|I was born (?:in|on) \d.*",
    r"(?:I|we) have (?:\d+|two|three|four|five) (?:children|kids|sons|daughters|cats|dogs|brothers|sisters"
    r"|siblings)\b.*",
]
_GERMAN = [
    rf"(?:mein|meine|unser|unsere) (?:[a-zäöü]+ ){{0,2}}[A-ZÄÖÜ][\w-]+ (?:heißt|ist) {_NAME}",
    rf"(?:(?:der|die|das) )?(?:mein|meine|unser|unsere|[A-ZÄÖÜ][\w-]+)(?: [\w-]+){{0,3}} ist {_DATE}",
    r"(?:mein|meine|unser|unsere|der|die|das) (?:[\w-]+ ){0,3}?[\w-]*(?i:passwort|code|pin|nummer|adresse|geburtstag|"
    r"lieblings\w+)(?: (?:vom|von|für) [\w-]+(?: [\w-]+)?)? (?:ist"
    r"|lautet) (?=\S*[\dA-Z@-])\S+(?: [\w-]*[\dA-Z][\w-]*)*",
    rf"ich heiße {_NAME}",
    r"(?:ich|wir) (?:wohne|wohnen|arbeite|arbeiten|lebe|leben) (?:in|bei|auf|als) \S.*",
    r"ich bin (?:allergisch gegen|veganer|vegetarier|gegen) ?\S*.*",
]
_TELLS = [
    (re.compile(rf"(?:{'|'.join(rules)})[.!]?$"), language) for rules, language in ((_ENGLISH, ""), (_GERMAN, "de"))
]
_PASSING = re.compile(
    r"^(?:(?:my|our|mein|meine|unser|unsere) )(?:question|problem|code|program|script|idea|task|goal|homework"
    r"|essay|text|mail|"
    r"issue|answer|guess|point|plan|frage|aufgabe|text|idee|vorschlag|antwort)\b",
    re.IGNORECASE,
)


def sentences_of(message: str) -> list[str]:
    """The sentences of a message, without greetings. Empty for a message of several lines (a text, code)."""
    if len(message) > LONGEST or "\n" in message.strip() or '"' in message or "`" in message:
        return []
    return [_NOTE.sub("", _GREETING.sub("", sentence)) for sentence in _SENTENCES.split(message.strip())]


def told_in_passing(message: str) -> list[Told]:
    """The facts about the person in the first sentence of a message that tells any worth an offer."""
    for noted in sentences_of(message):
        small = noted[:1].lower() + noted[1:] if re.match(r"(?!I\b)\w", noted) else noted
        if _PASSING.match(small):
            continue
        for tells, language in _TELLS:
            if tells.match(small):
                return lessons_of(noted, language)
    return []
