"""Counts letters, words and characters; reverses and spells words. A model reads tokens
and does not see letters."""

from __future__ import annotations

import re
import unicodedata

from py_core.tools.question import Exact, Question

LONGEST = 20_000
"""The most characters of a text whose words are counted."""
_WORD = r"[^\W\d_]{2,40}"
_QUOTED = r"[\"“”„'‘’`](?P<q>[^\"“”„`\n]{1,500}?)[\"“”'‘’`]"
_THE_WORD = r"(?:the )?(?:word|name|string|term) "
_DAS_WORT = r"(?:de[mrs]|das)?\s?(?:wort(?:es)?|begriff|namen?) "
_NOT_MEANT = {
    "it", "that", "this", "them", "him", "her", "me", "you", "us", "there", "total", "all", "my", "your", "his", "our",
    "their", "the", "a", "an", "one", "each", "every", "everything", "nothing", "words", "word", "name", "text",
    "english", "german", "alphabet", "time", "school", "life", "dollar", "dollars", "euro", "euros", "pound", "pounds",
    "rupees", "das", "dies", "es", "ihm", "ihr", "dem", "letters", "letter", "deutsch", "englisch", "alles",
}  # fmt: skip
_FORMS: tuple[tuple[str, str, str], ...] = (
    (rf"how many (?P<letter>letter |letters )?[\"'‘“]?(?P<c>[^\W_])[\"'’”]?(?P<s>['’]?s)?(?: are| are there| is|"
     rf" letters are there| letters)?(?: there)? in "
     rf"(?:(?P<the>{_THE_WORD})?(?P<w>{_WORD})|(?:{_THE_WORD})?{_QUOTED})", "en", "letter"),
    (rf"how (?:many times|often) does (?:the )?(?:letter )?[\"'‘“]?(?P<c>[^\W_])[\"'’”]? (?:appear|occur|show up) in "
     rf"(?:(?P<the>{_THE_WORD})?(?P<w>{_WORD})|(?:{_THE_WORD})?{_QUOTED})", "en", "letter"),
    (rf"count (?:the )?(?:number of )?(?:letter )?[\"'‘“]?(?P<c>[^\W_])[\"'’”]?(?P<s>['’]?s)? in "
     rf"(?:(?P<the>{_THE_WORD})?(?P<w>{_WORD})|(?:{_THE_WORD})?{_QUOTED})", "en", "letter"),
    (rf"(?:wie ?viele|zähle die) [\"'‚„]?(?P<c>[^\W_])[\"'‘“]?(?P<s>['’]s)?(?: sind| gibt es| stecken| kommen|"
     rf" hat| stehen)?(?: es)?(?: in)? "
     rf"(?:(?P<the>{_DAS_WORT})?(?P<w>{_WORD})|(?:{_DAS_WORT})?{_QUOTED})(?: vor)?", "de", "letter"),
    (rf"wie oft (?:kommt|steht|ist) (?:der buchstabe |das |ein )?[\"'‚„]?(?P<c>[^\W_])[\"'‘“]? in "
     rf"(?:(?P<the>{_DAS_WORT})?(?P<w>{_WORD})|(?:{_DAS_WORT})?{_QUOTED})(?: vor)?", "de", "letter"),
    (rf"(?:how many (?P<what>letters|vowels|consonants|characters) (?:are |are there |does |do )?(?:in )?|count"
     rf" the (?P<what2>letters|vowels|"
     rf"consonants|characters) in )(?:{_THE_WORD}(?P<w>{_WORD})|(?:{_THE_WORD}|the text |the sentence"
     rf" )?{_QUOTED})(?: have| has| contain)?", "en", "all"),
    (rf"(?:wie ?viele (?P<what>buchstaben|vokale|konsonanten|zeichen) (?:hat |sind |gibt es |stehen )?(?:in )?"
     rf"|zähle die (?P<what2>buchstaben|vokale|"
     rf"konsonanten|zeichen) in )(?:{_DAS_WORT}(?P<w>{_WORD})|(?:{_DAS_WORT})?{_QUOTED})", "de", "all"),
    (rf"(?:reverse|flip) (?:the )?(?:letters of |letters in |order of the letters in"
     rf" )?(?:{_THE_WORD}(?P<w>{_WORD})|(?:{_THE_WORD}|text )?{_QUOTED})", "en", "reverse"),
    (rf"(?:spell|write|say)(?: out)? (?:(?P<the>{_THE_WORD})?(?P<w>{_WORD})|(?:{_THE_WORD})?{_QUOTED})"
     rf" (?:backwards?|in reverse|reversed)", "en", "reverse"),
    (rf"(?:what is|what's|how do you spell|how is) (?:(?P<the>{_THE_WORD})(?P<w>{_WORD})"
     rf"|(?:{_THE_WORD})?{_QUOTED}) (?:spelled |spelt |written )?"
     r"(?:backwards?|in reverse|reversed)", "en", "reverse"),
    (rf"(?:buchstabiere?|schreibe?|sage?)(?: mir)? (?:(?P<the>{_DAS_WORT})?(?P<w>{_WORD})"
     rf"|(?:{_DAS_WORT})?{_QUOTED}) (?:rückwärts|von hinten)", "de", "reverse"),
    (rf"(?:was ist|wie (?:heißt|lautet)) (?:{_DAS_WORT}(?P<w>{_WORD})|(?:{_DAS_WORT})?{_QUOTED}) (?:rückwärts"
     rf"|von hinten)", "de", "reverse"),
    (rf"(?:drehe?|kehre?) (?:{_DAS_WORT}(?P<w>{_WORD})|(?:{_DAS_WORT})?{_QUOTED}) um", "de", "reverse"),
    (rf"spell (?:out )?(?:{_THE_WORD}(?P<w>{_WORD})|(?:{_THE_WORD})?{_QUOTED})", "en", "spell"),
    (rf"buchstabiere?(?: mir)? (?:{_DAS_WORT}(?P<w>{_WORD})|(?:{_DAS_WORT})?{_QUOTED})", "de", "spell"),
)  # fmt: skip
_COMPILED = tuple((re.compile(form, re.IGNORECASE), language, kind) for form, language, kind in _FORMS)
_WORDS = (
    (re.compile(
        r"(?:please |can you |could you )*(?:how many (?P<what>words|characters|letters)(?: are| are there|"
        r" does)?(?: in)?|count the "
        r"(?P<what2>words|characters|letters) (?:in|of))\s?(?:(?:the|this|my) (?:following )?(?:text|sentence"
        r"|paragraph|phrase|string)"
        r"(?: below)?|the following)?(?: have| has| contain)?\s*:\s*(?P<text>\S.*)", re.IGNORECASE | re.DOTALL), "en"),
    (re.compile(
        r"(?:bitte )?(?:wie ?viele (?P<what>wörter|zeichen|buchstaben)(?: hat| sind| gibt es| stehen)?(?: in)?"
        r"|zähle die (?P<what2>wörter|zeichen|"
        r"buchstaben)(?: in)?)\s?(?:(?:diese[mrs]?|de[mr]|das|folgende[mrns]?) )*(?:text|satz|absatz"
        r"|zeichenkette)?\s*:\s*(?P<text>\S.*)",
        re.IGNORECASE | re.DOTALL), "de"),
    (re.compile(
        r"how many words (?:are |are there |does )?(?:in )?(?:the (?:sentence|phrase|text) |this sentence"
        r" )?[\"“„](?P<text>[^\"“”„]+)[\"”“](?: have| has)?[\s?.]*",
        re.IGNORECASE | re.DOTALL), "en"),
    (re.compile(
        r"wie ?viele wörter (?:hat |sind in |stehen in )?(?:de[mr] (?:satz|text)"
        r" )?[\"“„](?P<text>[^\"“”„]+)[\"”“][\s?.]*",
        re.IGNORECASE | re.DOTALL), "de"),
)  # fmt: skip
_VOWELS = {"en": set("aeiouæœø"), "de": set("aeiouäöüæœø")}
_LIGATURES = re.compile("[\ufb00-\ufb17]")
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\u3005-\u30ff"
    "\u3100-\u312f\u31a0-\u31ff\u3400-\ua4cf\ua980-\uaa7f\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff]"
)
"""Characters of scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese, Yi."""


def answer(question: Question) -> Exact | None:
    if len(question.given) > LONGEST:
        return None
    for form, language in _WORDS:
        if (found := form.fullmatch(question.given)) is not None:
            return _of_text(found, language)
    if "\n" in question.given or len(question.text) > 600:
        return None
    for form, language, kind in _COMPILED:
        if (found := form.fullmatch(question.text)) is None:
            continue
        groups = found.groupdict()
        text = groups.get("w") or groups.get("q") or ""
        if not text.strip():
            continue
        if groups.get("w") and not groups.get("the") and text.lower() in _NOT_MEANT:
            continue
        made = {"letter": _letters, "all": _all, "reverse": _reversed, "spell": _spelled}[kind](groups, text, language)
        if made is not None:
            return made
    return None


def graphemes(text: str) -> list[str]:
    """The characters as a reader sees them: a letter with its accents, or an emoji with everything joined to it."""
    found: list[str] = []
    for character in unicodedata.normalize("NFC", text):
        joins = (
            unicodedata.category(character) in ("Mn", "Me") or character in "\u200d\ufe0f" or "🏻" <= character <= "🏿"
        )
        after_joiner = bool(found) and found[-1].endswith("\u200d")
        is_flag = (
            "\U0001f1e6" <= character <= "\U0001f1ff"
            and bool(found)
            and len(found[-1]) == 1
            and "\U0001f1e6" <= found[-1] <= "\U0001f1ff"
        )
        if found and (joins or after_joiner or is_flag):
            found[-1] += character
        else:
            found.append(character)
    return found


def letters_of(text: str) -> list[str]:
    """The graphemes, with ligatures split into letters: ﬁ is f and i."""
    return graphemes(_LIGATURES.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text))


def _quoted(text: str, language: str) -> str:
    return f"„{text}“" if language == "de" else f"“{text}”"


def _letters(groups: dict[str, str | None], text: str, language: str) -> Exact | None:
    letter, plural = groups["c"] or "", groups.get("s") or ""
    named = any(groups.get(name) for name in ("the", "q", "letter"))
    if not named and plural in ("", "s") and language == "en" and len(text) < 5:
        return None  # "how many s in min"
    if not named and not plural and letter.lower() in "cehno" and language == "en":
        return None  # how many e in hydrogen
    if not named and text[:1].isupper() and not plural and language == "en":
        return None
    places = [at for at, each in enumerate(letters_of(text), 1) if each.casefold() == letter.casefold()]
    shown, word, count = letter.lower() if letter.isalpha() else letter, _quoted(text, language), len(places)
    where = ", ".join(map(str, places))
    if language == "de":
        times = "kommt nicht" if not count else "kommt einmal" if count == 1 else f"kommt {count}-mal"
        working = f"Buchstabe für Buchstabe gezählt{f': an Stelle {where}' if count else ''}."
        return Exact("count", str(count), f"Der Buchstabe {shown} {times} in {word} vor.", working)
    times = "does not occur" if not count else "occurs once" if count == 1 else f"occurs {count} times"
    working = (
        f"Counted letter by letter{f': at place {where}' if count == 1 else f': at places {where}' if count else ''}."
    )
    return Exact("count", str(count), f"The letter {shown} {times} in {word}.", working)


def _all(groups: dict[str, str | None], text: str, language: str) -> Exact | None:
    what = (groups.get("what") or groups.get("what2") or "").lower()
    letters = [each.lower() for each in letters_of(text) if each[0].isalpha()]
    bare = [unicodedata.normalize("NFD", each)[0] if language == "en" else each for each in letters]
    is_latin = all(unicodedata.name(each[0], "").startswith("LATIN") for each in bare)
    if not is_latin and what in ("vowels", "vokale", "consonants", "konsonanten"):
        return None
    if what in ("vowels", "vokale"):
        counted = [each for each in bare if each in _VOWELS[language]]
    elif what in ("consonants", "konsonanten"):
        counted = [each for each in bare if each not in _VOWELS[language]]
    elif what in ("characters", "zeichen"):
        counted = graphemes(text)
    else:
        counted = letters
    count = len(counted)
    if language == "de":
        names = {"buchstaben": "Buchstabe", "vokale": "Vokal", "konsonanten": "Konsonant", "zeichen": "Zeichen"}
        name = names[what] if count == 1 else what.capitalize()
        return Exact("count", str(count), f"{_quoted(text, 'de')} hat {count} {name}.", _listed(counted, "de"))
    name = what[:-1] if count == 1 else what
    return Exact("count", str(count), f"{_quoted(text, 'en')} has {count} {name}.", _listed(counted, "en"))


def _listed(counted: list[str], language: str) -> str:
    begin = "Gezählt" if language == "de" else "Counted"
    return f"{begin}: {', '.join(counted)}." if 0 < len(counted) <= 40 else f"{begin}."


def _reversed(groups: dict[str, str | None], text: str, language: str) -> Exact:
    back = "".join(reversed(letters_of(text)))
    if language == "de":
        return Exact(
            "count",
            back,
            f"{_quoted(text, 'de')} rückwärts ist {_quoted(back, 'de')}.",
            "Zeichen für Zeichen umgedreht.",
        )
    return Exact(
        "count", back, f"{_quoted(text, 'en')} backwards is {_quoted(back, 'en')}.", "Reversed character by character."
    )


def _spelled(groups: dict[str, str | None], text: str, language: str) -> Exact:
    letters = letters_of(text)
    count, spelled = (
        len(letters),
        "-".join(each.upper() if len(each.upper()) == len(each) else each for each in letters),
    )
    if language == "de":
        return Exact("count", spelled, f"{_quoted(text, 'de')}: {spelled}", f"{count} Zeichen, eines nach dem anderen.")
    return Exact("count", spelled, f"{_quoted(text, 'en')}: {spelled}", f"{count} characters, one after the other.")


def _of_text(found: re.Match[str], language: str) -> Exact | None:
    groups = found.groupdict()
    text = found["text"].strip()
    what = (groups.get("what") or groups.get("what2") or ("words" if language == "en" else "wörter")).lower()
    inner = text[1:-1] if len(text) > 2 and text[0] in "\"“„'" and text[-1] in "\"”“'" else text
    if what in ("words", "wörter"):
        if _UNSPACED.search(inner):
            return None
        count = sum(1 for word in inner.split() if any(map(str.isalnum, word)))
        names = ("word", "words") if language == "en" else ("Wort", "Wörter")
        how = "Counted by the spaces between them." if language == "en" else "An den Leerzeichen dazwischen gezählt."
    elif what in ("letters", "buchstaben"):
        count = sum(each[0].isalpha() for each in letters_of(inner))
        names = ("letter", "letters") if language == "en" else ("Buchstabe", "Buchstaben")
        how = (
            "Without spaces, digits and punctuation."
            if language == "en"
            else "Ohne Leerzeichen, Ziffern und Satzzeichen."
        )
    else:
        count = len(graphemes(inner))
        names = ("character", "characters") if language == "en" else ("Zeichen", "Zeichen")
        how = "With spaces and punctuation." if language == "en" else "Mit Leerzeichen und Satzzeichen."
    said = f"{count:,}" if language == "en" else f"{count:,}".replace(",", ".")
    name = names[count != 1]
    words = f"This text has {said} {name}." if language == "en" else f"Dieser Text hat {said} {name}."
    return Exact("count", str(count), words, how)
