"""Detects a request's language, English or another, and whether it contains code.

The shipped examples are English, and so is the model that compares requests with them. Of other languages it notices
little more than that they are not English.
"""

from __future__ import annotations

import re
import unicodedata

_SMALL_WORDS = {
    "en": """
        a about all am an and any are as at be but by can could did die do does don't every for from get give
        had has hat have he her here his how how's i i'm if in into is isn't it it's its just know let like make
        me men mine more my need no not of on one or our out over par please pour sale she should so some son
        than that that's the their them then there there's these they this to up us van want war was we were
        what what's when where which who why will with without would write you your
    """,
    "de": """
        aber als auch auf aus bedeutet bei bin bist bitte brauche brauchen das dass dem den der des die diese
        dieser dieses dir du ein eine einem einen einer erklär erkläre es euch fass fasse für gegen gib gibt
        habe haben hast hat heißt heute hilf ich ihr im ins ist jetzt kann kannst kein keine mach mache mal mein
        meine meinem meinen meiner mich mir mit nach nenne nicht noch nochmal nur oder ohne sag sage schon schreib
        schreibe sich sie sind soll um und uns unser unsere vom von wann war warum was wenn wer werden wie wieso
        wieviel wir wird wo wurde zeig zeige zu zum zur zwischen über übersetz übersetze
    """,
    "fr": """
        au aux avec c'est ce ces comment dans de des du elle en est et fais il j'ai je la le les leur ma mais
        mes moi mon ne nous où par pas plus pour pourquoi quand que quel quelle qui sa ses son sont sur ta tes
        ton tu un une vous écris
    """,
    "es": """
        al como con cuál cuándo cómo de del donde dónde el ella en es esta este está hay la las lo los me mi mis
        muy no para pero por porque puedes que quién qué se sin son su sus te tu un una y yo
    """,
    "it": """
        al alla anche che chi come con cosa da dei del della di dove e gli ho i il in la le lo ma mi mia mio nel
        non per perché più qual quale quando questa questo scrivi se si sono sua suo ti tu un una
    """,
    "pt": """
        ao as com como da das de do dos e ela ele em essa esse esta este eu isso mais mas me meu minha na nas no
        nos não o os ou para pelo por porque qual quando que quem se sem seu sua são também um uma você é
    """,
    "nl": """
        aan als bij dat de deze die dit een en er geen haar heb heeft het hij hoe ik is je kan maar me met mij
        mijn naar niet nog om ook op over schrijf te uit van voor waar waarom wat we wie wij zijn zo zou
    """,
}
_ENGLISH, *_OTHERS = (frozenset(words.split()) for words in _SMALL_WORDS.values())
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_REQUEST = re.compile(r"[:\n\"“„«`]")
"""The text after one of these is often not the person's own: a text to translate, an error."""
_LEAST_WORDS = 2
_LEAST_OTHER = 2
"""Words of another language in a longer text before it counts: a single one may be an English word or a name."""
_READ = 400
"""The number of characters that are read."""

_CODE = re.compile(
    r"```"
    r"|Traceback \(most recent call last\)|^\s*File \".+\", line \d+|\b[A-Z]\w*(?:Error|Exception)\b"
    r"|^\s*at [\w$.<>]+\(|\b(?:panicked at|segmentation fault|core dumped|SIGSEGV|stack trace|exit code \d)"
    r"|^(?:diff --git|@@ |(?:\+\+\+|---) [ab]/)"
    r"|\b(?:def|function|func|fn|class|struct|void|int|var|let|const|public|private|import|include|from) \w+\s*[({=:;<]"
    r"|#include\b|=>|===?|!==?|&&|\|\||::\w|</\w|/>|\w\(\)|\w\.\w+\(|[;{]\s*$"
    r"|\bselect\b.+\bfrom\b.+(?:\bwhere\b|;|$)"
    r"|\b[a-z]+_[a-z_]+\b|\b0x[0-9a-f]+\b|\s--[a-z][\w-]+|(?:^|\s)/(?:\w+/)+\w*"
    r"|\b\w+\.(?:py|jsx?|tsx?|java|go|rs|cpp|hpp|cs|sql|ya?ml|json|toml|sh|css|html|vue|php|rb|kt|swift|tf|proto)\b",
    re.IGNORECASE | re.MULTILINE,
)


def is_english(text: str) -> bool:
    """True if a request could be English: no other language has more of its function words in it. If the request quotes
    a text, for example to translate it, only the words before the quote count."""
    text = unicodedata.normalize("NFC", text[:_READ]).replace("\u2019", "'")
    begin = _WORD.findall(_REQUEST.split(text, maxsplit=1)[0].lower())
    words = begin if len(begin) >= _LEAST_WORDS else _WORD.findall(text.lower())
    if not words:
        return True
    latin = sum(word[0] < "\u0250" for word in words)
    if 2 * latin < len(words):
        return False
    english = sum(word in _ENGLISH for word in words)
    accented = sum(any(letter > "\x7f" and letter.isalpha() for letter in word) for word in words)
    other = accented + max(sum(word in small for word in words) for small in _OTHERS)
    return english >= other or other < min(_LEAST_OTHER, len(words) / 2)


def has_code(text: str) -> bool:
    """True if it contains a piece of a program, a traceback, a diff, a path or a command."""
    return _CODE.search(text[:4000]) is not None
