"""Turns a German statement into a question and its answer: "mein Zahnarzt heißt Dr. Quill" answers "Wie heißt mein
Zahnarzt?". It does for German what english.py and lessons.py do for English, with fewer words."""

from __future__ import annotations

import re

from py_core.learning.teaching.english import has_no_case
from py_core.learning.teaching.words import words_of

_BEGINNING = re.compile(
    r"^\s*(?:(?:bitte|hey|hallo|ok|okay|sonata|und|auch)[\s,]+)*"
    r"(?:(?:kannst|könntest|würdest)\s+du\s+(?:dir\s+)?(?:bitte\s+)?)?"
    r"(?:merke?\s+dir|merken|notiere?(?:\s+dir)?|behalte?(?:\s+im\s+kopf)?|lerne?)(?:\s+bitte)?\s*+(?P<colon>:"
    r"|(?=,?\s*dass\b))?,?\s*+(?P<dass>dass\s++)?(?=\S)",
    re.IGNORECASE,
)
_BEGINS = words_of("mein meine unser unsere ich wir der die das dein deine")
_OWN = words_of("ich wir mein meine meinen meinem meiner unser unsere unseren unserem unserer nicht")
"""A statement that begins with another word is German if it contains one of these."""
_NO_MORE = re.compile(
    r"\b(?:(?:jetzt|nun)\s+)?nicht\s+(?:mehr|länger)\s*|\bkein(?:e[nrms]?)?\s+(?=(?:\S+\s+){1,3}mehr\b)"
)
_DETERMINERS = words_of(
    "mein meine meiner meines meinem meinen unser unsere unserer unseres unserem unseren dein deine deiner deines "
    "der die das des dem den ein eine einer eines"
)
_PRONOUNS = words_of("ich wir du er sie es")
_STANDS_FIRST = _PRONOUNS | words_of("mich mir uns dich dir niemand jemand jeder alle keiner nichts alles man")
_LINKS = words_of("vom von zum zur für des der meiner meines unserer unseres deiner deines")
"""They continue with a noun: "der Geburtstag meiner Schwester", "der Code vom Büro"."""
_VERBS = words_of(
    "ist sind war waren bin hat haben habe hatte hatten heißt heiße heißen wohnt wohne wohnen lebt lebe leben arbeitet "
    "arbeite liegt steht hängt parkt lautet kostet beginnt endet fängt hört kommt fährt fahre geht gehe mag "
    "mögen liebt "
    "isst esse trinkt trinke spielt spiele spricht spreche liest lese sammelt sammle kann muss darf will soll braucht "
    "hasse hasst schlafe schläft schlafen mache macht machen kaufe kauft kaufen koche kocht kochen rauche raucht "
    "rauchen nehme nimmt nehmen gebe gibt sehe sieht treffe trifft treffen "
    "brauche besitzt trägt trage bekommt kriegt heiratet studiert studiere lernt dauert wiegt gehört öffnet schließt"
)
_PEOPLE = re.compile(
    r"(?:arzt|ärztin|chefin?|bruder|schwester|mutter|vater|freund(?:in)?|mann|frau|partner(?:in)?|lehrer(?:in)?|tante|"
    r"onkel|cousine?|nachbar(?:in)?|vermieter(?:in)?|berater(?:in)?|anwalt|anwältin|kolleg(?:e|in)"
    r"|trainer(?:in)?|sohn|tochter|oma|opa|"
    r"hausmeister(?:in)?|friseur(?:in)?|betreuer(?:in)?)$",
    re.IGNORECASE,
)
_SECRET = re.compile(r"(?:passwort|code|pin|nummer|adresse|kennwort|iban)$", re.IGNORECASE)
_PLACES = words_of("in im bei beim auf unter über neben hinter vor an am zwischen")
_TIMES = re.compile(
    r"^(?:am|im|um|ab|vom|jeden|jede)\s+(?:\d|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|montags|ersten|letzten|"
    r"(?:jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)\w*|(?:früh|winter|sommer|herbst)\w*|morgen|abend|nachmittag|"
    r"tag|woche|monat|jahr)"
    r"|^(?:der\s+)?\d{1,2}\.\s+(?:jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)"
    r"|^(?:heute|morgen|übermorgen|montags|dienstags|mittwochs|donnerstags|freitags|samstags|sonntags)\b",
    re.IGNORECASE,
)
_ASIDES = words_of("jetzt nun inzwischen derzeit seitdem übrigens leider auch schon noch seit")
_BEFORE_NOUNS = words_of("gegen mit ohne für von vom zum zur nach aus seit ab bis um durch")
_REFERS = words_of("er es sie das dies diese dort da dann dabei damit dafür davon auch deshalb")
"""A clause that begins with one of these needs the clause before it."""
_SUBORDINATE = words_of("dass weil wenn ob als wann wo wie was bevor nachdem während obwohl damit falls sobald")
_TITLES = words_of("frau herr dr. prof. tante onkel")
_SEPARATED = re.compile(
    r"(auf|aus|ab|an(?!twort)|ein|vor|mit|nach|zurück|weg|teil|fest|heim|los(?=geh|fahr|lauf)|um(?=zieh|steig|tausch|räum))([^\Waeiouäöü]\w{3,})"
)
"""Verbs whose prefix comes last in a main clause: aufstehe."""
_PREFIXES = words_of("auf aus ab an ein vor mit nach zurück weg teil fest heim los um")
_AUXILIARIES = words_of("bin ist sind war waren wurde wurden wird werden habe hat haben hatte hatten")
_PARTICIPLE = re.compile(r"(?:auf|aus|ab|an|ein|um|vor|mit|weg)?ge\w+(?:t|en)|\w+iert")
_ADVERBS = words_of("gern gerne nie immer oft meistens lieber am liebsten nicht")
_BEING = words_of("ist sind war waren bin heißt heiße heißen")
_HAS = words_of("hat habe haben")
_NUMBERS = words_of("zwei drei vier fünf sechs sieben acht neun zehn elf zwölf")
_FORMS = {
    "bin": "bist", "habe": "hast", "war": "warst", "hatte": "hattest", "mag": "magst", "kann": "kannst",
    "will": "willst",
    "muss": "musst", "darf": "darfst", "soll": "sollst", "weiß": "weißt", "werde": "wirst", "heiße": "heißt",
    "esse": "isst", "fahre": "fährst", "lese": "liest", "sehe": "siehst", "nehme": "nimmst", "spreche": "sprichst",
    "vertrage": "verträgst", "gebe": "gibst", "helfe": "hilfst", "laufe": "läufst", "halte": "hältst", "lasse": "lässt",
    "fange": "fängst", "lade": "lädst", "wasche": "wäschst",
    "trage": "trägst", "schlafe": "schläfst", "vergesse": "vergisst", "treffe": "triffst", "sammle": "sammelst",
}  # fmt: skip
_WE = {"sind": "seid", "haben": "habt", "waren": "wart", "hatten": "hattet"}
_FLIPS = {
    "ich": "du", "mich": "dich", "mir": "dir", "wir": "ihr", "uns": "euch", "unser": "euer", "du": "ich",
    "dich": "mich",
    "dir": "mir", "dein": "mein", "mein": "dein",
}  # fmt: skip


def asked_to_remember(message: str) -> list[str]:
    """The statements that a message asks to remember, with the verb in second place: "merk dir, dass mein Zahnarzt Dr.
    Quill heißt" asks for "mein Zahnarzt heißt Dr. Quill". Empty if it asks for something else."""
    found = _BEGINNING.match(message)
    if found is None or message.rstrip().endswith("?"):
        return []
    statement = message[found.end() :].strip().rstrip(" .!")
    if not found["dass"]:
        return [statement] if found["colon"] or is_statement(statement) else []
    clauses = [part.removeprefix("dass ") for part in re.split(r",? und ", statement)]
    parts = [_main_clause(clause) for clause in clauses]
    if all(map(is_statement, parts)) or not all(clause.split() for clause in clauses):
        return parts
    ends = [clause.split()[-1] for clause in clauses]
    if (ends[0] in _VERBS or _SEPARATED.fullmatch(ends[0])) and all(end[0].islower() for end in ends):
        subject = clauses[0].split()[: _subject_end(clauses[0].split())]
        others = [_main_clause(" ".join([*subject, clause])) for clause in clauses[1:]]
        if not any(clause.split()[0].lower() in _REFERS for clause in clauses[1:]) and all(map(is_statement, others)):
            return [parts[0], *others]
        return [" und ".join([parts[0], *(" ".join(other.split()[len(subject) :]) for other in others)])]
    return [_main_clause(statement)]


def _main_clause(clause: str) -> str:
    """Turn a clause whose verb comes last into one with the verb behind the subject."""
    clause, comma, behind = clause.partition(", ")
    first, *others = behind.split() or [""]
    if comma and others and first in ("aber", "sondern"):
        behind = " ".join([first, others[-1], *others[:-1]])
    elif comma and first not in _SUBORDINATE:
        clause, behind = f"{clause}, {behind}", ""
    words = clause.split()
    end = _subject_end(words)
    if 0 < end < len(words) - 1 and words[-1][0].islower():
        split = _SEPARATED.fullmatch(words[-1])
        verb, prefix = (split[2], [split[1]]) if split else (words[-1], [])
        words = [*words[:end], verb, *words[end:-1], *prefix]
    return " ".join(words) + (f", {behind}" if behind else "")


def is_german(statement: str) -> bool:
    """True if a statement begins like a German one about a person."""
    words = statement.split()
    is_ours = bool(words) and (words[0].lower() in _BEGINS or not _OWN.isdisjoint(words))
    return len(words) > 2 and is_ours and _verb_at(words) is not None


def straight(statement: str) -> str:
    """Move "ich" or "wir" to the front of a statement that begins with something else: "in Bonn wohne ich" becomes "ich
    wohne in Bonn"."""
    words = statement.split()
    at = _verb_at(words)
    if at is None or words[0].lower() in _PRONOUNS or words[at + 1 : at + 2] not in (["ich"], ["wir"]):
        return statement
    first = words[0].lower()
    lead = [first if first in _PLACES | _ASIDES | _BEFORE_NOUNS else words[0], *words[1:at]]
    return " ".join([words[at + 1].capitalize(), words[at], *lead, *words[at + 2 :]])


def is_statement(text: str) -> bool:
    """True if it has a subject of its own, a verb, and something behind the verb."""
    words = text.split()
    at = _verb_at(words)
    return at is not None and at + 1 < len(words) and words[0].lower() not in (_PRONOUNS - {"ich", "wir"})


def question_of(statement: str) -> str:
    """The question that a statement answers, as the same person would ask it. A statement that takes another back ("ich
    wohne nicht mehr in Bonn") gives the same question as the statement it takes back."""
    statement = statement.rstrip(" .!")
    before = _NO_MORE.sub("", statement)
    if before != statement:
        return question_of(before.removesuffix(" mehr"))
    words = statement.split()
    at = _verb_at(words)
    if at is None or at + 1 >= len(words):
        return f"Was weißt du über „{statement}“?"
    subject, verb, rest = _small(words[:at]).rstrip(","), words[at], words[at + 1 :]
    end, last = " ".join(rest), rest[-1]
    noun = next((word for word in words[:at] if word[0].isupper() and word.lower() not in _DETERMINERS), words[0])
    if rest[0] == "seit" and len(rest) > 2:
        return question_of(" ".join([*words[: at + 1], *rest[2:]]))
    if rest[0] in _ASIDES and len(rest) > 1:
        return question_of(" ".join([*words[: at + 1], *rest[1:]]))
    if "nicht" in rest[:-1]:
        asked = question_of(" ".join(word for word in words if word != "nicht"))
        return asked if verb in _BEING else f"{asked[:-1]} nicht?"
    if rest[0] in _OWN and _may_begin_a_name(words[0]) and words[0].lower() not in _DETERMINERS | _PRONOUNS:
        return f"Wer {verb} {end}?"
    if verb in ("heißt", "heiße", "heißen"):
        return f"Wie {verb} {subject}?"
    if last in ("alt", "groß", "lang", "hoch", "schwer", "breit") and any(c.isdigit() for c in end):
        return f"Wie {last} {verb} {subject}?"
    if _TIMES.match(end):
        return f"Wann {verb} {subject}{f' {last}' if verb in _HAS else _closing(verb, rest)}?"
    if last == "geboren" and rest[0].isdigit():
        return f"Wann {verb} {subject} geboren?"
    if rest[0] in _PLACES and len(rest) > 1:
        return f"Wo {verb} {subject}{_closing(verb, rest)}?"
    if (rest[0].isdigit() or rest[0] in _NUMBERS) and len(rest) > 1 and verb in _HAS:
        return f"Wie viele {rest[1]} {verb} {subject}?"
    if verb == "kostet":
        return f"Wie viel kostet {subject}?"
    if "allergisch" in rest and "gegen" in rest:
        return f"Wogegen {verb} {subject} allergisch?"
    if _SECRET.search(noun):
        return f"Wie {'lauten' if verb == 'sind' else 'lautet'} {subject}?"
    if verb in ("ist", "war", "sind") and _PEOPLE.search(noun) and rest[0][0].isupper():
        return f"Wer {verb} {subject}?"
    adverbs = " ".join(word for word in rest[:2] if word in _ADVERBS)
    return f"Was {verb} {subject}{f' {adverbs}' if adverbs else ''}?"


def _closing(verb: str, rest: list[str]) -> str:
    """The part of the verb that comes last: "auf" in "stehe um 6 auf", "geboren" in "bin in Ulm geboren"."""
    last = rest[-1]
    closes = last in _PREFIXES or (verb in _AUXILIARIES and _PARTICIPLE.fullmatch(last))
    return f" {last}" if closes and len(rest) > 1 else ""


def flipped(statement: str) -> str:
    """A statement from the other speaker's view: "mein Zahnarzt mag mich" becomes "dein Zahnarzt mag dich"."""
    words = statement.split()
    at = _verb_at(words)
    if at is not None and words[at - 1].lower() in ("ich", "wir", "du") and at == 1:
        person = {"ich": _second_person, "du": _first_person}.get(words[0].lower(), _plural)
        words = [
            person(word)
            if number == at
            or (words[number - 1].endswith(("und", "aber")) and not {word, word.removesuffix("n")}.isdisjoint(_VERBS))
            else word
            for number, word in enumerate(words)
        ]
    for begin, word in enumerate(words[1:], 1):
        if word == "ich" and words[begin - 1].lower() in _SUBORDINATE:  # "wenn ich krank bin"
            end = next((number for number in range(begin, len(words)) if words[number][-1] in ",.;"), len(words) - 1)
            bare = words[end].rstrip(",.;")
            if bare in _FORMS or bare in _VERBS or bare.endswith("e"):
                words[end] = _second_person(bare) + words[end][len(bare) :]
    return " ".join(_other(word) for word in words)


def _verb_at(words: list[str]) -> int | None:
    for at, word in enumerate(words[1:], 1):
        if word in _VERBS or (at == 1 and words[0].lower() in ("ich", "wir", "du") and word[0].islower()):
            return at
    end = _subject_end(words)
    return end if 0 < end < len(words) and words[end][0].islower() and words[end].endswith(("t", "en")) else None


def _subject_end(words: list[str]) -> int:
    """The number of words of the subject (or of an object, "mich") at the beginning of a statement; 0 if unknown."""
    first = words[0].lower() if words else ""
    at = 1 if first in _STANDS_FIRST else _noun_end(words, 0)
    while words[at : at + 1] == ["und"] and at + 1 < len(words):  # "mein Mann und ich"
        at = at + 2 if words[at + 1] in _PRONOUNS else _noun_end(words, at + 1)
    if at < len(words) and words[at - 1].endswith(","):  # "meine Tochter, die in Kiel lebt,"
        at = next((number + 1 for number in range(at, len(words)) if words[number].endswith(",")), at)
    return at if first in _STANDS_FIRST | _DETERMINERS or (words and _may_begin_a_name(words[0])) else 0


def _noun_end(words: list[str], at: int) -> int:
    """The index of the end of the noun phrase that begins at this word."""
    first = words[at].lower() if words else ""
    if words and first not in _DETERMINERS and _may_begin_a_name(words[at]):
        name = next((number for number in range(at, len(words)) if not _may_begin_a_name(words[number])), len(words))
        if first in _TITLES or _DETERMINERS.intersection(words[name : name + 1]):
            return max(at + 1, min(name, len(words) - 2))  # "Frau Dr. Weiß meine Ärztin ist"
    while at < len(words):
        if words[at].lower() in _DETERMINERS:
            at += 1
        while at < len(words) and words[at][0].islower():
            at += 1
        if at < len(words):
            at += 1
        if words[at : at + 1] == [] or words[at].lower() not in _LINKS or words[at + 1 : at + 2] == []:
            break
        if words[at + 1][0].isdigit():  # "mein Geburtstag der 3. Mai ist"
            break
        at += 1
    return at


def _may_begin_a_name(word: str) -> bool:
    return word[0].isupper() or has_no_case(word[0])


def _small(words: list[str]) -> str:
    first = words[0].lower() if words[0].lower() in _DETERMINERS | _PRONOUNS else words[0]
    return " ".join([first, *words[1:]])


def _second_person(verb: str) -> str:
    if verb in _FORMS:
        return _FORMS[verb]
    stem = verb.removesuffix("e")
    if re.search(r"[td]$|[^aeiouäöülrhmn][nm]$", stem):
        return f"{stem}est"
    return f"{stem}t" if stem.endswith(("s", "ß", "z")) else f"{stem}st"


def _first_person(verb: str) -> str:
    known = {second: first for first, second in _FORMS.items()}.get(verb)
    return known or f"{verb.removesuffix('t').removesuffix('s')}e"


def _plural(verb: str) -> str:
    stem = verb.removesuffix("en")
    return _WE.get(verb) or (f"{stem}et" if stem.endswith(("t", "d")) else f"{stem}t")


def _other(word: str) -> str:
    bare = word.lower().rstrip(".,;:!")
    for own, other in _FLIPS.items():
        ending = bare.removeprefix(own)
        if bare == own or (
            bare.startswith(own) and own in ("mein", "dein", "unser") and ending in ("e", "er", "es", "em", "en")
        ):
            stem = "eur" if other == "euer" and ending else other
            said = stem + ending + word[len(bare) :]
            return said.capitalize() if word[0].isupper() else said
    return word
