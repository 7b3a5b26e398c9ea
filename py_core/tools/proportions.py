"""Rules of three: "3 apples cost 2.40, what do 7 cost?" Only quantities that grow in proportion are computed: prices
and weights."""

from __future__ import annotations

import re
from fractions import Fraction

from py_core.tools.number_text import NUMBER, plain_number, read_numbers, written
from py_core.tools.number_words import SCALES, number_word
from py_core.tools.question import Exact, Question

LONGEST = 200
_N = rf"(?:{NUMBER}|an?|eine?[nrm]?|[a-zäöüß]+)"
_UNIT = r"(?:[€$£]|euros?|dollars?|pounds?|cents?|eur|usd|gbp|chf|francs?|franken|kg|g|kilos?|grams?|gramm)"
_PRICE = rf"(?P<u>[€$£])?\s?(?P<p>{NUMBER})\s?(?P<v>{_UNIT})?(?!\w|[.,]\d)"
_A = r"(?P<a>(?: [^\W\d_]+){1,3}?)"
_B = r"(?P<b>(?: [^\W\d_]+){0,3}?)"
_EN, _DE = r"(?:costs?|weighs?)", r"(?:kosten|kostet|wiegen|wiegt)"
_GAP = r"(?:\s?[,.;:?]\s(?:then |and |so |dann |und )?|\s(?:then |and )?)"
_FORMS = tuple(
    (re.compile(form, re.IGNORECASE), language)
    for form, language in (
        (rf"(?:if |when )?(?P<n>{_N}){_A} {_EN} {_PRICE}{_GAP}"
         rf"(?:(?:what|how much) (?:do|does|will|would|is|are) (?:the )?)?(?P<m>{NUMBER}){_B}(?: (?:cost|weigh|be))?",
         "en"),
        (rf"(?:what|how much) (?:do|does|will|would) (?P<m>{NUMBER}){_B} (?:cost|weigh),? (?:if|when) "
         rf"(?P<n>{_N}){_A} {_EN} {_PRICE}", "en"),
        (rf"(?:wenn )?(?P<n>{_N}){_A} {_DE} {_PRICE}{_GAP}(?:was|wie ?viel) {_DE} (?:dann )?(?P<m>{NUMBER}){_B}", "de"),
        (rf"wenn (?P<n>{_N}){_A} {_PRICE} {_DE}{_GAP}(?:(?:was|wie ?viel) {_DE} (?:dann )?)?(?P<m>{NUMBER}){_B}", "de"),
        (rf"(?:was|wie ?viel) {_DE} (?P<m>{NUMBER}){_B},? wenn (?P<n>{_N}){_A} {_PRICE} {_DE}", "de"),
    )
)  # fmt: skip


def answer(question: Question) -> Exact | None:
    text = question.text
    if "\n" in question.given or len(text) > LONGEST:
        return None
    for form, language in _FORMS:
        if (found := form.fullmatch(text)) is None:
            continue
        if not re.search(r"^(?:if|when|wenn)\b|\b(?:what|how|was|wie)", found[0], re.IGNORECASE):
            return None
        numbers = read_numbers([_in_digits(found["n"], language), found["p"], found["m"]], language)
        if numbers is None:
            return None
        first, price, second = numbers
        if not first or not second or not _same(found["a"], found["b"]) or _counts(found["a"].split()[0]):
            return None
        return _said(first, price, second, found, language)
    return None


def _in_digits(text: str, language: str) -> str:
    if re.fullmatch(r"an?|eine?[nrm]?", text, re.IGNORECASE):
        return "1"
    word = number_word(text)
    return str(word[0]) if word and word[1] == language else text


def _counts(word: str) -> bool:
    """True if this word counts the things, as in "a dozen eggs" and "two hundred screws"."""
    lower = word.lower()
    scales = {"dozen", "dutzend"}.union(*SCALES.values())
    return lower in scales or number_word(lower) is not None


def _same(one: str, other: str) -> bool:
    """True if both name the same things; the second need not name them."""
    one, other = one.lower().strip(), other.lower().strip()
    plain = [re.sub(r"(?:ies|y)$", "i", each.translate(str.maketrans("äöü", "aou"))) for each in (one, other)]
    return not other or other in ("of them", "davon") or any(
        plain[0] + ending == plain[1] or plain[1] + ending == plain[0] for ending in ("", "s", "es", "e", "n", "en")
    )  # fmt: skip


def _said(first: Fraction, price: Fraction, second: Fraction, found: re.Match[str], language: str) -> Exact:
    german = language == "de"
    result = price * second / first
    places = max(2, len(re.split("[.,]", found["p"])[-1]) if re.search(r"[.,]\d{1,2}$", found["p"]) else 0)
    rounded = Fraction(round(result * 10**places), 10**places)
    plain = plain_number(rounded)[0]
    said = written(plain, language)
    if re.search(r"[.,]\d{2}$", found["p"]) and rounded.denominator != 1:  # the usual notation of prices
        said += "0" * (2 - len(re.split("[.,]", said)[-1]))
    unit = found["v"] or ""
    money = f"{found['u'] or ''}{said}{' ' + unit if len(unit) > 1 or (unit and german) else unit}"
    things = (found["b"] or found["a"]).strip()
    if things in ("of them", "davon"):
        things = found["a"].strip()
    weighs = re.search(r"weigh|wieg", found[0], re.IGNORECASE)
    verb = ("wiegen" if weighs else "kosten") if german else ("weigh" if weighs else "cost")
    if second == 1:
        verb = ("wiegt" if weighs else "kostet") if german else f"{verb}s"
    count, amount = written(plain_number(second)[0], language), found["p"]
    about = "" if rounded == result else ("etwa " if german else "about ")
    n = written(plain_number(first)[0], language)
    how = f"{amount} / {n} × {count}."
    how += (
        " Wenn alle gleich viel " + ("wiegen." if weighs else "kosten.")
        if german
        else f" If each {'weighs' if weighs else 'costs'} the same."
    )
    if about:
        how += " Auf zwei Stellen gerundet." if german else " Rounded to two decimals."
    return Exact("arithmetic", plain, f"{count} {things} {verb} {about}{money}.", how)
