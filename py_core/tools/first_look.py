"""Decides whether a message could be for a tool, before any tool is imported. It may be wrong if it says yes, but not
if it says no. The tools take long to import, and are not imported for each message."""

from __future__ import annotations

import re

LONGEST = 25_000
"""The most characters of a message that a tool may be asked for."""
_MOST_OF_A_QUESTION = 1000
_WORDS = re.compile(
    r"[²³√π]|\(\(\(|\b(?:"
    r"plus|minus|times|multipl\w+|divided?|squared?|cubed?|root|percent\w*|per cent|half of|third of|quarter of|"
    r"tenth of|twice|factorial|mod(?:ulo)?|power of|raised to|quotient|quotienten|add [\d.,]+|add up|subtract\w*|"
    r"subtrahiere|addiere|multipliziere|dividiere|teile|ziehe|differenz|difference (?:between|of) [\d.,]+|"
    r"thousand|tausend|(?:m|b|tr)illi(?:on(?:en)?|arden?)|tsd|mio|mrd|bio|remainder"
    r"|(?:sum|total|product|average|mean) of|mal|durch|hoch|quadrat|\w*wurzel|"
    r"prozent|hälfte|drittel|viertel|fakultät|doppelte|summe|produkt|durchschnitt|mittelwert|today\W?s?|tomorrow\W?s|"
    r"yesterday\W?s|date|what time|the time|current time|until|till?|since|weekday|leap ?year|"
    r"what (?:calendar |week)?(?:day|year|month|week)|which (?:day|year|month|week|calendar)|when (?:is|was)|"
    r"from now|(?:days?|weeks?|months?|years?|tage?n?|wochen?|monate?n?|jahre?n?) (?:of|between|from|after|before|to"
    r"|nach|vor|zwischen|vo[mn])|"
    r"heute|heutige|spät|uhr|uhrzeit|datum|wievielte\w*|schaltjahr|wochentag|"
    r"welche\w* (?:tag|jahr|monat|woche|kw|kalenderwoche)|wann (?:ist|war)|"
    r"in \w+ (?:days|weeks|months|years|tagen|wochen|monaten|jahren)|bis|seit|ago|was für ein\w*|"
    r"how (?:many|much|often|long)|wie ?viele?|wie (?:oft|lange)|convert|rechne|wandle|count the|zähle|backwards?|"
    r"in reverse|reversed?|rückwärts|von hinten|spell|buchstabiere?|drehe?|kehre?|solve|löse?|equals|"
    r"(?:costs?|kosten|kostet|weighs?|wiegen|wiegt) \D?\d"
    r")\b"
    r"|\b(?:miles?|feet|foot|inch(?:es)?|ounces?|pounds?|cups?|gallons?|celsius|fahrenheit|hours?|minutes?) (?:in|to) "
    r"|\b(?:ein|eine|a|an|one|zwei|two) \w+ (?:in|to) \w+",
    re.IGNORECASE,
)
_DAYS_ON = re.compile(r"[-+] ?\w+ (?:days?|weeks?|months?|years?|tage?|wochen?|monate?|jahre?)\b", re.IGNORECASE)
_SIGNS = re.compile(r"[\d)!%²³]\s*(?:[-+*/^×÷·⋅∙\u2212\u2013!%=]|:\s|[xX]\s*\d)|[a-z]\(-?\d|\d\s*pi\b|\d\(|[x-z)] ?=")
_CONVERSION = re.compile(
    r"(?:^|\s)-?(?>[\d.,]*\d)(?:[^\s\d]\S*)?(?:\s[^\s\d]\S*){0,3} (?:in|to|into|as|zu|nach) \D\S*(?:\s\S+){0,3}$",
    re.IGNORECASE,
)
_FEET = re.compile(r"\d ?(?:'|\u2032|\u2019|feet|ft)")
_TIMES = re.compile(r"\b(?:from|between|von|zwischen) (?:noon|midnight|\d{1,2}(?::\d\d| ?[ap]\.?m))", re.IGNORECASE)
_LONGER = re.compile(r"\b(?:how many|count the|wie ?viele?|zähle)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")
_MOST_WORDS = 20
_MOST_WORDS_WITH_SIGNS = 8


def may_be_for_a_tool(message: str) -> bool:
    """True if the message has a word that belongs to a tool and is as short as such questions are, or has signs of
    arithmetic with few words, or looks like a conversion."""
    if len(message) > LONGEST:
        return False
    begin = message[:_MOST_OF_A_QUESTION]
    if _LONGER.search(begin[:100]):
        return True
    words = len(_WORD.findall(begin))
    if words > _MOST_WORDS:
        return False
    if _WORDS.search(begin) is not None or _CONVERSION.search(begin) or _FEET.search(begin):
        return True
    if _TIMES.search(begin) or _DAYS_ON.search(begin):
        return True
    return words <= _MOST_WORDS_WITH_SIGNS and _SIGNS.search(begin) is not None
