"""Answers questions about tables: parses the question (table_questions.py), computes, and names the rows used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from py_core.tools.question import Exact, Question
from py_core.tools.table import Column, Table, folded
from py_core.tools.table_questions import Filter, TableQuery, asked_of, is_added, is_label, key_of, words_of

MOST_GROUPS = 50
"""The most groups that a table in an answer shows."""
MOST_LISTED = 30
MOST_COLUMNS = 6
MOST_LINES = 10
_LONGEST_CELL = 60
_DIGITS = 300  # of an intermediate sum

_SAID = {
    "sum": ("sum of {}", "Summe von {}"), "mean": ("average of {}", "Durchschnitt von {}"),
    "median": ("median of {}", "Median von {}"), "max": ("largest {}", "größter Wert von {}"),
    "min": ("smallest {}", "kleinster Wert von {}"), "value": ("{}", "{}"), "count": ("rows", "Zeilen"),
}  # fmt: skip
_ARTICLES = {"sum": "Die", "mean": "Der", "median": "Der", "max": "Ein", "min": "Ein"}
_COMPARED = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "is": "="}


def answer(question: Question, tables: Sequence[Table]) -> Exact | None:
    """None if it is not surely about one of the tables. A question that names its file is about that file's table."""
    named = [table for table in tables if _names_file(question.text, table)]
    text = question.text
    if len(named) == 1:
        tables, text = named, re.sub(rf"\b{re.escape(named[0].name)}", "file", text, flags=re.IGNORECASE)
    found = [exact for table in tables if (exact := _answer(text, table)) is not None]
    return found[0] if len(found) == 1 else None


def _names_file(text: str, table: Table) -> bool:
    return re.search(rf"\b{re.escape(table.name)}", text, re.IGNORECASE) is not None


def _answer(text: str, table: Table) -> Exact | None:
    query = asked_of(text, table)
    if query is None:
        return None
    by = query.noun if query.noun is not None else query.group
    if by is not None and not (isinstance(by, Column) and len(by.distinct) == len(by.cells)):
        compared = [one.column for one in query.filters if one.kind not in ("is", "contains", "month")]
        if compared and (query.measure is None or query.measure in compared):
            return None  # regions with a revenue over 100: in one row, or in all?
    rows: Sequence[int] = range(len(table.lines))
    for one in query.filters:
        rows = _fitting(one, rows)
    with localcontext(prec=_DIGITS):
        return _Answer(query, table, list(rows)).made()


def _fitting(one: Filter, rows: Sequence[int]) -> list[int]:
    column, values = one.column, one.values
    assert column is not None
    if one.kind == "month":
        year, month = values
        months = column.months or []
        return [row for row in rows if (at := months[row]) and at[0] == year and month in (0, at[1])]
    if one.kind == "contains" or (one.kind == "is" and isinstance(values[0], str)):
        text = str(values[0])
        fits = {
            cell for cell in column.distinct
            if (text in folded(cell) if one.kind == "contains" else text == " ".join(key_of(cell)))
        }  # fmt: skip
        return [row for row in rows if column.cells[row] in fits]
    numbers, (low, *more) = column.numbers or [], values
    tests = {
        "is": lambda n: n == low, "gt": lambda n: n > low, "ge": lambda n: n >= low, "lt": lambda n: n < low,
        "le": lambda n: n <= low, "between": lambda n: low <= n <= more[0],
    }  # fmt: skip
    return [row for row in rows if (n := numbers[row]) is not None and tests[one.kind](n)]


class _Answer:
    def __init__(self, query: TableQuery, table: Table, rows: list[int]) -> None:
        self.q, self.table, self.rows = query, table, rows
        self.german = query.language == "de"
        self.empty = 0
        self.notes = list[str]()

    def made(self) -> Exact | None:
        q = self.q
        if not self.rows and q.what not in ("count", "distinct"):
            said = self._say("No row fits", "Keine Zeile passt dazu") + f"{self._of()}."
            return self._exact("", said)
        if q.best:
            return self._best()
        if q.group is not None:
            return self._groups()
        if q.what in ("count", "distinct", "list"):
            return self._counted()
        if q.what == "rows":
            begin, *_ = self._fit().words.rpartition(".")
            return self._exact(str(len(self.rows)), f"{begin}:\n\n{self._rows(self.rows)}")
        if q.what in ("max", "min"):
            return self._extreme()
        assert q.measure is not None
        if q.what == "value" and len(self.rows) != 1:
            if not is_added(q.measure):
                return None
            q.what = "sum"
        value, is_exact = self._value(q.what, self.rows)
        if value is None:
            return None
        said = self._label(q.what)
        begin = f"{_ARTICLES.get(q.what, '')} {said}".strip() if self.german else f"The {said}"
        text = self._number(value, q.measure.unit)
        is_ = self._say("is", "ist") + ("" if is_exact else self._say(" about", " etwa"))
        return self._exact(_plain(value), f"{begin} {is_} {text}{self._of()}.", is_exact)

    # ---- values ----

    def _value(self, what: str, rows: Sequence[int]) -> tuple[Decimal | None, bool]:
        """The value, None if no cell has a number; and whether it is exact."""
        if what == "count":
            return Decimal(len(rows)), True
        assert self.q.measure is not None
        numbers = self.q.measure.numbers or []
        found = [number for row in rows if (number := numbers[row]) is not None]
        self.empty += len(rows) - len(found)
        if not found:
            return None, True
        if what in ("max", "min"):
            return (max if what == "max" else min)(found), True
        if what == "mean":
            return _rounded(Fraction(sum(found, Decimal(0))) / len(found), found)
        if what == "median":
            found.sort()
            middle = len(found) // 2
            if len(found) % 2:
                return found[middle], True
            return (found[middle - 1] + found[middle]) / 2, True
        return sum(found, Decimal(0)), True

    def _grouped(self, by: Column | str) -> dict[str, list[int]]:
        """Rows grouped by their value in a column, or by month or year; empty cells form no group."""
        if isinstance(by, Column):
            keys = [cell if cell in by.distinct else "" for cell in by.cells]
        else:
            (dates,) = (column for column in self.table.columns if column.months is not None)
            months = dates.months or []
            keys = ["" if at is None else f"{at[0]}-{at[1]:02}" if by == "month" else str(at[0]) for at in months]
        groups, spelled = dict[str, list[int]](), dict[str, str]()
        for row in self.rows:
            if key := keys[row]:
                groups.setdefault(spelled.setdefault(folded(key), key), []).append(row)
        without = len(self.rows) - sum(map(len, groups.values()))
        if without:
            self.notes.append(self._say(f"Rows without {self._named(by)}: {without}.",
                                        f"Zeilen ohne {self._named(by)}: {without}."))  # fmt: skip
        return groups

    # ---- answers ----

    def _counted(self) -> Exact | None:
        q, count = self.q, len(self.rows)
        if not isinstance(q.noun, Column):
            return None if q.noun is not None else self._fit()
        groups = self._grouped(q.noun)
        if q.what == "count" and q.filters and len(groups) != count:
            return None  # rows, or different ones
        if q.what == "count" and q.filters:
            return self._fit()
        values = self._say("value" if len(groups) == 1 else "different values",
                           "Wert" if len(groups) == 1 else "verschiedene Werte")  # fmt: skip
        name = _cell(q.noun.name)
        if q.what == "list":
            shown = list(groups)[:MOST_LISTED]
            more = len(groups) - len(shown)
            listed = ", ".join(
                f"{_cell(key)} ({len(groups[key])})" if len(groups) < count else _cell(key) for key in shown
            )
            listed += self._say(f" and {more} more", f" und {more} weitere") if more else ""
            if len(groups) == 1:
                return self._exact(shown[0], f"{name} {self._say('is', 'ist')} {_cell(shown[0])}{self._of()}.")
            has = self._say("has", "hat")
            return self._exact(
                str(len(groups)), f"{name} {has} {self._count(len(groups))} {values}{self._of()}: {listed}."
            )
        said = self._say(
            f"{name} has {self._count(len(groups))} {values}", f"{name} hat {self._count(len(groups))} {values}"
        )
        return self._exact(str(len(groups)), f"{said}{self._of()}.")

    def _fit(self) -> Exact:
        count, total = self._count(len(self.rows)), self._count(len(self.table.lines))
        if self.q.filters:
            said = self._say(f"{count} of {total} rows fit", f"{count} von {total} Zeilen passen")
            return self._exact(str(len(self.rows)), f"{said}: {self._conditions()}.")
        name = _cell(self.table.name)
        return self._exact(str(len(self.rows)), self._say(f"{name} has {count} rows.", f"{name} hat {count} Zeilen."))

    def _extreme(self) -> Exact | None:
        """The largest or smallest number, and its rows."""
        value, _ = self._value(self.q.what, self.rows)
        if value is None:
            return None
        measure = self.q.measure
        assert measure is not None
        numbers = measure.numbers or []
        rows = [row for row in self.rows if numbers[row] == value]
        said = self._label(self.q.what)
        begin = said[0].upper() + said[1:] if self.german else f"The {said}"
        is_ = ": " if self.german else " is "
        return self._exact(
            _plain(value),
            f"{begin}{is_}{self._number(value, measure.unit)}{self._of()}.\n\n{self._rows(rows)}",
            used=rows,
        )

    def _best(self) -> Exact | None:
        q, what = self.q, self.q.what
        if q.noun is None:
            return self._best_rows(self.rows)
        groups = self._grouped(q.noun)
        if what == "":
            assert q.measure is not None
            if all(len(rows) == 1 for rows in groups.values()):
                return self._best_rows([row for rows in groups.values() for row in rows])
            if is_added(q.measure):
                what = "sum"
            elif q.best == 1 and isinstance(q.noun, Column) and _is_of_one(q.measure):
                return self._best_rows(self.rows)
            else:
                return None
        ranked = self._ranked(groups, what)
        if not ranked:
            return None
        ranked.sort(key=lambda one: one[1], reverse=q.largest)
        last = ranked[min(q.best, len(ranked)) - 1][1]
        kept = [one for one in ranked if (one[1] >= last if q.largest else one[1] <= last)]
        if len(kept) > MOST_GROUPS:
            return None
        label, unit = self._label(what), q.measure.unit if q.measure and what != "count" else ""
        if len(kept) == 1:
            key, value, is_exact = kept[0]
            about = "" if is_exact else self._say("about ", "etwa ")
            text = f"{about}{self._number(value, unit)}"
            which = self._say("largest" if q.largest else "smallest", "größten" if q.largest else "kleinsten")
            many = self._say("most" if q.largest else "fewest", "")
            said = self._say(
                f"{_cell(key)} has the {many if what == 'count' else which} {label}: {text}",
                f"Den {which} Wert hat {_cell(key)}: {f'{text} {label}' if what == 'count' else f'{label} {text}'}",
            )
            return self._exact(key, f"{said}{self._of()}.", is_exact)
        return self._table_of(kept, q.noun, label, unit)

    def _best_rows(self, rows: list[int]) -> Exact | None:
        q, measure = self.q, self.q.measure
        assert measure is not None
        numbers = measure.numbers or []
        known = [(number, row) for row in rows if (number := numbers[row]) is not None]
        self.empty += len(rows) - len(known)
        if not known:
            return None
        known.sort(key=lambda one: one[0], reverse=q.largest)
        last = known[min(q.best, len(known)) - 1][0]
        best = [row for number, row in known if (number >= last if q.largest else number <= last)]
        if len(best) > MOST_GROUPS:
            return None
        most = self._say("largest" if q.largest else "smallest", "größten" if q.largest else "kleinsten")
        name = _cell(measure.name)
        if len(best) == 1:
            first = self._number(known[0][0], measure.unit)
            said = self._say(f"The {most} {name} is {first}", f"Der {most[:-1]} Wert von {name} ist {first}")
        else:
            said = self._say(
                f"The {len(best)} rows with the {most} {name}",
                f"Die {len(best)} Zeilen mit den {most} Werten von {name}",
            )
        end = "." if len(best) == 1 else ":"
        return self._exact(_plain(known[0][0]), f"{said}{self._of()}{end}\n\n{self._rows(best)}", used=best)

    def _groups(self) -> Exact | None:
        q, what = self.q, self.q.what
        assert q.group is not None
        groups = self._grouped(q.group)
        if what in ("distinct", "list") or (q.noun is not None and not self._is_row(q.noun)):
            return None
        if what == "value" and any(len(rows) != 1 for rows in groups.values()):
            if q.measure is None or not is_added(q.measure):
                return None
            what = "sum"
        ranked = self._ranked(groups, what)
        if not ranked:
            return None
        if isinstance(q.group, Column):
            ranked.sort(key=lambda one: one[1], reverse=True)
        else:
            ranked.sort()
        unit = q.measure.unit if q.measure and what != "count" else ""
        return self._table_of(ranked, q.group, self._label(what), unit)

    def _is_row(self, noun: Column | str) -> bool:
        return isinstance(noun, Column) and len(noun.distinct) == len(noun.cells)

    def _ranked(self, groups: dict[str, list[int]], what: str) -> list[tuple[str, Decimal, bool]]:
        values = [(key, *self._value(what, rows)) for key, rows in groups.items()]
        if lacking := [key for key, value, _ in values if value is None]:
            self.notes.append(self._say("No number: ", "Keine Zahl: ") + ", ".join(lacking[:MOST_LINES]) + ".")
        return [(key, value, is_exact) for key, value, is_exact in values if value is not None]

    def _table_of(self, ranked: list[tuple[str, Decimal, bool]], by: Column | str, label: str, unit: str) -> Exact:
        shown, head = ranked[:MOST_GROUPS], label[0].upper() + label[1:]
        is_exact = all(one[2] for one in ranked)
        lines = [f"| {self._named(by)} | {label} |", "| --- | ---: |"]
        for key, value, exact in shown:
            lines.append(f"| {_cell(key)} | {'' if exact else '≈ '}{self._number(value, unit)} |")
        begin = self._say(f"{head} by {self._named(by)}", f"{head} nach {self._named(by)}")
        if len(shown) < len(ranked):
            begin += self._say(
                f", the first {len(shown)} of {len(ranked)}", f", die ersten {len(shown)} von {len(ranked)}"
            )
        bare = ", ".join(f"{key} {_plain(value)}" for key, value, _ in shown)
        return self._exact(bare, f"{begin}{self._of()}:\n\n" + "\n".join(lines), is_exact)

    # ---- words ----

    def _say(self, english: str, german: str) -> str:
        return german if self.german else english

    def _label(self, what: str) -> str:
        name = _cell(self.q.measure.name) if self.q.measure else ""
        return _SAID[what][self.german].format(name)

    def _named(self, by: Column | str) -> str:
        if isinstance(by, Column):
            return _cell(by.name)
        return self._say(by, {"month": "Monat", "year": "Jahr"}[by])

    def _count(self, number: int) -> str:
        return f"{number:,}".replace(",", ".") if self.german else f"{number:,}"

    def _number(self, value: Decimal, unit: str) -> str:
        whole, point, rest = _shown(value).partition(".")
        said = f"{int(whole):,}" if whole not in ("-0",) else whole
        said += point + rest
        if self.german:
            said = said.translate(str.maketrans(",.", ".,"))
        if unit == "%":
            return f"{said}{self._say('%', ' %')}"
        if not unit:
            return said
        if self.german or len(unit) > 1:
            return f"{said} {unit}"
        return f"-{unit}{said[1:]}" if said.startswith("-") else f"{unit}{said}"

    def _conditions(self) -> str:
        said = []
        for one in self.q.filters:
            assert one.column is not None
            name, values = _cell(one.column.name), one.values
            if one.kind == "month":
                said.append(f"{name} in {values[0]}" + (f"-{values[1]:02}" if values[1] else ""))
                continue
            if isinstance(values[0], str):
                quoted = self._say("“{}”", "„{}“").format(_cell(self._spelled(one)))
                said.append(f"{name} {self._say('contains', 'enthält')} {quoted}" if one.kind == "contains"
                            else f"{name} = {quoted}")  # fmt: skip
                continue
            column = one.column
            low, *high = [str(v) if is_label(column) else self._number(Decimal(v), column.unit) for v in values]
            said.append(f"{low} ≤ {name} ≤ {high[0]}" if high else f"{name} {_COMPARED[one.kind]} {low}")
        return self._say(" and ", " und ").join(said)

    def _spelled(self, one: Filter) -> str:
        """A value as the file spells it."""
        assert one.column is not None
        text = str(one.values[0])
        return next((cell for cell in one.column.distinct if " ".join(key_of(cell)) == text), text)

    def _of(self) -> str:
        """(30 of 120 rows: region = “East”)"""
        count, total = self._count(len(self.rows)), self._count(len(self.table.lines))
        if not self.q.filters:
            return self._say(f" (all {total} rows)", f" (alle {total} Zeilen)")
        return self._say(f" ({count} of {total} rows: ", f" ({count} von {total} Zeilen: ") + f"{self._conditions()})"

    def _rows(self, rows: Sequence[int]) -> str:
        """Rows as a Markdown table, with the most relevant columns first."""
        q = self.q
        first = [column for column in (q.noun, q.measure) if isinstance(column, Column)]
        others = [column for column in self.table.columns if column not in first]
        columns = [*first, *others][:MOST_COLUMNS]
        lines = [self._say("line", "Zeile"), *(_cell(column.name) for column in columns)]
        table = [
            " | ".join(lines),
            " | ".join(["---:"] * 1 + ["---:" if column.numbers else "---" for column in columns]),
        ]
        for row in rows[:MOST_GROUPS]:
            table.append(" | ".join([str(self.table.lines[row]), *(_cell(column.cells[row]) for column in columns)]))
        if len(rows) > MOST_GROUPS:
            table.append("… |" + " |" * (len(columns) - 1))
        return "\n".join(f"| {line} |" for line in table)

    def _exact(self, value: str, words: str, is_exact: bool = True, used: Sequence[int] | None = None) -> Exact:
        table, q, say = self.table, self.q, self._say
        numbers = [q.measure, *(one.column for one in q.filters)]
        used_columns = [column for column in (q.noun, q.group, *numbers) if isinstance(column, Column)]
        names = ", ".join(dict.fromkeys(column.name for column in used_columns))
        lines = [table.lines[row] for row in (self.rows if used is None else used)]
        parts = [
            say(f"File {table.name}", f"Datei {table.name}")
            + (say(f", columns: {names}.", f", Spalten: {names}.") if names else ".")
        ]
        if lines:
            some = ", ".join(map(str, lines[:MOST_LINES])) + (", …" if len(lines) > MOST_LINES else "")
            count, total = self._count(len(self.rows)), self._count(len(table.lines))
            parts.append(
                say(
                    f"{count} of {total} rows; in lines {some}.",
                    f"{count} von {total} Zeilen; Zeilen der Datei: {some}.",
                )
            )
        if self.empty:
            parts.append(say(f"Empty cells left out: {self.empty}.", f"Leere Zellen, ausgelassen: {self.empty}."))
        parts += self.notes
        for column in dict.fromkeys(column.name for column in numbers if column and column.numbers and column.example):
            example = next(each for each in numbers if each and each.name == column)
            cell, read = example.example, (example.numbers or [])[example.cells.index(example.example)]
            assert read is not None
            parts.append(say(f"{cell} was read as {_plain(read)}.", f"{cell} wurde als {_plain(read)} gelesen."))
        left = []
        if table.totals:
            left.append(
                say(f"Rows with totals, left out: {table.totals}.", f"Zeilen mit Summen, ausgelassen: {table.totals}.")
            )
        if table.long:
            left.append(say(f"Rows with more cells than the header, left out: {table.long}.",
                            f"Zeilen mit mehr Zellen als die Kopfzeile, ausgelassen: {table.long}."))  # fmt: skip
        if table.short:
            few = say(
                "Rows with fewer cells (what they lack counts as empty)", "Zeilen mit weniger Zellen (gelten als leer)"
            )
            parts.append(f"{few}: {table.short}.")
        parts.append(say("Computed exactly, without rounding.", "Genau berechnet, ohne Rundung.") if is_exact
                     else say("Computed exactly, then rounded.", "Genau berechnet, dann gerundet."))  # fmt: skip
        said = words + ("\n\n" + " ".join(left) if left else "")
        return Exact("table", value, said, " ".join(parts))


def _is_of_one(column: Column) -> bool:
    """True if its largest number surely belongs to one row, and is no sum."""
    words = set(words_of(column.name))
    return not words.isdisjoint(("price", "preis", "rate", "score", "percent", "temperature", "age", "alter"))


def _rounded(value: Fraction, numbers: Sequence[Decimal]) -> tuple[Decimal, bool]:
    """Exact if it has few decimals, else rounded to two, or to as many as the numbers have."""
    own = max(-int(number.as_tuple().exponent) for number in numbers)
    places = max(2, own)
    scaled = value * 10 ** (places + 2)
    if scaled.denominator != 1:
        return Decimal(round(value * 10**places)).scaleb(-places), False
    exact = Decimal(int(scaled)).scaleb(-places - 2).normalize()
    return exact.quantize(Decimal(1).scaleb(min(-own, int(exact.as_tuple().exponent)))), True


def _plain(value: Decimal) -> str:
    text = _shown(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _shown(value: Decimal) -> str:
    """The number with its own decimals, 2.50, but without .00."""
    text = f"{value:f}".removeprefix("-") if not value else f"{value:f}"
    whole, _, rest = text.partition(".")
    return text if rest.strip("0") else whole


def _cell(text: str) -> str:
    """A cell's text, escaped so that Markdown shows it unchanged."""
    text = " ".join(text.split())
    text = text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"
    text = re.sub(r"\](?=[(\[])", "] ", text)  # no link
    signs = r"([\\`*<>|~$]|(?<!\w)_|_(?!\w))" if text.count("$") > 1 else r"([\\`*<>|~]|(?<!\w)_|_(?!\w))"
    return re.sub(signs, r"\\\1", text)
