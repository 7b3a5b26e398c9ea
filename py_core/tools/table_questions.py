"""Parses questions about a table: "total revenue of East", "Umsatz nach Region", "top 3 products by price".

Each word must be a column, the value of a cell, a number, or one of the words below. A question with any other word,
or an ambiguous one, is not answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from py_core.tools.dates import MONTHS
from py_core.tools.number_text import NUMBER, decimal_point, number_of, shape_of
from py_core.tools.number_words import number_word
from py_core.tools.table import Column, Table, folded

LONGEST = 300
"""The most characters of a question."""
MOST_ROWS = 50
"""The most rows that "top N" may ask for."""
_WORD = rf"{NUMBER}(?!\w)|[^\W_]+"
_TOKEN = re.compile(rf"[\"“„‚‘'](?P<q>[^\"“”„‘’'\n]{{1,80}})[\"”“’‘']|{_WORD}|[<>=]=|≤|≥|[^\s_,;:.?!()-]")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GERMAN = _words(
    "der die das den dem des von vom im nach pro je wie welche welcher welches welchen wer gibt zeige nenne liste ist"
    " sind hat haben ueber unter mindestens hoechstens zwischen summe anzahl durchschnitt zeilen mit gesamt insgesamt"
    " groesste groesster groesstes kleinste kleinster kleinstes hoechster teuersten billigsten mittelwert"
)
_LONGEST_VALUE = 80
_LONGEST_NAME = 200
_SIGN = re.compile(r"[^\w\s.,;:?!()'\u2019\-]")
_DE = "(?:e[nrsm]?)?"  # endings of German adjectives
_PHRASES = re.compile(
    rf"""(?:(?P<count>how\ many|(?:the\ )?number\ of|count(?:\ of)?|wie\ ?viele|anzahl(?:\ an|\ von)?)
    |(?P<ask>what|how\ much|wie\ ?viel|wie\ (?:hoch|gross)|was|calculate|compute|berechne|find)
    |(?P<distinct>different|distinct|unique|verschieden{_DE}|unterschiedlich{_DE})
    |(?P<list>list|show(?:\ me)?|give\ me|nenne(?:\ mir)?|liste|zeige?(?:\ mir)?|gib\ mir)
    |(?P<which>which|welche[nrsm]?)
    |(?P<who>who|wer)
    |(?P<ge>>=|≥|at\ least|mindestens)
    |(?P<le><=|≤|at\ most|hoechstens|up\ to|bis\ zu)
    |(?P<gt>>|(?:more|greater|larger|higher|bigger)\ than|over|above|ueber|mehr\ als|(?:groesser|hoeher)\ als)
    |(?P<lt><|(?:less|smaller|lower|fewer)\ than|under|below|unter|weniger\ als|(?:kleiner|niedriger)\ als)
    |(?P<eq>==?|equals|equal\ to|exactly|genau|gleich)
    |(?P<between>between|zwischen)
    |(?P<contains>contain(?:s|ing)?|include[s]?|enthaelt|enthalten|die\ enthalten)
    |(?P<dear>most\ expensive|priciest|dearest|teuerst{_DE})
    |(?P<cheap>cheapest|least\ expensive|billigst{_DE}|guenstigst{_DE})
    |(?P<often>most\ (?:common|frequent|often)|haeufigst{_DE}|am\ haeufigsten)
    |(?P<max>largest|biggest|highest|greatest|maximum|maximal{_DE}|max|groesst{_DE}|hoechst{_DE})
    |(?P<min>smallest|lowest|minimum|minimal{_DE}|min|kleinst{_DE}|niedrigst{_DE}|geringst{_DE})
    |(?P<most>most|meist{_DE})|(?P<least>least|fewest|wenigst{_DE})
    |(?P<mean>averages?|mean|avg|on\ average|(?:im\ )?durchschnitt|durchschnittlich{_DE}|mittelwert|im\ schnitt)
    |(?P<median>median)
    |(?P<sum>sum|totals?|in\ total|overall|altogether|summe|summiere|gesamt{_DE}|gesamtsumme|insgesamt|zusammen|add\ up
        |sum\ up)
    |(?P<by>by|per|(?:for|in|of)\ (?:each|every)|each|every|grouped\ by|nach|pro|je|fuer\ jede[nrs]?)
    |(?P<top>top)|(?P<bottom>bottom)
    |(?P<month>months?|monaten?|monate?s?)|(?P<year>years?|jahre?n?)
    |(?P<rows>rows?|lines?|entry|entries|records?|zeilen?|eintraegen?|eintrag|datensaetzen?|datensatz)
    |(?P<and>and|und)
    |(?P<verb>is|are|was|were|has|have|had|do|does|did|make|made|exist|works?|lives?|comes?|arbeite(?:n|t)|wohn(?:en|t)
        |leb(?:en|t)|komm(?:en|t)|ist|sind|war|waren|hat|haben|hatte|gibt\ es
        |vorhanden)
    |(?P<fill>the|a|an|of|all|in|for|from|with|where|that|whose|there|we|i|at|to|this|these|my|our|der|die|das|den|dem
        |des|ein|eine[nrms]?|alle[rn]?|mein(?:e[nrms]?)?|von|vom|im|fuer|aus|mit|bei|am|wo|deren|es|wir|diese[rmns]?|da|dort)
    |(?P<file>file|csv|tsv|table|sheet|spreadsheet|data|dataset|columns?|values?|tabelle|datei|daten|spalten?|werte?n?)
    )(?=\ |$)""",
    re.VERBOSE,
)
_CURRENCIES = {"€": "€", "eur": "€", "euro": "€", "euros": "€", "$": "$", "usd": "$", "dollar": "$", "dollars": "$",
               "£": "£", "gbp": "£", "chf": "CHF", "%": "%", "percent": "%", "prozent": "%"}  # fmt: skip
_QUESTIONS = _words("is are were do does did has have ist sind hat haben gibt waren")
"""First words of questions that are answered by yes or no."""
_LABELS = _words(
    "id nr no number nummer year jahr zip plz postcode code phone telefon index key month monat day tag week woche"
    " quarter quartal rank rang"
)
"""Words in the names of columns whose numbers are summed only on explicit request."""
_ADDED = _words(
    "revenue revenues sales amount amounts total totals cost costs expense expenses spend spending income profit"
    " turnover quantity qty units pieces volume hours minutes visits views clicks downloads budget umsatz umsaetze"
    " betrag betraege menge stueck stueckzahl kosten ausgaben einnahmen gewinn ertrag summe gesamt stunden minuten"
    " verkaeufe erloes netto brutto gross net"
)
"""Words in the names of columns whose numbers are summed if nothing else is said."""
_PRICES = _words("price prices cost costs preis preise kosten")
_EACH_ONE = _words("price prices preis preise unit average avg mean rate percent prozent")
"""Words in the names of columns whose numbers are per item, whatever else the name says."""
_AMOUNTS = _words("quantity qty units unit pieces menge stueck stueckzahl")
_UNSAID = _words("name names amount value total number title eur usd euro id nr nummer betrag wert")
"""Words in the names of columns that a question may leave out."""
_SOLD = _words("sale sales verkauf verkaeufe")
"""Rows or amounts: these words are ambiguous."""
_ORDERS = _words(
    "order orders transaction transactions purchase purchases booking bookings invoice invoices bestellung bestellungen"
    " buchung buchungen rechnung rechnungen"
)
_PEOPLE = _words("people person persons employee employees personen leute mitarbeiter")
"""Words for rows, if each row has its own name or number. Rows are people only if a column's name says so:"""
_NAMES_OF_PEOPLE = _PEOPLE | _words("name names member student customer mitglied kunde teilnehmer vorname nachname")
_TURNS = _words("or oder not no nicht kein keine ohne without except")
"""Words that negate or change a condition, even if a cell contains them, too."""
_EXPORTS = _words("export data list table report copy final new all my daten liste tabelle bericht kopie neu alle")
"""Words in the names of files that say nothing about their rows."""
_ANSWERS = _words("yes no y n true false ja nein j wahr falsch x")
_PREFIXES = (("gesamt", "sum"), ("durchschnitts", "mean"))
_GERMAN_BEGINS = re.compile("gesamt|durchschnitt|groesst|kleinst|hoechst|niedrigst|verschieden|meist|wenigst|teuerst")
_MONTHS = {folded(name): number for name, (number, _) in MONTHS.items()}
_EACH = ("per", "pro", "je")
_DEFINITE = ("the", "our", "my", "der", "die", "das", "den", "how", "wie")
_EQUALS = ("is", "are", "was", "were", "ist", "sind", None)
_SMALL = ("fill", "and", "verb", "ask", "which", "by")
_NAMES_TOO = ("sum", "month", "year", "rows", "file")
"""Kinds of words that can also be the name of a column."""
_SIZES = ("max", "min", "most", "least", "cheap", "dear", "often")
_FLAGS = _words("count distinct list which who ask rows things sum mean median") | set(_SIZES)
"""Kinds of words that count anywhere in the question."""


@dataclass
class Filter:
    """column: None for the measured one. kind: "is", "contains", "month", or a comparison. values: folded cells,
    numbers, or [year, month] with 0 for any month."""

    column: Column | None
    kind: str
    values: list[str] | list[Decimal] | list[int]


@dataclass
class TableQuery:
    """what: count, distinct, list, rows, value, sum, mean, median, max, min. measure: the column it is computed from.
    group: a column, or "month" or "year". noun: what is asked for ("which product"), None for rows. best: how many of
    them, the largest or the smallest ones by `what`."""

    what: str = ""
    measure: Column | None = None
    group: Column | str | None = None
    noun: Column | str | None = None
    best: int = 0
    largest: bool = True
    filters: list[Filter] = field(default_factory=list)
    language: str = "en"


Found = TypeVar("Found")
Item = tuple[str, Any]
"""A kind of word, and its value."""


class _NotAskedError(Exception):
    """The question is not surely about the table."""


def is_label(column: Column) -> bool:
    return not _LABELS.isdisjoint(words_of(column.name))


def is_added(column: Column) -> bool:
    """True if people mean the sum of its numbers when they name the column."""
    words = set(words_of(column.name))
    return column.unit != "%" and bool(words & _ADDED) and words.isdisjoint(_EACH_ONE)


@lru_cache(maxsize=4096)
def words_of(name: str) -> tuple[str, ...]:
    """unitPrice (EUR) -> unit, price, eur."""
    apart = re.sub(r"(?<=[a-zäöüß])(?=[A-ZÄÖÜ])", " ", name[:_LONGEST_NAME])
    return tuple(re.findall(_WORD, folded(apart)))


def key_of(cell: str) -> tuple[str, ...]:
    """The words by which a question finds a cell; () for a cell with signs (C++), which words cannot distinguish."""
    return () if len(cell) > _LONGEST_VALUE or _SIGN.search(cell) else words_of(cell)


def forms(word: str) -> Iterator[str]:
    """A word, and its possible singulars."""
    yield word
    if word.endswith("ies"):
        yield word[:-3] + "y"
    for ending in ("s", "es", "e", "n", "en", "er", "ern"):
        if word.endswith(ending) and len(stem := word[: -len(ending)]) >= 3:
            bare = stem.replace("ae", "a").replace("oe", "o").replace("ue", "u")
            if not ending.startswith("er"):
                yield stem
            if bare != stem:
                yield bare


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    """True if two names are the same except for the plural of their last words."""
    if not one or len(one) != len(other) or one[:-1] != other[:-1]:
        return False
    return one[-1] in forms(other[-1]) or other[-1] in forms(one[-1])


class _Names:
    """The possible meanings of a question's words in a table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.columns = [
            (words_of(re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", column.name)), column) for column in table.columns
        ]
        named = [word for word in words_of(table.name.rpartition(".")[0]) if word.isalpha() and word not in _EXPORTS]
        self.things = named[0] if len(named) == 1 else ""
        first = table.columns[0]
        has_key = len(first.distinct) == len(first.cells)
        is_people = not _NAMES_OF_PEOPLE.isdisjoint(words_of(first.name))
        self.rows = (_ORDERS | _PEOPLE if is_people else _ORDERS) if has_key else frozenset[str]()
        self.values: dict[tuple[str, ...], list[Column]] = {}
        for column in table.columns:
            if column.numbers is None and column.months is None:
                for words in {key_of(cell) for cell in column.distinct} - {()}:
                    self.values.setdefault(words, []).append(column)
        self.longest = min(max(map(len, self.values), default=0), 8)
        self.numbers = [column for column in table.columns if column.numbers is not None]
        self.measures = [column for column in self.numbers if not is_label(column)]
        self.dates = [column for column in table.columns if column.months is not None]

    def column(self, words: Sequence[str]) -> Column | None:
        """Raises _NotAskedError if two columns are possible."""
        words = tuple(words)
        if words in (("date",), ("datum",)) and len(self.dates) == 1:
            return self.dates[0]
        for fits in (
            lambda names: names == words,
            lambda names: _same(names, words),
            lambda names: _same(tuple(name for name in names if name not in _UNSAID), words),
        ):
            found = [column for names, column in self.columns if fits(names)]
            if len(found) > 1:
                raise _NotAskedError
            if found:
                return found[0]
        return None

    def value(self, words: Sequence[str]) -> tuple[tuple[str, ...], list[Column]] | None:
        *first, last = words
        for form in forms(last):
            if (found := self.values.get((*first, form))) is not None:
                return (*first, form), found
        return None


def _items(text: str, names: _Names, language: str) -> list[Item]:
    """The items of the question, in order. Raises _NotAskedError."""
    tokens = [(found[0], found["q"]) for found in _TOKEN.finditer(text)]
    words = [folded(token) for token, _ in tokens]
    point = decimal_point([word for word in words if shape_of(word) != "no"], language, names.table.points)
    items, at = list[Item](), 0
    while at < len(words):
        phrase = _PHRASES.match(" ".join(words[at:]))
        said = phrase[0].count(" ") + 1 if phrase else 0
        kind = (phrase.lastgroup or "") if phrase else ""
        if tokens[at][1] is not None:
            quoted = names.value(words_of(tokens[at][1]) or ("",))
            if items and items[-1][0] == "contains":
                items.append(("text", folded(tokens[at][1])))
            elif quoted is not None:
                items.append(("value", quoted))
            else:
                raise _NotAskedError
            at += 1
            continue
        column, long = _longest(names.column, words, at, 6)
        value, longer = _longest(names.value, words, at, names.longest)
        if items and items[-1][0] == "contains":
            if kind != "fill" and at + 1 < len(words):
                raise _NotAskedError  # ambiguous: how many words belong to the value?
            items += [("text", words[at])] * (kind != "fill")
            at += 1
        elif max(long, longer, said) == 0 or (words[at][0].isdigit() and not (longer and _is_of(items, value))):
            at += _other(words, at, names, point, items)
        elif words[at] in _TURNS and not _is_of(items, value):
            raise _NotAskedError
        elif said >= max(long, longer) and kind in _SMALL and not (longer == said and _is_of(items, value)):
            if longer == said and (tokens[at][0] != words[at] or at + said == len(words)):
                raise _NotAskedError  # IN is a cell's value, too
            items.append((kind, words[at] if kind in _SMALL else None))
            at += said
        elif said > max(long, longer):
            items.append((kind, None))
            at += said
        elif long > max(longer, said) or (long == said > longer and kind in _NAMES_TOO):
            items.append(("column", column))
            at += long
        elif longer > max(long, said):
            items.append(("value", value))
            at += longer
        else:
            raise _NotAskedError
    return items


def _longest(
    find: Callable[[list[str]], Found | None], words: list[str], at: int, most: int
) -> tuple[Found | None, int]:
    for length in range(min(most, len(words) - at), 0, -1):
        if (found := find(words[at : at + length])) is not None:
            return found, length
    return None, 0


def _is_of(items: list[Item], value: tuple[tuple[str, ...], list[Column]] | None) -> bool:
    """True if a value follows the name of its column."""
    before = [item for item in items if item[0] not in ("verb", "eq")]
    return value is not None and bool(before) and before[-1][0] == "column" and before[-1][1] in value[1]


def _other(words: list[str], at: int, names: _Names, point: str, items: list[Item]) -> int:
    """Parse numbers, months, prefixes and other names for rows. Returns how many words were read. Raises
    _NotAskedError."""
    word = words[at]
    unit = _CURRENCIES.get(word)
    if unit and at + 1 < len(words) and words[at + 1][0].isdigit():
        items.append(("unit", unit))
        return 1
    if word[0].isdigit():
        if not point or shape_of(word) == "no":
            raise _NotAskedError
        number = number_of(word, point)
        items.append(("number", Decimal(number.numerator) / Decimal(number.denominator)))
        after = _CURRENCIES.get(words[at + 1]) if at + 1 < len(words) else None
        if after:
            items.append(("unit", after))
        return 2 if after else 1
    said_in = items[-1] in [("fill", each) for each in ("in", "im", "for", "fuer")] if items else False
    if word in _MONTHS and names.dates and said_in:
        items.append(("in month", _MONTHS[word]))
        return 1
    if (said := number_word(word)) is not None and 1 < said[0] <= MOST_ROWS:
        items.append(("number", Decimal(said[0])))
        return 1
    prices = [column for column in names.measures if not _PRICES.isdisjoint(words_of(column.name))]
    if word in ("cost", "costs", "kostet", "kosten") and len(prices) == 1:
        items.append(("column", prices[0]))
        return 1
    for prefix, kind in _PREFIXES:
        if word.startswith(prefix) and (column := names.column((word.removeprefix(prefix),))) is not None:
            items.extend(((kind, None), ("column", column)))
            return 1
    if (names.things and _same((word,), (names.things,))) or word in names.rows:
        amounts = any(not _AMOUNTS.isdisjoint(words_of(column.name)) for column in names.numbers)
        counted = bool(items) and items[-1][0] == "count"
        if not (counted and amounts and word in _SOLD):
            items.append(("things", word))
            return 1
    raise _NotAskedError


def asked_of(text: str, table: Table) -> TableQuery | None:
    """text: as in exact.Question. None if the question is not surely about this table."""
    if len(text) > LONGEST or "\n" in text:
        return None
    text = re.sub(r"(?<=\w)['\u2019]s\b", "", text)
    if re.search(r"(?<!\w)[-\u2212]\s?\d", text):
        return None  # less than zero, or a range
    words = [folded(word) for word in re.findall(r"\w+", text)]
    is_german = not _GERMAN.isdisjoint(words) or any(map(_GERMAN_BEGINS.match, words))
    language = "de" if is_german else "en"
    if not words or words[0] in _QUESTIONS or words[-1] == "mean" or (words[0] in ("was", "is") and language == "en"):
        return None
    try:
        names = _names(table)
        query = _QueryReader(_items(text, names, language), names).query()
    except _NotAskedError:
        return None
    query.language = language
    return query


def _names(table: Table) -> _Names:
    known = table.__dict__.get("names")
    if known is None:
        known = table.__dict__["names"] = _Names(table)
    return known


class _QueryReader:
    """Turns items into a query."""

    def __init__(self, items: list[Item], names: _Names) -> None:
        self.names = names
        self.raw = items
        self.items = [item for item in items if item[0] not in ("fill", "file")]
        self.kinds = [kind for kind, _ in self.items]
        self.q = TableQuery()
        self.flags = set[str]()
        self.used = set[int]()

    def query(self) -> TableQuery:
        """Raises _NotAskedError."""
        for at, (kind, value) in enumerate(self.items):
            if at not in self.used:
                self._read(at, kind, value)
        if self.kinds.count("and") - self.kinds.count("between") > max(len(self.q.filters) - 1, 0):
            raise _NotAskedError
        columns = [one.column for one in self.q.filters if one.kind in ("is", "month")]
        if len(columns) != len({id(column) for column in columns}) or len(self.q.filters) > 4:
            raise _NotAskedError
        self._decide()
        for one in self.q.filters:
            if one.column is None:
                if len(self.names.measures) != 1:
                    raise _NotAskedError
                one.column = self.names.measures[0]
        return self.q

    def _kind(self, at: int) -> str:
        return self.kinds[at] if 0 <= at < len(self.kinds) else ""

    def _skip(self, at: int, step: int = 1) -> int:
        """The index of the next item that is no verb."""
        at += step
        while self._kind(at) in ("verb", "eq", "unit"):
            at += step
        return at

    def _read(self, at: int, kind: str, value: Any) -> None:
        if kind in _FLAGS:
            self.flags.add(kind)
        elif kind in ("top", "bottom"):
            if self._kind(at + 1) != "number":
                raise _NotAskedError
            self._best(at + 1)
            self.flags.add("max" if kind == "top" else "min")
        elif kind == "by":
            self._by(at)
        elif kind == "column":
            self._column(at, value)
        elif kind == "value":
            self._value(at, value)
        elif kind in ("gt", "ge", "lt", "le"):
            self._compare(at, kind, 1)
        elif kind == "between":
            if self._kind(at + 2 + (self._kind(at + 2) == "unit")) != "and":
                raise _NotAskedError
            self._compare(at, kind, 2)
        elif kind == "number":
            self._number(at, value)
        elif kind in ("month", "year"):
            self._noun(at, kind)
        elif kind == "in month":
            self._months(at, value)
        elif kind not in ("and", "verb"):
            raise _NotAskedError

    def _best(self, at: int) -> None:
        value = self.items[at][1]
        if not isinstance(value, Decimal) or value != int(value) or not 1 <= value <= MOST_ROWS or self.q.best:
            raise _NotAskedError
        self.q.best = int(value)
        self.used.add(at)

    def _by(self, at: int) -> None:
        kind, value = self.items[at + 1] if at + 1 < len(self.items) else ("", None)
        self.used.add(at + 1)
        if kind in ("month", "year") and self.names.dates:
            self._group(kind)
        elif kind == "column" and isinstance(value, Column):
            ranks = {"top", "bottom", "max", "min"} & set(self.kinds)
            if value.numbers is None or is_label(value):
                if value.numbers is not None and len(value.distinct) == len(value.cells):
                    raise _NotAskedError  # revenue per order is an average
                self._group(value)
            elif ranks:
                self._measure(value)
            else:
                raise _NotAskedError
        else:
            raise _NotAskedError

    def _group(self, group: Column | str) -> None:
        if self.q.group is not None or (isinstance(group, str) and len(self.names.dates) != 1):
            raise _NotAskedError
        self.q.group = group

    def _measure(self, column: Column) -> None:
        if self.q.measure not in (None, column):
            raise _NotAskedError
        self.q.measure = column

    def _noun(self, at: int, noun: Column | str) -> None:
        """Handle the noun that follows the question word."""
        while self._kind(at - 1) == "value":  # which open orders
            at -= 1
        before = self._kind(at - 1)
        if self.q.noun is not None or (isinstance(noun, str) and len(self.names.dates) != 1):
            raise _NotAskedError
        if isinstance(noun, Column) and _ANSWERS.issuperset(map(folded, noun.distinct)):
            raise _NotAskedError  # how many are paid: this would count yes and no alike
        asks = ("count", "distinct", "which", "list", *_SIZES) + (("number",) if self.q.best else ())
        if (
            before not in asks
            and (before != "ask" or isinstance(noun, str))
            and (before, self._kind(at - 2)) != ("verb", "ask")
        ):
            raise _NotAskedError
        self.q.noun = noun

    def _column(self, at: int, column: Any) -> None:
        after, start = self._skip(at), at
        while self._kind(start - 1) == "value":
            start -= 1
        kind, before = self._kind(after), self._kind(start - 1)
        if kind == "value" and column in self.items[after][1][1]:
            self.items[after] = ("value", (self.items[after][1][0], [column]))
            self.used.update(range(at + 1, after))
        elif kind == "contains" and column.numbers is None and self._kind(after + 1) == "text":
            self.q.filters.append(Filter(column, "contains", [str(self.items[after + 1][1])]))
            self.used.update((after, after + 1))
        elif self._kind(at - 1) == "value" and column in self.items[at - 1][1][1]:
            pass  # East region
        elif column.numbers is None:
            self._noun(at, column)
        elif (
            kind == "number"
            and all(word in _EQUALS for _, word in self.items[at + 1 : after])
            and (after > at + 1 or is_label(column) or "count" in self.kinds)
            and not self._is_in(after)
        ):
            self._compare(after - 1, "is", 1, column)
            self.used.update(range(at + 1, after))
        elif is_label(column) and before in ("count", "distinct", "which", "list", "number"):
            self._noun(at, column)
        elif kind in ("gt", "ge", "lt", "le", "between"):
            self._compare(after, kind, 2 if kind == "between" else 1, column)
            self.used.update(range(at + 1, after + 1))
        elif before == "distinct":
            self._noun(at, column)
        elif is_label(column):
            if len(column.distinct) < len(column.cells):
                raise _NotAskedError
            self.flags.add("rows")  # its numbers are those of the rows
        elif before == "which":
            raise _NotAskedError
        elif before == "count":
            if _AMOUNTS.isdisjoint(words_of(column.name)):
                raise _NotAskedError
            self.flags.discard("count")
            self.flags.add("sum")
            self._measure(column)
        else:
            self._measure(column)

    def _value(self, at: int, value: Any) -> None:
        words, columns = value
        after = self._kind(at + 1)
        if len(columns) > 1 and after == "column" and self.items[at + 1][1] in columns:
            columns = [self.items[at + 1][1]]
        if len(columns) != 1:
            raise _NotAskedError
        self.q.filters.append(Filter(columns[0], "is", [" ".join(words)]))

    def _compare(self, at: int, kind: str, count: int, column: Column | None = None) -> None:
        values, after = list[Decimal](), at
        while len(values) < count:
            after += 1
            if self._kind(after) == "number":
                values.append(self.items[after][1])
            elif self._kind(after) == "unit":
                self._unit(after, column)
            elif not (self._kind(after) == "and" and values) and self._kind(after) not in ("verb", "eq"):
                raise _NotAskedError
            self.used.add(after)
        if self._kind(after + 1) == "unit":
            self.used.add(after + 1)
            self._unit(after + 1, column)
        if self._kind(after + 1) in _SIZES:
            raise _NotAskedError
        self.q.filters.append(Filter(column, kind, values))

    def _unit(self, at: int, column: Column | None) -> None:
        said, measures = self.items[at][1], [column] if column else self.names.measures
        if len(measures) != 1 or measures[0].unit not in ("", said):
            raise _NotAskedError

    def _number(self, at: int, value: Any) -> None:
        if self._kind(at + 1) in _SIZES or self._kind(at - 1) in _SIZES:
            self._best(at)
        elif isinstance(value, Decimal) and 1900 <= value <= 2100 and value == int(value) and self._is_in(at):
            years = [column for column in self.names.numbers if set(words_of(column.name)) & {"year", "jahr"}]
            if len(years) + len(self.names.dates) != 1:
                raise _NotAskedError
            if years:
                self.q.filters.append(Filter(years[0], "is", [value]))
            else:
                self.q.filters.append(Filter(self.names.dates[0], "month", [int(value), 0]))
        else:
            raise _NotAskedError

    def _is_in(self, at: int) -> bool:
        """True if "in" or a similar word stands before an item."""
        raw = self.raw.index(self.items[at])
        return raw > 0 and self.raw[raw - 1] in [
            ("fill", word) for word in ("in", "for", "from", "im", "von", "fuer", "aus")
        ]

    def _months(self, at: int, month: int) -> None:
        if len(self.names.dates) != 1:
            raise _NotAskedError
        (column,) = self.names.dates
        years = {pair[0] for pair in column.months or [] if pair is not None}
        if self._kind(at + 1) == "number" and 1900 <= self.items[at + 1][1] <= 2100:
            year = int(self.items[at + 1][1])
            self.used.add(at + 1)
        elif len(years) == 1:
            (year,) = years
        else:
            raise _NotAskedError
        self.q.filters.append(Filter(column, "month", [year, month]))

    def _amounts(self) -> bool:
        return any(not _AMOUNTS.isdisjoint(words_of(column.name)) for column in self.names.numbers)

    def _only_measure(self) -> Column:
        if self.q.measure is None:
            if len(self.names.measures) != 1:
                raise _NotAskedError
            self.q.measure = self.names.measures[0]
            if self.flags & {"rows", "things"} and not (is_added(self.q.measure) or "rows" in self.kinds):
                raise _NotAskedError  # average order: of ratings?
        return self.q.measure

    def _decide(self) -> None:
        q, flags = self.q, self.flags
        sizes = flags & set(_SIZES)
        means = flags & {"mean", "median", "sum"} - ({"sum"} if "count" in flags else set())
        if len(sizes) > 1 or len(means) > 1 or ("distinct" in flags and (sizes or means)):
            raise _NotAskedError
        what = means.copy().pop() if means else ""
        if not self.names.table.sure and not (q.noun or q.group or q.filters or q.measure):
            raise _NotAskedError
        if sizes:
            self._decide_size(sizes.copy().pop(), what)
        elif "count" in flags or ("rows" in self.kinds and q.group is not None and not what):
            if q.measure is not None or what or flags & {"who", "which"}:
                raise _NotAskedError
            if not (q.noun is not None or flags & {"rows", "things"} or q.filters or q.group):
                raise _NotAskedError
            has_rows = q.noun is not None or flags & {"rows", "things"} or q.group
            if not has_rows and self._amounts() and self._kind(self.kinds.index("count") + 1) != "verb":
                raise _NotAskedError  # how many apples: rows, or their sum?
            if q.noun is not None and (flags & {"rows", "things"}):
                raise _NotAskedError
            q.what = "distinct" if "distinct" in flags else "count"
            if q.what == "distinct" and not isinstance(q.noun, Column):
                raise _NotAskedError
        elif isinstance(q.noun, Column) and not what:
            if q.measure is not None or q.group is not None or flags & {"rows", "things", "who"}:
                raise _NotAskedError
            q.what = "list"
        elif flags & {"which", "list"} and flags & {"rows", "things"} and not (what or q.noun or q.measure or q.group):
            if not q.filters:
                raise _NotAskedError
            q.what = "rows"
        elif q.noun is not None or flags & {"distinct", "which", "who"}:
            raise _NotAskedError
        elif what:
            things = {word for kind, word in self.items if kind == "things"} - _ADDED
            if what == "sum" and q.measure is None and (things or "rows" in flags):
                raise _NotAskedError  # total orders
            measure = self._only_measure()
            is_share = isinstance(q.group, str) or is_added(measure)
            if what == "mean" and is_share and any(item in self.items for item in [("by", word) for word in _EACH]):
                raise _NotAskedError  # average revenue per month: of rows, or of months?
            prices = _PRICES & set(words_of(measure.name))
            if what == "sum" and prices and self._amounts():
                raise _NotAskedError  # prices times amounts
            q.what = what
        elif (
            q.measure is not None
            and not flags & {"rows", "things"}
            and (q.group or flags & {"ask", "list"} or self._is_noun_phrase())
        ):
            if (
                not q.filters
                and not q.group
                and not any(item[1] in _DEFINITE for item in self.raw if item[0] in _SMALL)
            ):
                raise _NotAskedError  # what is revenue
            q.what = "value"
        else:
            raise _NotAskedError

    def _is_noun_phrase(self) -> bool:
        """ "revenue of Tea in East": a column and conditions, without a verb."""
        return bool(self.q.filters) and self.kinds[0] == "column" and set(self.kinds) <= {"column", "value"}

    def _decide_size(self, size: str, what: str) -> None:
        """The largest, the 5 cheapest, the region with the most rows."""
        q, flags = self.q, self.flags
        said = next((at for at, kind in enumerate(self.kinds) if kind in (*_SIZES, "top", "bottom")), 0)
        is_question = bool(flags & {"which", "who", "ask", "list"})
        if not is_question and q.measure and said > self.items.index(("column", q.measure)):
            raise _NotAskedError  # our revenue is the highest
        q.largest = size in ("max", "most", "dear", "often")
        if size in ("most", "least", "often") and q.noun is None:
            raise _NotAskedError
        if flags & {"count", "distinct"} or (q.best and q.group is not None and q.noun is not None):
            raise _NotAskedError
        if size in ("cheap", "dear"):
            prices = [column for column in self.names.measures if set(words_of(column.name)) & _PRICES]
            if len(prices) != 1 or what:
                raise _NotAskedError
            self._measure(prices[0])
        counts = size == "often" or (
            size in ("most", "least") and bool(flags & {"rows", "things"}) and q.measure is None
        )
        if q.noun is not None and q.measure is None and not (counts or what):
            raise _NotAskedError  # the biggest region: by what?
        if counts:
            if q.noun is None or what or q.group is not None or q.measure is not None:
                raise _NotAskedError
            q.what = "count"
        else:
            self._only_measure()
            q.what = what
        if q.noun is not None:
            if q.group is not None or "who" in flags or (not counts and flags & {"rows", "things"}):
                raise _NotAskedError
            q.best = q.best or 1
        elif "who" in flags and q.measure is not None and is_added(q.measure):
            raise _NotAskedError  # of one row, or of all of somebody's
        elif flags & {"which", "who", "rows", "things"} or q.best or size in ("cheap", "dear"):
            if q.group is not None or what:
                raise _NotAskedError
            q.best = q.best or 1
        elif what:
            raise _NotAskedError
        else:
            q.what = "max" if q.largest else "min"
