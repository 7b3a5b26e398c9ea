"""Arithmetic questions: "17 * 23", "what is 15% of 80", "wie viel ist die Wurzel aus 2"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce

from py_core.tools.expression import Brackets, Node, Number, Operation, Percent, Value, computed, is_share, shown
from py_core.tools.expression_parser import LONGEST, Parsed, long_expression, parse
from py_core.tools.number_text import DIGITS, NUMBER, decimal_point, written
from py_core.tools.question import CannotComputeError, Exact, Question

STRONG, WEAK, BARE = 2, 1, 0
"""How surely the words around an expression ask for its value. "Calculate 7/8" does; "what is 7/8" may mean a date."""

_LONG = re.compile(r"(?>[^\d(]{0,40})[-\d\s+*/^().,×÷]++[\s=]*")
_OPERATES = re.compile(r"\d\s*[+*/^×÷]\s*[\d(]|\(\s*\(|\)\s*[-+*/^×÷]")
_WHAT = r"(?:what is|what's|what\u2019s|whats|what are)"
_ASKS: tuple[tuple[re.Pattern[str], str, int], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), language, strength)
    for pattern, language, strength in (
        (r"(?:calculate|compute|evaluate|work out|figure out|solve)(?: the (?:value|result)"
         r" of)?:?\s+(?P<e>.+)", "en", STRONG),
        (r"how (?:much|many) (?:is|are|does|would|will) (?P<e>.+?)(?: be| make| equal)?", "en", STRONG),
        (rf"(?:{_WHAT} )?the (?:result|value|answer|outcome) (?:of|to|for) (?P<e>.+)", "en", STRONG),
        (r"what (?:does|do|will|would) (?P<e>.+) (?:equal|make|come to|give|be)", "en", STRONG),
        (rf"{_WHAT} (?P<e>.+) (?:equal(?: to)?|as a decimal(?: number| fraction)?|in decimals?)", "en", STRONG),
        (r"(?P<e>.+?)\s*=", "", STRONG),
        (r"(?P<e>.+?)(?:,? equals| is equal to| is what| makes what| equals what)", "en", STRONG),
        (rf"{_WHAT} (?P<e>.+)", "en", WEAK),
        (r"what (?P<e>.+) (?:is|equals|makes)", "en", WEAK),
        (r"how much (?P<e>.+) (?:is|makes)", "en", STRONG),
        (r"(?:berechne|rechne|löse)(?: mir)?(?: mal)?(?: bitte)?:?\s+(?P<e>.+?)(?: aus)?", "de", STRONG),
        (r"(?P<e>.+) (?:ausrechnen|berechnen|rechnen)", "de", STRONG),
        (r"(?:wie ?viel (?:ist|sind|ergibt|ergeben|macht|machen|gibt)|was (?:ergibt|ergeben|macht|gibt))"
         r" (?P<e>.+)", "de", STRONG),
        (r"was kommt bei (?P<e>.+) (?:he)?raus", "de", STRONG),
        (r"(?:was ist )?das (?:ergebnis|resultat) (?:von|aus) (?P<e>.+)", "de", STRONG),
        (r"(?:was ist|was sind|was wäre) (?P<e>.+)", "de", WEAK),
        (r"(?:wie ?viel|was) (?P<e>.+) (?:ist|sind|ergibt|macht)", "de", WEAK),
        (r"(?P<e>.+?),? (?:ergibt|ist gleich)(?: was)?", "de", STRONG),
        (r"(?P<e>.+)", "", BARE),
    )
)  # fmt: skip


def answer(question: Question) -> Exact | None:
    text = question.text
    if len(text) > LONGEST:
        spoken = "de" if re.match(r"berechne|rechne|was|wie", text, re.IGNORECASE) else "en"
        return _refused(long_expression(), spoken) if _LONG.fullmatch(text) and _OPERATES.search(text) else None
    if "\n" in question.given:
        return None
    for ask, language, strength in _ASKS:
        if (found := ask.fullmatch(text)) is None:
            continue
        expression = found["e"].strip(" :")
        try:
            if (special := _special(expression, language)) is not None:
                return _as_asked(special[0], expression, special[1])
            parsed = parse(expression, language)
            if parsed is not None and not _is_doubtful(expression, parsed, strength):
                spoken = parsed.language or "en"
                return _as_asked(_answer(parsed.node, spoken), expression, spoken)
        except CannotComputeError as error:
            return _refused(error, _language(expression, language))
    return None


def _as_asked(exact: Exact, expression: str, language: str) -> Exact:
    """The answer with digit groups, as in 1,240, if the question's numbers have them."""
    sign = "." if language == "de" else ","
    if not re.search(rf"(?<![\d.,])\d{{1,3}}\{sign}\d{{3}}(?!\d)", expression):
        return exact
    return replace(exact, words=re.sub(r"(?<![\d.,^])(\d)(\d{3})(?!\d)", rf"\1{sign}\2", exact.words))


def _answer(node: Node, language: str) -> Exact:
    try:
        plain, is_exact, value = computed(node)
    except CannotComputeError as error:
        return _refused(error, language)
    said = f"{shown(node, language)} {'=' if is_exact else '≈'} {written(plain, language)}"
    return Exact("arithmetic", plain, said, working_of(value, is_exact, language))


def _refused(error: CannotComputeError, language: str) -> Exact:
    how = "Checked before it was computed." if language != "de" else "Vor dem Rechnen geprüft."
    return Exact("arithmetic", "", error.words(language), how)


def _language(text: str, language: str) -> str:
    is_german = re.search(r"\b(?:mal|durch|hoch|geteilt|wurzel|fakultät|prozent von)\b", text, re.IGNORECASE)
    return language or ("de" if is_german else "en")


def working_of(value: Value, is_exact: bool, language: str) -> str:
    """A sentence about how exact a result is."""
    german = language == "de"
    if is_exact:
        return "Genau berechnet, ohne Rundung." if german else "Computed exactly, without rounding."
    if isinstance(value, Decimal):
        if german:
            return f"Mit 60 Stellen berechnet, auf {DIGITS} gerundet."
        return f"Computed with 60 digits, rounded to {DIGITS}."
    if max(len(str(value.numerator)), len(str(value.denominator))) <= 12:
        fraction = f"{value.numerator}/{value.denominator}"
        if german:
            return f"Der genaue Wert ist der Bruch {fraction}, hier auf {DIGITS} Stellen gerundet."
        return f"The exact value is the fraction {fraction}, here rounded to {DIGITS} digits."
    if german:
        return f"Mit genauen Brüchen berechnet, auf {DIGITS} Stellen gerundet."
    return f"Computed with exact fractions, rounded to {DIGITS} digits."


# ---- text that looks like arithmetic and means something else ----

_DATE = re.compile(
    r"(?<![\d.,/-])(?:\d{1,2}([-/])\d{1,2}\1(?:19|20)\d\d|(?:19|20)\d\d([-/])\d{1,2}\2\d{1,2})(?![\d/-])"
)
_SHORT_DATE = re.compile(r"(?<![\d.,/])\d{1,2}/\d{1,2}/\d\d(?![\d/])")
_SHARES = re.compile(r"(?<![\d.,])(\d+)\s?[-\u2013]\s?(\d+)\s?(?:%|percent|per cent|prozent)", re.IGNORECASE)
_JOINED = re.compile(r"(\d+)(\s?)([-\u2013/xX×])\2(\d+)((?:\s?[-\u2013/xX×]\s?\d+)*)")


def _is_doubtful(text: str, parsed: Parsed, strength: int) -> bool:
    """True if this notation often means something else: 9/11, 555-1234, 4x4, a date, a score, a resolution."""
    if _DATE.search(text) or any(int(found[1]) < int(found[2]) for found in _SHARES.finditer(text)):  # 10-20% of 500
        return True
    if strength == STRONG or parsed.in_words:
        return False
    if text.endswith("!"):
        return strength == BARE or parsed.operations > 1
    if re.search(r"\d[xX]\d.*\d[xX]\d", text) or _SHORT_DATE.search(text):  # sizes, days
        return True
    found = _JOINED.fullmatch(text)
    if found is None:
        return False
    left, space, sign, right, more = int(found[1]), found[2], found[3], int(found[4]), found[5]
    if sign == "\u2013" and (strength == BARE or not space):
        return True
    if 1900 <= left <= 2100 and right == (left + 1) % 100 and not space:  # a season: 2023/24
        return True
    if sign in "-\u2013":
        if space:
            return strength == BARE and (bool(more) or left <= right)
        is_month = 1900 <= left <= 2100 and right <= 12
        is_plane = 700 <= left <= 799 and right >= 100
        is_score = strength == BARE and left <= 31
        return bool(more) or left <= right or (left, right) in ((9, 5), (10, 4)) or is_month or is_plane or is_score
    if sign == "/":
        if space:
            return strength == BARE and bool(more)
        is_date = left <= 31 and right <= 31 and not (strength == WEAK and left == 1 and right not in (1, 6))
        is_share = left == right or left + right == 100
        is_pressure = 90 <= left <= 200 and 50 <= right <= 110
        return bool(more) or is_date or is_share or is_pressure or 1900 <= right <= 2100
    if sign == "×":
        return False
    if space:
        return strength == BARE and left < 10 and right < 10
    return bool(more) or left < 10 or right < 10 or (left >= 320 and right >= 200)


# ---- forms that are not expressions ----

_AND = r"\s*(?:[,;]\s(?:and |und )?|\band\b|\bund\b)\s*"
_JOINED_LIST = re.compile(r"(?<![\d.,])\d{1,2}(?:,\d{1,2}){2,}(?![\d.,])")
_X, _Y = r"(?P<a>.+?)", r"(?P<b>.+?)"


def _nodes(parts: Sequence[str], language: str, is_list: bool = False) -> list[Node] | None:
    """The operands of a form; None if one is invalid or ambiguous. The comma of 1,5 may separate an English list, a
    percentage in a list may be a share of another operand, and 10-20 may be a range."""
    point = decimal_point([number for part in parts for number in re.findall(NUMBER, part)], language)
    if not point or (is_list and language == "en" and point == ","):
        return None
    parsed = [parse(part, language, 0, point) for part in parts]
    nodes: list[Node] = [
        Brackets(each.node) if isinstance(each.node, Operation) else each.node for each in parsed if each
    ]
    if len(nodes) < len(parts) or any(map(_DATE.search, parts)) or (is_list and any(map(is_share, nodes))):
        return None
    return None if any(map(_adds, nodes)) else nodes


def _adds(node: Node) -> bool:
    return isinstance(node, Brackets) and isinstance(node.inner, Operation) and node.inner.sign in "+-"


def _listed(text: str, language: str) -> list[str]:
    """The parts of "3, 5 and 10", and in English of "3,5,10"."""
    text = re.sub(r"^(?:the numbers|den zahlen|der zahlen)\s+", "", text, flags=re.IGNORECASE)
    if language == "en":
        text = _JOINED_LIST.sub(lambda found: found[0].replace(",", ", "), text)
    return re.split(_AND, text)


def _joined(sign: str) -> Callable[[Sequence[Node]], Node]:
    return lambda nodes: reduce(lambda left, right: Operation(sign, left, right), nodes)


def _difference(nodes: Sequence[Node]) -> Node:
    left, right = nodes[:2]
    values = [computed(node)[2] for node in (left, right)]
    return Operation("-", left, right) if values[0] >= values[1] else Operation("-", right, left)


def _average(nodes: Sequence[Node]) -> Node:
    return Operation("/", Brackets(_joined("+")(nodes)), Number(Fraction(len(nodes))))


_MANY = (
    (r"(?:the )?(?:sum|total) of (?P<all>.+)|add (?:up )?(?P<all2>.+)", "en", _joined("+")),
    (
        r"(?:die )?summe (?:von|aus|der zahlen) (?P<all>.+)|(?:addiere|zähle) (?P<all2>.+?)(?: zusammen)?",
        "de",
        _joined("+"),
    ),
    (r"(?:the )?product of (?P<all>.+)|multiply (?P<all2>.+)", "en", _joined("*")),
    (r"(?:das )?produkt (?:von|aus) (?P<all>.+)|multipliziere (?P<all2>.+)", "de", _joined("*")),
    (r"(?:the )?(?:average|mean|arithmetic mean) of (?P<all>.+)", "en", _average),
    (r"(?:der |den )?(?:durchschnitt|mittelwert) (?:von|aus) (?P<all>.+)", "de", _average),
)
_TWO: tuple[tuple[str, str, Callable[[Sequence[Node]], Node]], ...] = (
    (rf"(?:the )?difference (?:between|of) {_X} and {_Y}", "en", _difference),
    (rf"(?:die )?differenz (?:zwischen|von|aus) {_X} und {_Y}", "de", _difference),
    (rf"(?:the )?quotient of {_X} and {_Y}|divide {_X.replace('a>', 'c>')} by"
     rf" {_Y.replace('b>', 'd>')}", "en", _joined("/")),
    (rf"(?:der |den )?quotient (?:von|aus) {_X} und {_Y}|(?:teile|dividiere) {_X.replace('a>', 'c>')} durch"
     rf" {_Y.replace('b>', 'd>')}",
     "de", _joined("/")),
    (rf"add {_X} to {_Y}", "en", lambda both: Operation("+", both[1], both[0])),
    (rf"addiere {_X} zu {_Y}", "de", lambda both: Operation("+", both[1], both[0])),
    (rf"subtract {_X} from {_Y}|take {_X.replace('a>', 'c>')} (?:away )?from {_Y.replace('b>', 'd>')}", "en",
     lambda both: Operation("-", both[1], both[0])),
    (rf"(?:subtrahiere|ziehe) {_X} von {_Y}(?: ab)?", "de", lambda both: Operation("-", both[1], both[0])),
    (rf"multiply {_X} (?:by|with) {_Y}", "en", _joined("*")),
    (rf"multipliziere {_X} mit {_Y}", "de", _joined("*")),
    (rf"(?:the )?remainder (?:of|when|if) {_X} (?:is )?(?:divided by|/) {_Y}", "en", _joined("mod")),
    (rf"(?:der |den )?rest (?:von|bei|wenn man|der division) {_X} (?:geteilt )?(?:durch|/) {_Y}(?:"
     rf" teilt)?", "de", _joined("mod")),
    (rf"{_X}(?:%| percent| per cent) off(?: of)? {_Y}|(?:reduce|decrease) {_Y.replace('b>', 'd>')} by"
     rf" {_X.replace('a>', 'c>')}"
     r"(?:%| percent| per cent)", "en", lambda both: Operation("-", both[1], Percent(both[0]))),
    (rf"increase {_Y} by {_X}(?:%| percent| per cent)", "en", lambda both: Operation("+", both[1], Percent(both[0]))),
)  # fmt: skip
_SHARE = (
    (rf"(?:what percent(?:age)?|what %|how many percent) of {_Y} is {_X}", "en"),
    (rf"(?:what percent(?:age)?|what %|how many percent) is {_X} (?:out )?of {_Y}", "en"),
    (rf"{_X} is what (?:percent(?:age)?|%) of {_Y}", "en"),
    (rf"(?:{_WHAT} )?{_X} (?:as a percentage of|as a percent of|in percent of) {_Y}", "en"),
    (rf"(?:{_WHAT} )?{_X} (?:out of|of) {_Y} (?:as a percentage|as a percent|in percent|in %)", "en"),
    (rf"wie ?viele? (?:prozent|%) (?:sind|ist) {_X} von {_Y}", "de"),
    (rf"wie ?viele? (?:prozent|%) von {_Y} (?:sind|ist) {_X}", "de"),
    (rf"{_X} (?:sind|ist) wie ?viele? (?:prozent|%) von {_Y}", "de"),
)


def _compiled(forms: Sequence[tuple[str, ...]]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(form[0], re.IGNORECASE), form[1]) for form in forms]


_SHARE_FORMS = _compiled(_SHARE)
_TWO_FORMS = [(re.compile(form, re.IGNORECASE), language, make) for form, language, make in _TWO]
_MANY_FORMS = [(re.compile(form, re.IGNORECASE), language, make) for form, language, make in _MANY]


def _special(text: str, language: str) -> tuple[Exact, str] | None:
    """The answer and its language. Raises CannotComputeError."""
    if len(text) > 500:
        return None
    for form, spoken, nodes in _operands(text):
        if language in ("", spoken):
            if form is None:
                return _share(nodes[0], nodes[1], spoken), spoken
            return _answer(form(nodes), spoken), spoken
    return None


def _operands(text: str) -> Iterator[tuple[Callable[[Sequence[Node]], Node] | None, str, list[Node]]]:
    """The forms that match, their languages, and the numbers in them."""
    forms = [(pattern, language, None) for pattern, language in _SHARE_FORMS]
    for pattern, language, make in [*forms, *_TWO_FORMS]:
        if (found := pattern.fullmatch(text)) is None:
            continue
        both = [each for each in (found.groupdict().get(name) for name in "abcd") if each]
        if (nodes := _nodes(both, language)) is None:
            continue
        made = make(nodes) if make is not None else None
        if not (isinstance(made, Operation) and made.sign in "+-" and is_share(made.left)):
            yield make, language, nodes
    for pattern, language, make in _MANY_FORMS:
        if (found := pattern.fullmatch(text)) is None:
            continue
        parts = _listed(found["all"] or found.groupdict().get("all2") or "", language)
        if len(parts) > 1 and (nodes := _nodes(parts, language, is_list=True)) is not None:
            yield make, language, nodes


def _share(part: Node, whole: Node, language: str) -> Exact:
    plain, is_exact, value = computed(Operation("*", Operation("/", part, whole), Number(Fraction(100))))
    share = written(plain, language)
    about = "" if is_exact else "about " if language != "de" else "etwa "
    left, right = shown(part, language), shown(whole, language)
    if language == "de":
        said = f"{left} sind {about}{share} % von {right}."
        return Exact("arithmetic", plain, said, f"{left} / {right} × 100. {working_of(value, is_exact, language)}")
    said = f"{left} is {about}{share}% of {right}."
    return Exact("arithmetic", plain, said, f"{left} / {right} × 100. {working_of(value, is_exact, language)}")
