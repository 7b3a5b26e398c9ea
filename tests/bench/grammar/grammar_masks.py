"""Masks of published schemas, token by token: Sonata's beside those of llguidance, of which the speed is compared, too.

    python -m tests.bench grammar_masks CASES.jsonl.gz [--model NAME] [--limit N] [--json FILE]
    python -m tests.bench grammar_masks CASES.jsonl.gz --browser [--limit 100] ...   natively beside Chromium

CASES has rows {name, schema, tests: [{valid, data}]}, as `sonata grammar test --cases` takes them. The valid instances
of each schema that both take are walked by both in turns. A mask that differs is counted. Many do, since llguidance
leaves only the usual tokens of a text that must come next, where we allow all. With --browser Sonata alone is measured:
in this process, and in a worker of Chromium, in which Python calls the same kernel. Native times are the CPU's, so that
other programs do not count.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import llguidance
import llguidance.numpy
import numpy as np
from rich.table import Table

from app.cli.grammar import case_rows
from app.models.cache import model_path
from app.models.downloads import default_model_path
from py_core.grammar.expressions import GrammarError
from py_core.grammar.schema import canonical, schema_grammar
from py_core.tokenizers.base import Tokenizer
from tests.bench.grammar import masks_measure
from tests.bench.in_browser import chromium, local_server, processor, python_page, run_python
from tests.bench.reporting import options_of, print_tables, write_figures
from tests.grammar.schema_suite import open_vocabulary


class _Vocabulary:
    """A vocabulary as llguidance takes it."""

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes]) -> None:
        self._tokenizer = tokenizer
        self.tokens = [token or b"\xff" + str(number).encode() for number, token in enumerate(tokens)]
        self.special_token_ids = [number for number, token in enumerate(tokens) if not token]
        self.eos_token_id, self.bos_token_id = tokenizer.eos_id, None

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def measure(cases: Path, model: Path, limit: int | None) -> dict[str, Any]:
    kernel, tokenizer = open_vocabulary(model)
    tokens = kernel.tokens
    wrapped = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Vocabulary(tokenizer, tokens)))
    rows = list(islice(case_rows(cases), limit))
    counts: Counter[str] = Counter()
    compile_ms: dict[str, list[float]] = {"sonata": [], "llguidance": []}
    mask_us: dict[str, list[float]] = {"sonata": [], "llguidance": []}
    differ: list[list[Any]] = []
    theirs_bits = llguidance.numpy.allocate_token_bitmask(1, len(tokens))
    for row in rows:
        counts["schemas"] += 1
        begin = time.thread_time()
        try:
            opened = kernel.open(schema_grammar(row["schema"]))
            compile_ms["sonata"].append(1e3 * (time.thread_time() - begin))
        except GrammarError:
            counts["refused by sonata"] += 1
            opened = None
        begin = time.thread_time()
        source = json.dumps(row["schema"] | {"x-guidance": {"whitespace_flexible": False}})
        matcher = llguidance.LLMatcher(wrapped, llguidance.LLMatcher.grammar_from_json_schema(source), log_level=0)
        if matcher.is_error():
            counts["refused by llguidance"] += 1
        else:
            compile_ms["llguidance"].append(1e3 * (time.thread_time() - begin))
        if opened is None or matcher.is_error():
            continue
        counts["taken by both"] += 1
        for one in row["tests"]:
            if not one["valid"]:
                continue
            text, state = canonical(row["schema"], one["data"]), opened.begins
            matcher.reset()
            for token in tokenizer.encode(text):
                begin = time.thread_time()
                ours = opened.mask(state)
                middle = time.thread_time()
                llguidance.numpy.fill_next_token_bitmask(matcher, theirs_bits)
                mask_us["sonata"].append(1e6 * (middle - begin))
                mask_us["llguidance"].append(1e6 * (time.thread_time() - middle))
                counts["masks"] += 1
                both = [
                    np.unpackbits(bits.view(np.uint8), count=len(tokens), bitorder="little")
                    for bits in (ours, theirs_bits[0])
                ]
                both[1][tokenizer.eos_id] = 0
                more, less = int(np.sum(both[0] > both[1])), int(np.sum(both[0] < both[1]))
                if more or less:
                    counts["masks that differ"] += 1
                    which = [tokens[n].decode("utf-8", "replace") for n in np.flatnonzero(both[0] != both[1])[:5]]
                    differ.append([row["name"], tokenizer.decode([token]), more, less, which])
                after = opened.after_token(state, token)
                if after is None or not matcher.consume_token(token):
                    counts["walks that one refuses"] += 1
                    break
                state = after
        opened.close()
    spread = {
        name: {
            "compile_ms": {p: float(np.percentile(compile_ms[name], p)) for p in (50, 95)},
            "mask_us": {"mean": float(np.mean(us)), **{str(p): float(np.percentile(us, p)) for p in (50, 99, 100)}},
        }
        for name, us in mask_us.items()
    }
    return {"cpu": processor(), "tokens": len(tokens), "counts": dict(counts), **spread, "differ": differ[:200]}


IN_PAGE = """
import json
import numpy as np
from pyodide.code import run_js
from py_core.grammar.browser_kernel import BrowserGrammarHost
opening = await run_js("import(new URL('/engine/grammar_kernel.js', location.href).href)")
arguments = json.loads(ARGUMENTS)
host = BrowserGrammarHost(await opening.openGrammarKernel())
json.dumps(measure(GrammarKernel(host, [bytes.fromhex(token) for token in arguments["tokens"]]), arguments["rows"]))
"""


def measure_both(cases: Path, model: Path, limit: int) -> dict[str, Any]:
    """Results of masks_measure.py for evenly chosen cases: natively, and in Chromium."""
    kernel, tokenizer = open_vocabulary(model)
    chosen = list(case_rows(cases))
    rows = []
    for row in chosen[:: max(1, len(chosen) // limit)][:limit]:
        try:
            valid = [canonical(row["schema"], one["data"]) for one in row["tests"] if one["valid"]]
        except GrammarError:
            continue
        rows.append((row["schema"], [tokenizer.encode(text) for text in valid]))
    found = {"natively": masks_measure.measure(kernel, rows, time.thread_time)}
    arguments = json.dumps({"tokens": [token.hex() for token in kernel.tokens], "rows": rows})
    with (
        local_server() as address,
        chromium() as browser,
        python_page(browser, address, Path(masks_measure.__file__)) as page,
    ):
        found["Chromium"] = json.loads(run_python(page, IN_PAGE.replace("ARGUMENTS", repr(arguments))))
    return {"cpu": processor(), "tokens": len(kernel.tokens), "model": model.name, **found}


def table_of_both(found: dict[str, Any]) -> Table:
    places = ("natively", "Chromium")
    table = Table("", *places, title=f"{found['tokens']:,} tokens, {found['cpu']}")
    for what in ("schemas", "masks"):
        table.add_row(what, *(f"{found[place][what]:,}" for place in places))
    for what in ("compile_ms", "mask_us"):
        for part in found["natively"][what]:
            table.add_row(f"{what}, {part}", *(f"{found[place][what][part]:,.2f}" for place in places))
    return table


def table_of(found: dict[str, Any]) -> Table:
    table = Table("", "sonata", "llguidance", title=f"{found['tokens']:,} tokens, {found['cpu']}")
    for what, part in (
        ("compile_ms", "50"),
        ("compile_ms", "95"),
        ("mask_us", "mean"),
        ("mask_us", "50"),
        ("mask_us", "99"),
        ("mask_us", "100"),
    ):
        key = int(part) if what == "compile_ms" else part
        row = [found[name][what].get(key, found[name][what].get(part)) for name in ("sonata", "llguidance")]
        table.add_row(f"{what}, {part}", *(f"{value:,.2f}" for value in row))
    for name, count in found["counts"].items():
        table.add_row(name, f"{count:,}", "")
    return table


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--model", type=Path, help="with whose tokens; the usual model otherwise")
    parser.add_argument("--limit", type=int, help="the number of schemas")
    parser.add_argument("--browser", action="store_true", help="Sonata alone, natively and in Chromium")
    options = parser.parse_args()
    model = model_path(options.model) if options.model else default_model_path()
    if options.browser:
        found = measure_both(options.cases, model, options.limit or 100)
        write_figures(options, found)
        print_tables(table_of_both(found))
        return
    found = measure(options.cases, model, options.limit)
    write_figures(options, found)
    print_tables(table_of(found))
