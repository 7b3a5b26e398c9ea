"""Questions about tables: computed answers, and above all questions that are left to the model."""

from __future__ import annotations

import csv
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from py_core.tools.question import Exact, question_of
from py_core.tools.table import Table, read_table
from py_core.tools.table_answers import answer

NOW = datetime(2026, 11, 23, 14, 5)
TEXTS = {
    "sales": """order_id,order_date,region,product,quantity,revenue,status
1,2024-01-05,East,Tea,3,120.50,open
2,2024-01-17,West,Coffee,1,80.00,paid
3,2024-02-02,East,Coffee,2,"1,200.25",paid
4,2024-02-20,North,Green Tea,5,60.00,open
5,2024-03-01,New York,Tea,4,,open
6,2024-03-09,West,Cocoa,2,99.99,cancelled
""",
    "umsatz": """Region;Produkt;Umsatz (EUR);Stück
Ost;Äpfel;1.234,50;3
West;Birnen;80,00;1
Ost;Birnen;200,25;2
Süd;Äpfel;60,00;5
""",
    "employees": """Name,Department,Salary,Age,Start Date,Remote
Anna Smith,Sales,52000,34,2019-03-01,yes
Ben Jones,IT,61000,45,2015-07-15,no
Cara Lee,IT,58000,29,2021-01-10,yes
Dan Brown,HR,47000,51,2010-11-20,no
Eva Long,Sales,49500,38,2018-05-05,yes
""",
    "konto": """Buchungstag;Empfänger;Zweck;Betrag
01.02.2024;REWE;Einkauf;-45,20
05.02.2024;Arbeitgeber AG;Gehalt;2.500,00
01.03.2024;REWE;Einkauf;-61,35
""",
    "expenses": """Date,Category,Amount
01/15/2024,Food,12.50
01/20/2024,Travel,80.00
02/02/2024,Food,30.25
""",
    "prices": "product,price\nTea,€2.40\nCoffee,€5.10\nCocoa,€3\nMilk,€1.1\n",
    "codes": "state,city,amount\nIN,Springfield,1\nOR,C++,2\nCA,C,4\nTX,CA,8\n",
}
HERE = Path(__file__).parent


def table(name: str) -> Table:
    read = read_table(f"{name}.csv", TEXTS[name])
    assert read is not None
    return read


def asked(text: str, *tables: Table) -> Exact | None:
    return answer(question_of(text, NOW), tables)


def lines(name: str) -> list[tuple[str, str]]:
    """(table, question) of each line."""
    kept = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [(line.partition(": ")[0], line.partition(": ")[2]) for line in kept if line and not line.startswith("# ")]


def test_these_are_computed() -> None:
    tables = {name: table(name) for name in TEXTS}
    wrong = {}
    for name, line in lines("table_computed.txt"):
        question, _, result = line.rpartition(" => ")
        exact = asked(question, tables[name])
        if exact is None or exact.value != result or exact.kind != "table":
            wrong[question] = exact and exact.value
        other = asked(
            question.translate(str.maketrans(",.", ".,")), tables[name]
        )  # in another format: the same answer, or none
        if other is not None and other.value != result:
            wrong[question] = other.value
    assert wrong == {}


def test_these_are_left_to_the_model() -> None:
    tables = {name: table(name) for name in TEXTS}
    computed = [question for name, question in lines("table_not_computed.txt") if asked(question, tables[name])]
    assert computed == []


def test_an_answer_says_which_rows_it_is_of() -> None:
    exact = asked("Average revenue of Tea?", table("sales"))
    assert exact is not None
    assert exact.words == "The average of revenue is 120.50 (2 of 6 rows: product = “Tea”)."
    assert exact.working == (
        "File sales.csv, columns: revenue, product. 2 of 6 rows; in lines 2, 6. Empty cells left out: 1. "
        "1,200.25 was read as 1200.25. Computed exactly, without rounding."
    )
    exact = asked("Durchschnitt vom Umsatz in Ost?", table("umsatz"))
    assert exact is not None
    assert exact.words == "Der Durchschnitt von Umsatz (EUR) ist 717,375 (2 von 4 Zeilen: Region = „Ost“)."
    exact = asked("top 2 products by price", table("prices"))
    assert exact is not None
    assert exact.words.splitlines()[2:] == [
        "| line | product | price |", "| ---: | --- | ---: |", "| 3 | Coffee | €5.10 |", "| 4 | Cocoa | €3 |",
    ]  # fmt: skip


def test_what_is_rounded_is_about_right() -> None:
    read = read_table("a.csv", "name,n\na,1\nb,2\nc,2\n")
    exact = asked("mean of n", read) if read else None
    assert exact is not None
    assert exact.words == "The average of n is about 1.67 (all 3 rows)."


def test_of_several_files_the_one_that_fits_or_is_named() -> None:
    sales, prices = table("sales"), table("prices")
    assert asked("total revenue", sales, prices).value == "1560.74"
    assert asked("how many rows", sales, prices) is None
    assert asked("how many rows in prices.csv", sales, prices).value == "4"


def columns(text: str, name: str = "a.csv") -> dict[str, object]:
    read = read_table(name, text)
    assert read is not None
    return {column.name: column.numbers for column in read.columns}


NUMBERS_READ = {
    "a,b\nx,1.5\ny,-2\n": ["1.5", "-2"],
    "a;b\nx;1,5\ny;1.234\n": ["1.5", "1234"],
    "a\tb\nx\t1,234.5\ny\t1,234\n": ["1234.5", "1234"],
    "a|b\nx|(5.00)\ny|$7\n": ["-5", "7"],
    "sep=;\na;b\nx;12 %\ny;3,5 %\n": ["12", "3.5"],
    "sep=^\na^b\nx^12\ny^3.5\n": ["12", "3.5"],
    "a;b\nx;1 234,50\ny;1'000,00\n": ["1234.5", "1000"],
    'a,b\n"x\nz",1\ny,\n': ["1", None],
    "a;b;c\nx;1.234;0,5\n": ["1234"],  # another column decides
    "a,b\nx,1.234\ny,5\n": None,  # nothing decides
    'a,b\nx,1.5\ny,"2,5"\n': None,
    "a,b\nx,€1\ny,$2\n": None,
    "a,b\nx,5%\ny,0.05\n": None,
    "a,b\nx,007\ny,12\n": None,
    "a,b\nx,12 kg\ny,3\n": None,
}


def test_numbers_are_read_by_their_column() -> None:
    for text, numbers in NUMBERS_READ.items():
        expected = None if numbers is None else [None if one is None else Decimal(one) for one in numbers]
        assert columns(text)["b"] == expected, text


NO_TABLES = (
    "1,2\n3,4\n", "Ann,2024-01-01\nBob,2024-02-01\n", 'a,b\n"x,1\ny,2\n', "a,b\n1,200,5\n", "", "a,b\n",
    "a" + ",b" * 1000 + "\n" + "1" + ",2" * 1000,
    "a" + ",b" * 900 + "\n" + "1\n" * 200_000,  # short rows lack 180 million cells
)  # fmt: skip


def test_what_could_be_read_in_two_ways_is_no_table() -> None:
    assert [text for text in NO_TABLES if read_table("a.csv", text)] == []


REPEATED = (
    "," * 10**5, "a," * 10**5 + "\n" + "1," * 10**5, "(" * 10**5 + ",b\nx,1", "[" * 10**5 + "a,b\nx,1", "a,b\n" * 10**5,
    "1," * 50_000 + "a;b\nx;1", "a,b" + "\n" * 10**5, "a;b\n1;1" + " 000" * 10**4, 'a,b\n"' + '""' * 50_000,
)  # fmt: skip


def test_a_table_that_repeats_costs_no_more_than_its_length() -> None:
    """Milliseconds each, as in test_computed.py."""
    for text in REPEATED:
        if (read := read_table("a.csv", text)) is not None:
            exact = asked("sum of b", read)
            assert exact is None or exact.words


def test_a_header_of_words_over_words_is_not_sure() -> None:
    read = read_table("a.csv", "Ann,Rome\nBob,Oslo\n")
    assert read is not None
    assert asked("how many rows", read) is None


def test_totals_and_rows_that_are_too_long_are_left_out_and_said() -> None:
    rows = "".join(f"r{number},{number}\n" for number in range(1, 21))
    read = read_table("a.csv", f"name,amount\n{rows}r21,1,200\nr22\n\nTotal,210\n")
    exact = asked("total amount", read) if read else None
    assert exact is not None
    assert exact.value == "210"
    assert "Rows with totals, left out: 1." in exact.words
    assert "Rows with more cells than the header, left out: 1." in exact.words
    assert "(what they lack counts as empty): 1." in exact.working


def test_dates_that_could_be_two_are_none() -> None:
    read = read_table("a.csv", "day,n\n1/2/2024,1\n3/4/2024,2\n")
    assert read is not None
    assert read.columns[0].months is None
    read = read_table("a.csv", "day,n\n1/2/2024,1\n13/4/2024,2\n")
    assert read is not None
    assert read.columns[0].months == [(2024, 2), (2024, 4)]


def test_a_cell_is_shown_as_it_is() -> None:
    read = read_table("a.csv", 'name,n\n"[x](http://e.org) | *b*",1\n"<img>",2\n')
    exact = asked("top 2 names by n", read) if read else None
    assert exact is not None
    assert r"[x] (http://e.org) \| \*b\*" in exact.words  # no link
    assert r"\<img\>" in exact.words


NUMBERS = st.decimals(-(10**6), 10**6, places=2)


@given(st.lists(st.tuples(st.sampled_from(["East", "West", "a;b, \"c\"\nd"]), NUMBERS), min_size=1, max_size=12),
       st.sampled_from(",;\t|"), st.booleans())  # fmt: skip
def test_sums_are_those_of_fractions(rows: list[tuple[str, Decimal]], delimiter: str, german: bool) -> None:
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(["place", "amount"])
    for place, number in rows:
        said = f"{number:,.2f}"
        writer.writerow([place, said.translate(str.maketrans(",.", ".,")) if german else said])
    read = read_table("a.csv", out.getvalue().replace("\r\n", "\n"))
    assert read is not None
    total = asked("total amount", read)
    assert total is not None
    assert Fraction(total.value) == sum(Fraction(number) for _, number in rows)
    east = [Fraction(number) for place, number in rows if place == "East"]
    of_east = asked("total amount of East", read)
    assert (of_east is None) == (not east)
    if of_east is not None:
        assert Fraction(of_east.value) == sum(east)


SALES = table("sales")
WORDS = (
    "total revenue of East by region how many rows with which product has the highest top 3 per month average > 100 in"
    " open and between 2024 January distinct order contains 1,000 Summe nach is quantity 5 € list cheapest"
)


@given(st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join) | st.text(max_size=40))
def test_any_question_is_answered_or_left_alone(text: str) -> None:
    exact = asked(text, SALES)
    assert exact is None or (exact.words and exact.working)


@given(st.text(alphabet='ab1.,;"\n \t|-€', max_size=80))
def test_any_text_is_a_table_or_none(text: str) -> None:
    read = read_table("a.csv", text)
    if read is not None:
        asked("how many rows", read)
        asked("sum of a", read)


def test_a_name_of_open_brackets_holds_nobody_up() -> None:
    for name in ("(" * 60_000, "[" * 60_000, "aB" * 30_000):
        read = read_table("sales.csv", f"{name},amount\nx,1\ny,2\n")
        assert read is not None
        assert asked("What is the total amount?", read) is not None
