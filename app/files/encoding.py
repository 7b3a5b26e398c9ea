"""Detects the encoding of a text: UTF-8, even if some bytes are invalid, or a legacy encoding, by its letters.

A candidate fits if nearly all characters outside ASCII are letters of one language, in plausible places. If none fits,
there is no guess. Python's codecs are the same natively and in the page.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

LEAST = 0.85
"""The share of the characters outside ASCII that must read as one language."""
MIXED = 0.9
"""The weight of such a share if the letters are of several languages with one encoding."""
RARER = 0.005
"""The penalty of a language against the previous one, so that of two fits the commoner wins."""
FEWEST = 3
"""Number of different bytes that rule out Windows-1252: a single one may be a letter in several encodings."""
WESTERN, TURKISH = "cp1252", "cp1254"  # the same except for six letters
STRAY = 0.02
"""The share of bytes that may be invalid UTF-8 in a text that is otherwise ASCII."""
SAMPLE = 6000  # bytes, from the first that is not ASCII
REPLACED = "\ufffd"
_NOT_ASCII = re.compile("[^\0-\x7f]")
_ESCAPED = re.compile("[\udc80-\udcff]+")
_CUT = re.compile("[\udcc2-\udcf4][\udc80-\udcbf]+|[\udcc2\udcc3\udcff]")
_JIS = re.compile(rb"\x1b\$[@B]")
_WESTERN = (
    "äöüß", "àâçéèêëîïôùûœæ", "áéíñóúü", "ãõáâàçéêíóôú", "åäöæøé", "àèéìòù", "áéíóúýðþæö", "ëïéèöüó", "àçèéíïòóúü",
    "äöõüšž",
)  # fmt: skip
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áéíóöőúüű", "čćđšž", "ăâîşţșț", "áäčďéíĺľňóôŕšťúýž", "äöüß")
_OFTEN = "оеаинтсрвлі"
_GREEK, _GREEK_OFTEN = ("αβγδεζηθικλμνξοπρστςυφχψωάέήίόύώϊϋΐΰ",), "αοιετσνηρκάόίέή"
_HEBREW, _HEBREW_OFTEN = ("אבגדהוזחטיךכלםמןנסעףפץצקרשת",), "יוהלאתרמבש"
_ARABIC, _ARABIC_OFTEN = ("ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىيپچژگـ،؛؟",), "اليمونرتبةده"
_TURKISH = ("çğıöşüâîûİ",)
_THAI = "".join(map(chr, range(0xE01, 0xE5C)))
_CYRILLIC = (
    "абвгдежзийклмнопрстуфхцчшщъыьэюяё", "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", "абвгдђежзијклљмнњопрстћуфхцчџш",
    "абвгдеёжзійклмнопрстуўфхцчшыьэюя", "абвгдѓежзѕијклљмнњопрстќуфхцчџш",
)  # fmt: skip
_ALPHABETS = (  # codec, languages, and letters that make up half of each text; the first of equals wins
    (TURKISH, _TURKISH, ""), (WESTERN, _WESTERN, ""), ("cp1250", _CENTRAL, ""),
    ("cp1255", _HEBREW, _HEBREW_OFTEN),
    ("cp1251", _CYRILLIC, _OFTEN), ("koi8-u", _CYRILLIC, _OFTEN), ("cp866", _CYRILLIC, _OFTEN),
    ("cp1253", _GREEK, _GREEK_OFTEN),
    ("cp1256", _ARABIC, _ARABIC_OFTEN), ("iso8859-6", _ARABIC, _ARABIC_OFTEN),
    ("cp1257", ("āčēģīķļņšūž", "ąčęėįšųūž", "äöõüšž"), ""), ("cp874", (_THAI,), "าันรอกเงมยลวด่้ทีิ"),
    ("iso8859-2", _CENTRAL, ""), ("iso8859-5", _CYRILLIC, _OFTEN), ("cp850", _WESTERN, ""),
    ("mac-roman", _WESTERN, ""), ("cp852", _CENTRAL, ""), ("mac-cyrillic", _CYRILLIC, _OFTEN),
    ("cp862", _HEBREW, _HEBREW_OFTEN), ("cp737", _GREEK, _GREEK_OFTEN), ("mac-greek", _GREEK, _GREEK_OFTEN),
    ("cp857", _TURKISH, ""), ("mac-turkish", _TURKISH, ""),
)  # fmt: skip
_IDEOGRAPHS = (  # codec, the standard whose first part has nearly all written characters, and its lead bytes
    ("cp949", "euc_kr", range(0xB0, 0xC9)), ("cp932", "euc_jp", range(0xA4, 0xD0)),
    ("euc_jp", "euc_jp", range(0xA4, 0xD0)), ("gb18030", "gb2312", range(0xB0, 0xD8)),
    ("cp950", "big5", range(0xA4, 0xC7)),
)  # fmt: skip
CODECS = (
    *(codec for codec, *_ in _ALPHABETS),
    *(name for codec, standard, _ in _IDEOGRAPHS for name in (codec, standard)),
)
_HANGUL = "이다는에가을의하고로지니사기아시어나리요자수서대인도정있한를은"
_MISPLACED = re.compile("[ςךםןףץ](?=[^\\W\\d_])|σ(?![^\\W\\d_])|[άέήίόύώΐΰ](?=[^\\W\\d_]{0,20}[άέήίόύώΐΰ])")
"""Implausible letters: final forms inside a word or missing at its end, and a second accent in a word."""
_KANA = re.compile("[\u3041-\u30ff]")
_SIGNS = frozenset("„“”‚‘’«»‹›–—…·•°§©®™€£¥¢¿¡±×÷½¼¾²³¹ªºµ№\u00a0")
_WITHIN_WORDS = frozenset("’‘·–—…")
_OF_NUMBERS = frozenset("€£¥¢½¼¾")


def decoded(data: bytes) -> str | None:
    """A text without a mark of its encoding; None if no encoding makes one language of it.

    Invalid bytes in a UTF-8 text are read as Windows-1252, or as � if a character is cut off.
    """
    if _JIS.search(data):
        try:
            return data.decode("iso2022_jp")
        except UnicodeDecodeError:
            return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
    right = _ESCAPED.sub("", text)
    wrong = len(_CUT.sub(REPLACED, text)) - len(right)
    if wrong <= len(_NOT_ASCII.findall(right)):
        return _ESCAPED.sub(_mended, text)
    codec = _likely_codec(data)
    if codec is None and wrong <= STRAY * len(text):
        return _ESCAPED.sub(_mended, text)
    return data.decode(codec, "replace") if codec else None


def _mended(match: re.Match[str]) -> str:
    is_inside = match.start() > 0 and match.end() < len(match.string)
    if is_inside and not _CUT.search(match[0]):
        return match[0].encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return REPLACED


def _likely_codec(data: bytes) -> str | None:
    first = next(at for at, byte in enumerate(data) if byte >= 0x80)
    sample = data[max(first - 40, 0) : first + SAMPLE]
    best, share = "", LEAST - 0.001
    for codec, alphabets, often in _ALPHABETS:
        text = sample.decode(codec, "replace")
        rarer = RARER if often else 0
        found = max(_letters(text, alphabet, often) - rarer * at for at, alphabet in enumerate(alphabets))
        if len(alphabets) > 1:
            found = max(found, MIXED * _letters(text, "".join(alphabets), often))
        if found > share:
            best, share = codec, found
    for codec, standard, leads in _IDEOGRAPHS:
        found = _ideographs(sample.decode(codec, "replace"), codec, standard, leads)
        if found > share:
            best, share = codec, found
    is_told = best in (WESTERN, TURKISH) or len({byte for byte in sample if byte >= 0x80}) >= FEWEST
    return best if best and is_told else None


def _letters(text: str, alphabet: str, often: str) -> float:
    """The share of the characters outside ASCII that are letters of an alphabet, or signs, in plausible places. often:
    letters that make up half of a text; "": Latin script, in which most letters are ASCII."""
    total = good = common = 0
    before, letters = "   ", frozenset(alphabet)
    for char, after in pairwise(f"{text.removesuffix(REPLACED)} "):
        if char >= "\x80":
            total += 1
            common += char.lower() in often
            if char in _SIGNS:
                beside = before[-1].isalpha(), after.isalpha()
                may_stand = not any(beside) if char in _OF_NUMBERS else not all(beside) or char in _WITHIN_WORDS
                good += may_stand and not (char in "„‚" and beside[0])
            elif letters & {char, char.lower()} and not (char.isupper() and before[-1].islower()):
                if often:
                    good += not any(one.isalpha() and one.isascii() for one in (before[-1], after))
                else:
                    good += not (before.isalpha() and min(before) >= "\x80")
        before = before[1:] + char
    if not total:
        return 0.0
    good -= 2 * len(_MISPLACED.findall(text)) if often else 0
    return good / total * (0.6 + 0.4 * min(common / total / 0.55, 1.0) if often else 1.0)


def _ideographs(text: str, codec: str, standard: str, leads: range) -> float:
    """The share of the characters outside ASCII that are in the first part of a standard for Chinese, Japanese or
    Korean."""
    counts = Counter(char for char in text.removesuffix(REPLACED) if char >= "\x80")
    good = kana = often = 0
    for char, count in counts.items():
        code = char.encode(standard, "ignore")
        is_kana = bool(_KANA.match(char))
        kana += count * is_kana
        often += count * (char in _HANGUL)
        if len(code) == 2 and (code[0] in leads or code[0] in (0xA1, 0xA3)) and (standard == "euc_jp" or not is_kana):
            good += count
    total = sum(counts.values())
    if not total or (codec == "euc_jp" and kana < 0.1 * total):
        return 0.0
    is_sure = kana >= 0.1 * total if codec == "cp932" else often >= 0.15 * total or standard != "euc_kr"
    return good / total * (1 if is_sure else MIXED)
