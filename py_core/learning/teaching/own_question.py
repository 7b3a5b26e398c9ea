"""Finds what a message asks in the person's own words. Pasted code, tables, logs, mails and quotes ask nothing of a
memory, and neither does plain prose.

    own_question("Why does this fail?\\n```\\nSELECT name FROM members\\n```")      # "Why does this fail?"
    own_question("The council will widen the road by the school. Work begins after the holidays.")     # ""
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from py_core.learning.teaching import german
from py_core.learning.teaching.english import is_statement
from py_core.learning.teaching.lessons import denies
from py_core.learning.teaching.words import words_of
from py_core.routing.language import has_code

READ = 6000
"""Characters at a message's beginning, and also at its end, that are read. A long paste between them is skipped."""
LONG = 60
"""With this many words of the person's own, only the sentences at the beginning and the end can be a question."""
SHORT = 12
"""The most words after "...:" that are not taken for a paste."""
OUTER = 2
"""Sentences of a long text that are read at each end."""
LONG_QUOTE = 8
"""The most words of a quote that counts as the person's own: a title, or the whole message."""
_PROSE = 6
"""A sentence of this many words in which the rules find no verb is prose."""
_KEYWORDS = 4
"""Up to this many words without a full stop may be a search query: "points needed for chem"."""

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_MAIL = re.compile(
    r"(?:from|to|cc|subject|sent|date|von|an|betreff|gesendet|datum):\s+\S|-{2,}\s*(?:original message|forwarded"
    r"|ursprüngliche nachricht|weitergeleitet)|(?:on|am)\b.{5,80}\b(?:wrote|schrieb\b.{0,60}):$",
    re.IGNORECASE,
)
_QUESTION_AT_END = re.compile(r"\n[ \t]*\n([^\n]*\?)\s*\Z")
_DATA = re.compile(
    r"\s*(?i:select [\w.*()]+(?: from\b.*|,.*)?$|insert into\b|delete from\b|create (?:table|index|view)\b)"
    r"|\s*(?i:alter table\b|update \w+ set\b)"
    r"|\s*[\[(]?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\s*[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{1,3}(?:\.\d{1,3}){3} "
    r"|\s*\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL|TRACE)\b|\s*[\w.]*[a-z](?:Error|Exception)\b|npm ERR!"
    r"|Traceback \(|Exception in thread\b"
    r"|\s*[{}\[\]<|]|\s*\"[^\"]*\":|[+-]{3} |@@ |diff --git|>>> |\$ |PS [A-Z]:|[A-Z]:\\|\s*[\w.-]+=\S"
    r"|[\w.-]{1,40}@[\w.-]{1,40}[:~].{0,80}[$#] |\[[\w. -]+\]$"
)
_STATEMENT = re.compile(
    r"\s*[\w.]+ [-+*/]?= [^?\s]|\s*[\w.]+\(.*\)$|import [\w.{]|from \S+ import\b|\s*for \w+ in\b|\s*with \w+ as\b"
)
"""A line of a program, if others like it surround it."""
_SIGNS = re.compile(r"[{}()\[\];=<>|*&]")
_BEGINS_CODE = tuple("+-#/*<>{}[]()\"'|$@`")
_SPOKEN = re.compile(r"(?:\[?[\d.,:/ -]{4,24}\]?\s?(?:- )?)?([^\W\d][\w.-]{0,20}(?: \w{1,20})?): \S")
_WORK_ON = re.compile(
    r"\A((?:(?:please|can you|could you|bitte) )?(?:translate|correct|rewrite|rephrase|paraphrase|proofread"
    r"|summari[sz]e|shorten|improve|übersetze?|korrigiere?|verbessere?|formuliere?)\b[^:?\n]{0,60}:) [^\n]+",
    re.IGNORECASE,
)
"""A request and its colon; the text behind it is to be worked on."""
_QUOTES = re.compile(r"\"[^\"]*\"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|»[^«»]*«")
_INLINE = re.compile(r"`[^`\n]+`|\bSELECT\b[^;?]{0,400}\bFROM\b[^;?]*")
_SENTENCES = re.compile(r"(?<=[^\s.][.!?…])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bSt\.)(?<!\d\.)\s+|\n+")
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_LEADS = words_of("and so but also hey hi hello ok okay well please sonata und aber also hallo bitte quick question")
_ASKED = words_of(
    "who whom whose who's what whats what's which when when's where wheres where's why how hows how's wer wen wem "
    "wessen welche welcher welches welchen wann wo woher wohin warum wieso weshalb wie wieviel wogegen womit"
)
_ASKS = _ASKED | words_of(
    "do does did am is are was were can could will would shall should have has had may might isn't aren't don't "
    "doesn't didn't tell remind name give show say list confirm check describe explain count spell look find help "
    "recall define translate read ist sind bin hat habe haben hatte kann soll darf muss stimmt sag sage nenn nenne "
    "zeig zeige erinnere gib weißt kennst erklär"
)
"""A sentence that begins with one of these asks for something."""
_OWN = words_of("i i'm i've my me we our us ich mein meine meinen meinem meiner mir mich wir unser unsere uns")
_NEEDS = words_of(
    "forgot forget forgotten need needs want wants can't cannot lost help find remember wonder wondering know "
    "asks looking search searching missing question confirm tell remind vergessen vergaß brauche brauchen suche "
    "finde weiß hilfe verloren will möchte frage wissen bestätige"
)
"""With one of these, a statement about oneself may ask for something: "I forgot the code of the cellar."."""
_TAGS = words_of("right correct yes no huh eh oder ja richtig wahr")


def own_question(message: str) -> str:
    """The part of a message that may ask for something the person taught, as it was written; "" if nothing does."""
    sentences = _sentences(message)
    if len(sentences) > 1:
        sentences = [one for one in sentences if _asks(one) or _needs(one) or not (_says(one) and denies(one))]
    introduces = next((at for at, one in enumerate(sentences, 1) if one[-1] == ":"), len(sentences))
    if len(_words(" ".join(sentences[introduces:]))) > SHORT:
        sentences = [*sentences[:introduces], *filter(_asks, sentences[introduces:][-OUTER:])]
    text = " ".join(sentences)
    if not any(map(_asks, sentences)) and not _needs(text) and _is_plain(sentences):
        return ""
    if len(_WORD.findall(text)) > LONG:
        text = " ".join(filter(_asks, [*sentences[:OUTER], *sentences[OUTER:][-OUTER:]]))
    return message if text.split() == message.split() else text


def _sentences(message: str) -> list[str]:
    """The sentences outside of pasted text."""
    message = _WORK_ON.sub(r"\1", message, count=1)
    text = "\n\n".join("\n".join(_own_lines(block)) for block in _blocks(message))
    text = _INLINE.sub(lambda found: found[0] if found[0][0] == "`" and not has_code(found[0][1:-1]) else " ", text)
    if not (_QUOTES.fullmatch(text.strip()) and len(text.split()) <= LONG_QUOTE):
        text = _QUOTES.sub(lambda found: " " if _is_pasted(found[0][1:-1]) else found[0], text)
    return [one for sentence in _SENTENCES.split(text) if _WORD.search(one := sentence.strip())]


def _is_pasted(quote: str) -> bool:
    return len(quote.split()) > LONG_QUOTE or any(sign in quote for sign in "?\n") or len(_SENTENCES.split(quote)) > 1


def _blocks(message: str) -> list[list[str]]:
    """The lines of each paragraph, without fenced, quoted and indented lines, and without a pasted mail except for a
    question after it."""
    is_fenced, is_one_line, lines = False, "\n" not in message.strip(), list[str]()
    for part in _ends(message):
        for line in part.splitlines():
            if _FENCE.match(line):
                is_fenced = is_fenced != (line.count("```") != 2)
                line = ""
            if line and not is_one_line and _MAIL.match(line):
                lines += ["", *_QUESTION_AT_END.findall(part)]
                break
            is_quoted = line.lstrip().startswith(">") or (line.startswith(("    ", "\t")) and not is_one_line)
            lines.append("" if is_fenced or is_quoted else line)
        lines.append("")
    return [list(block) for is_there, block in groupby(lines, lambda line: bool(line.strip())) if is_there]


def _ends(message: str) -> list[str]:
    """The message, or the lines at both ends of a long one. A fence that is open between the ends is closed first."""
    if len(message) <= 2 * READ:
        return [message]
    begin, end = message[:READ].rpartition("\n")[0], message[-READ:].partition("\n")[2]
    fences = len(_FENCE.findall(message, len(begin), len(message) - len(end)))
    return [begin, *["```"] * (fences % 2), end]


def _own_lines(block: Sequence[str]) -> list[str]:
    """The lines of a paragraph. If it has code or data, only the lines that ask something."""
    table = _rows_of_tables(block)
    is_code = [at in table or _is_code(line, len(block) > 1) for at, line in enumerate(block)]
    if not any(is_code):
        return list(block)
    ends = (0, len(block) - 1)
    return [
        line
        for at, line in enumerate(block)
        if at not in table
        and not line.lstrip().startswith(_BEGINS_CODE)
        and not _DATA.match(line)
        and (line.rstrip().endswith("?") or (at in ends and not line.isupper() and _begins_asking(line)))
        and (len(block) == 1 or not is_code[at] or line.rstrip().endswith("?"))
    ]


def _is_code(line: str, is_one_of_several: bool) -> bool:
    if _DATA.match(line) or (is_one_of_several and _STATEMENT.match(line)):
        return True
    return _SIGNS.search(line) is not None and has_code(line)


def _rows_of_tables(block: Sequence[str]) -> set[int]:
    """The indices of lines that belong to a table or a dialogue: consecutive lines with the same number of separators,
    or lines of several speakers, one of which speaks twice."""
    rows = set[int]()
    speakers = [spoken[1] if (spoken := _SPOKEN.match(line)) else "" for line in block]
    if any(each and speakers.count(each) > 1 for each in speakers):
        rows.update(at for at, each in enumerate(speakers) if each)
    for separator, least in ((",", 2), (": ", 2), (";", 1), ("\t", 1), ("|", 1)):
        counts = [0 if line.rstrip()[-1:] in ".?!" and separator != "\t" else line.count(separator) for line in block]
        for count, run in groupby(range(len(block)), counts.__getitem__):
            if count * (len(numbers := list(run)) - 1) >= least:
                rows |= set(numbers)
    return rows


def _asks(sentence: str) -> bool:
    words = _words(sentence)
    is_clause = sentence.endswith(".") and "," in sentence
    return (
        "?" in sentence
        or (_begins_asking(sentence) and not (is_clause and words[0] in _ASKED))
        or words[-1] in _TAGS | _ASKED
    )


def _begins_asking(sentence: str) -> bool:
    words = _words(sentence[:200])
    while words and words[0] in _LEADS:
        words = words[1:]
    return bool(words) and words[0] in _ASKS


def _needs(text: str) -> bool:
    """True if a text about oneself says that something is missing."""
    words = set(_words(text))
    return not (words.isdisjoint(_NEEDS) or words.isdisjoint(_OWN))


def _is_plain(sentences: Sequence[str]) -> bool:
    """True if sentences that ask nothing are plain statements."""
    if len(sentences) > 1:
        return all(one[-1] in ".!" or len(_words(one)) >= _PROSE for one in sentences)
    return all(
        _ASKED.isdisjoint(words := _words(one)) and (one[-1] in ".!" or len(words) > _KEYWORDS) and _says(one)
        for one in sentences
    )


def _says(sentence: str) -> bool:
    return is_statement(sentence) or german.is_german(sentence)


def _words(text: str) -> list[str]:
    return [word.lower().replace("\u2019", "'") for word in _WORD.findall(text)]
