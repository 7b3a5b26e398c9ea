"""The JSON-Schema-Test-Suite through masks: cases that are right, wrong, and refused with the path of a keyword.

    python -m tests.bench schema_suite [--draft NAME]... [--model NAME] [--json FILE]

A case of a schema without any value is right if it is not valid. The command fails if a case is wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from app.models.cache import model_path
from app.models.downloads import default_model_path
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.grammar.schema_suite import DIALECTS, PACKAGE, Verdict, open_vocabulary, verdicts

KINDS = ("right", "on purpose", "refused", "wrong")


def table_of(found: dict[str, list[Verdict]]) -> Table:
    title = f"JSON-Schema-Test-Suite of {PACKAGE}"
    table = Table("draft", "cases", *KINDS, "schemas refused", title=title)
    for draft, all_of_it in found.items():
        counts = Counter(one.came for one in all_of_it)
        schemas = {(one.file, one.group) for one in all_of_it if one.came == "refused"}
        table.add_row(draft, f"{len(all_of_it):,}", *(f"{counts[kind]:,}" for kind in KINDS), f"{len(schemas):,}")
    return table


def reasons_of(found: dict[str, list[Verdict]]) -> Table:
    """The cases that are not right, by file and sentence."""
    table = Table("draft", "file", "cases", "why")
    for draft, all_of_it in found.items():
        counts = Counter((one.came, one.file, one.why) for one in all_of_it if one.why)
        for (came, file, why), count in sorted(counts.items(), reverse=True):
            table.add_row(draft, file, str(count), f"{came}: {why}")
    return table


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument(
        "--draft", action="append", choices=list(DIALECTS), help="draft2020-12 otherwise; may be repeated"
    )
    parser.add_argument("--model", type=Path, help="with whose tokens; the usual model otherwise")
    options = parser.parse_args()
    path = model_path(options.model) if options.model else default_model_path()
    kernel, tokenizer = open_vocabulary(path)
    found = {draft: list(verdicts(kernel, tokenizer, draft)) for draft in options.draft or ["draft2020-12"]}
    write_figures(options, {draft: [asdict(one) for one in all_of_it] for draft, all_of_it in found.items()})
    print_tables(reasons_of(found), table_of(found))
    return any(one.came == "wrong" for all_of_it in found.values() for one in all_of_it)
