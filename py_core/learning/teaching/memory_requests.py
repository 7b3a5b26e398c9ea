"""Recognizes requests to the memory itself: to forget something, to correct it, or to list what it holds.

    asked_of_memory("Forget the door code of the office.")      # Forget("the door code of the office")
    asked_of_memory("No, my dentist is Dr. Bauer now.")         # Correct("my dentist is Dr. Bauer")
    asked_of_memory("What do you know about me?")               # ListLessons()
    asked_of_memory("What do you know about bees?")             # None

The rules are English and German. They look only at the form of a message. The caller must find out whether the
message means anything that was taught.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Forget:
    """topic: what to forget, in the person's words; "" for everything. surely: nothing but the memory can be meant.
    language: "en" or "de", as in the other classes."""

    topic: str
    surely: bool = False
    language: str = "en"


@dataclass(frozen=True)
class Correct:
    """statement: the correct version."""

    statement: str
    language: str = "en"


@dataclass(frozen=True)
class ListLessons:
    """A request to list everything that was taught."""

    language: str = "en"


Asked = Forget | Correct | ListLessons

LONGEST = 300
"""The most characters of a message that the rules read."""

_POLITE = {
    "en": r"(?:(?:please|hey|ok|okay|sonata|and|so|now|well)[\s,]+)*(?:(?:can|could|will|would) you (?:please )?)?"
    r"(?:i (?:want|would like|'d like) you to )?(?:please )?(?:you (?:can|should|may|must) )?",
    "de": r"(?:(?:bitte|hey|ok|okay|sonata|und|also|jetzt)[\s,]+)*(?:(?:kannst|könntest|würdest) du (?:bitte )?)?"
    r"(?:du (?:kannst|sollst|darfst) )?(?:bitte )?",
}
_TOLD = {
    "en": r"(?:everything |all |anything )?(?:that |what )?(?:i(?:'ve| have)? (?:ever )?(?:told|taught|said to"
    r"|gave|given) you|you "
    r"(?:know|learned|learnt|remember|remembered|have learned|have stored|were told))(?: about| of)?",
    "de": r"(?:alles,? )?was (?:ich dir (?:je )?(?P<topic>.*?)\s*(?:gesagt|beigebracht|erzählt|gegeben) habe"
    r"|du (?P<topic2>.*?)\s*(?:weißt|"
    r"gelernt hast|dir gemerkt hast))",
}
_FORGET = {
    "en": r"(?:forget|unlearn)(?: about)?|(?:stop|quit) remembering|(?:do not|don't) remember(?=.* any ?more)",
    "de": r"(?:vergiss|vergesse)(?: bitte)?",
}
_DELETE = {"en": r"delete|remove|erase|wipe|clear", "de": r"lösche?|entferne?|streiche?"}
_MEMORY = {
    "en": r"\s+(?:from|out of|in) (?:your|the|my) (?:memory|lessons|facts)",
    "de": r"\s+aus (?:deinem|dem) (?:gedächtnis|speicher)",
}
_WHOLE = {
    "en": r"(?:all of )?(?:your|the whole) memory|everything (?:from|in) your memory",
    "de": r"(?:dein(?:en?)?|das ganze) (?:ganzes )?(?:gedächtnis|speicher)",
}
_AFTER = {
    "en": r"(?:,? (?:please|now|again|for ever|forever|completely|any ?more))*",
    "de": r"(?:,? (?:bitte|wieder|für immer|ganz|komplett))*",
}
_ALL = {
    "en": r"(?:everything|all|all (?:of )?(?:it|this|that|your lessons|my facts)|all about me|everything about me|me)",
    "de": r"(?:alles|alles über mich|mich)",
}
_VAGUE = re.compile(
    r"(?:about )?(?:it|that|this|them|those|these|him|her|me|us|all that|the (?:last|previous|above).*"
    r"|what i (?:just )?said|es|"
    r"das|dies|ihn|sie|mich|uns|das (?:alles|ganze))",
    re.IGNORECASE,
)
_LEADING = {
    "en": r"(?:that|about|what|the fact that|everything about|all about)\s+",
    "de": r"(?:dass|über|die tatsache, dass|alles über)\s+",
}

_WRONG = {
    "en": r"(?:(?:no|nope|sorry)[\s,.!:]*)?(?:that|this|it)(?:'s| is| was)(?:n't| not)? (?:all |completely |just )?"
    r"(?:wrong|(?<=not )(?:right|true|correct)|(?<=n't )(?:right|true|correct)|incorrect|false|a mistake|outdated"
    r"|out of date)(?: any ?more)?",
    "de": r"(?:nein[\s,.!:]*)?(?:das|es) (?:ist|war|stimmt)(?: so)? (?:nicht(?: richtig| wahr)?|falsch"
    r"|veraltet)(?: mehr)?",
}
_NO = {"en": r"(?:no|nope|wrong|correction|actually)", "de": r"(?:nein|falsch|korrektur)"}
_STATES = {
    "en": re.compile(r"(?:my|our|i|we)\b", re.IGNORECASE),
    "de": re.compile(r"(?:mein|meine|unser|unsere|ich|wir)\b", re.IGNORECASE),
}
_NOW = {
    "en": r",? (?:now|from now on|these days|instead)$|(?<=\b(?:is|am)) now\b|(?<=\bare) now\b",
    "de": r",? (?:ab jetzt|jetzt|nun|inzwischen|stattdessen)\b",
}

_LIST = {
    "en": r"(?:(?:tell|show) me |list |say )?(?:all |everything )?(?:that )?(?:"
    r"what (?:do|did|have|has|can) you (?:already |actually )?(?:know|remember|learn(?:ed|t)?|stored?|saved?"
    r"|kept|memori[sz]ed?)"
    r"(?: about (?:me|us|myself)| of me| from me)"
    r"|what (?:did|have) (?:i|we) (?:ever )?(?:teach|taught|tell|told)(?: to)? you(?: so far| about (?:me|myself))?"
    r"|what (?:have you|did you) (?:learn|learned|learnt|memori[sz]ed?)(?: so far| from me)"
    r"|(?:what|everything) (?:you (?:know|remember)|you have learned|you've learned) about (?:me|us|myself)"
    r"|(?:what|everything) (?:that )?i(?:'ve| have)? (?:taught|told) you(?: so far)?"
    r"|do you (?:know|remember) (?:anything|something) about me"
    r"|what(?:'s| is) in your memory|(?:your|my) (?:lessons|facts))",
    "de": r"(?:(?:sag|zeig|nenn)e? mir,? )?(?:bitte )?(?:alles,? )?(?:"
    r"was wei(?:ß|ss)t du (?:schon |eigentlich |alles )?(?:über|von) (?:mich|mir|uns)(?: alles)?"
    r"|was (?:du (?:schon |alles )?(?:über|von) (?:mich|mir|uns) weißt)"
    r"|was (?:habe|hab) ich dir (?:schon |alles |bisher )?(?:beigebracht|gesagt|erzählt)"
    r"|was ich dir (?:schon |alles |bisher )?(?:beigebracht|gesagt|erzählt) habe"
    r"|was hast du (?:dir |über mich )(?:schon |alles |bisher )?(?:gemerkt|gelernt))",
}


def asked_of_memory(message: str) -> Asked | None:
    """The request, or None if a message asks nothing of the memory: "forget it" and "never forget that ..." do not."""
    text = " ".join(message.replace("\u2019", "'").split())
    if not text or len(text) > LONGEST:
        return None
    for language in ("en", "de"):
        asked = _listing(text, language) or _forgetting(text, language) or _correcting(text, language)
        if asked is not None:
            return asked
    return None


def _listing(text: str, language: str) -> ListLessons | None:
    found = re.fullmatch(rf"{_POLITE[language]}(?:{_LIST[language]})[\s?.!]*", text, re.IGNORECASE)
    return ListLessons(language) if found else None


def _forgetting(text: str, language: str) -> Forget | None:
    if text.endswith("?") and not re.match(r"(?:can|could|will|would|kannst|könntest|würdest)\b", text, re.IGNORECASE):
        return None
    verb = re.match(
        rf"{_POLITE[language]}(?:(?P<forget>{_FORGET[language]})|(?P<delete>{_DELETE[language]}))\b[\s:,]*",
        text,
        re.IGNORECASE,
    )
    if verb is None:
        return None
    what, surely = re.sub(rf"{_AFTER[language]}[\s.!?]*$", "", text[verb.end() :], flags=re.IGNORECASE), False
    if place := re.search(rf"{_MEMORY[language]}$", what, re.IGNORECASE):
        what, surely = what[: place.start()], True
    if told := re.match(rf"{_TOLD[language]}(?:\s+|$)", what, re.IGNORECASE):
        between = [given for given in told.groupdict().values() if given]
        what, surely = re.sub("^über ", "", " ".join([*between, what[told.end() :]]).strip()), True
        if not what or re.fullmatch(_ALL[language], what, re.IGNORECASE):
            return Forget("", True, language)
    elif verb["delete"] and re.fullmatch(_WHOLE[language], what, re.IGNORECASE):
        return Forget("", True, language)
    elif verb["delete"] and not surely:
        return None  # a file, a line of a text
    if re.fullmatch(_ALL[language], what, re.IGNORECASE):
        return Forget("", surely, language) if what.lower() not in ("me", "mich", "all") or surely else None
    if what.lower().startswith(("that ", "dass ")):
        surely = True
    topic = re.sub(rf"^(?:{_LEADING[language]})+", "", what, flags=re.IGNORECASE).strip(" \"“”'„,")
    if not re.search(r"\w", topic) or _VAGUE.fullmatch(what) or _VAGUE.fullmatch(topic):
        return None
    return Forget(topic, surely, language)


def _correcting(text: str, language: str) -> Correct | None:
    if text.endswith("?"):
        return None
    wrong = re.match(rf"(?:{_WRONG[language]})(?:\s*[:.,;!\u2013-]\s*|\s+)", text, re.IGNORECASE)
    no = re.match(rf"{_NO[language]}\s*[,.:!]\s*", text, re.IGNORECASE)
    if (found := wrong or no) is None:
        return None
    statement = text[found.end() :].strip().rstrip(".!").strip()
    if not _STATES[language].match(statement):
        return None
    return Correct(re.sub(_NOW[language], "", statement, flags=re.IGNORECASE), language)
