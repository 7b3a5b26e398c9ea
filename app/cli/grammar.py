"""`sonata grammar test`: which texts a schema, a grammar or a regular expression lets through."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from app.cli.loading import native_grammar_host
from app.cli.option_groups import option_group
from app.cli.terminal import console
from app.generation.grammars import shape_of, token_bytes
from app.models.cache import model_path
from app.models.downloads import default_model_path
from py_core.display import shown, why_not_json
from py_core.formats.gguf import read_header
from py_core.formats.source import open_source
from py_core.grammar.expressions import Grammar, GrammarError
from py_core.sampling import SamplingParams
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.registry import tokenizer_from_gguf

if TYPE_CHECKING:
    from py_core.grammar.kernel import GrammarKernel, OpenGrammar

grammar_app = typer.Typer(help="Schemas, grammars and regular expressions that answers can be made to follow.")


@dataclass(frozen=True)
class ShapeOptions:
    """The shape of a command's answers. `option_group` makes them options of the command."""

    schema: Annotated[Path | None, typer.Option("--schema", help="A file with a JSON Schema.")] = None
    grammar: Annotated[Path | None, typer.Option("--grammar", help="A file with a grammar in llama.cpp's GBNF.")] = None
    regex: Annotated[str | None, typer.Option("--regex", help="A regular expression for the whole text.")] = None
    choice: Annotated[
        list[str] | None, typer.Option("--choice", help="One of the texts to choose from; given several times.")
    ] = None
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TAG", help="Free text, in which each of these tags begins the shape."),
    ] = None
    close: Annotated[
        bool, typer.Option("--close", help="If --max-tokens ends a shape, append the shortest rest of it.")
    ] = False

    def read(self) -> Grammar | None:
        """As `shape_of`, with files."""
        schema, grammar = (_text_in(path) if path else None for path in (self.schema, self.grammar))
        return shape_of(schema, grammar, self.regex, self.choice or None, self.after)

    def applied_to(self, sampling: SamplingParams) -> SamplingParams:
        """Return these rules for answers of the shape, if there is one. Raises GrammarError."""
        shape = self.read()
        return sampling if shape is None else replace(sampling, grammar=shape, closes=self.close)


NO_SHAPE = ShapeOptions()


def tell_cut_off(closes: bool) -> None:
    """Say that an answer had no more room, and may end before its shape does."""
    ended = "was ended in the shortest way that its shape has" if closes else "may end before its shape does"
    note = f"An answer had no more room, and {ended}: give a larger --max-tokens."
    console(stderr=True).print(note, soft_wrap=True)


@dataclass
class Followed:
    """How far the masks let a text through: `done` of its characters, or all."""

    passes: bool
    done: int
    mask_us: list[float] = field(default_factory=list)


def follow(opened: OpenGrammar, tokenizer: Tokenizer, text: str) -> Followed:
    """Walk the tokens of a text through the masks."""
    state, data = opened.begins, text.encode()
    found, at = Followed(False, 0), 0
    for token in tokenizer.encode(text, continues=True):
        begin = time.perf_counter()
        mask = opened.mask(state)
        found.mask_us.append(1e6 * (time.perf_counter() - begin))
        after = opened.after_token(state, token)
        if (after is not None) != bool(mask[token // 32] >> np.uint32(token % 32) & 1):
            raise AssertionError(f"The mask and the step differ for token {token} of {shown(text)}.")
        if after is None:
            _, more = opened.after_bytes(state, data[at:])
            found.done = len(data[: at + more].decode("utf-8", "ignore"))
            return found
        state, at = after, at + len(tokenizer.token_bytes(token))
    found.done, found.passes = len(text), opened.may_end(state)
    return found


@grammar_app.command("test")
@option_group("shape", ShapeOptions, ("schema", "grammar", "regex", "after"))
def follow_instances(
    instances: Annotated[
        list[Path] | None, typer.Argument(metavar="INSTANCE...", help="Files with a text each.")
    ] = None,
    shape: ShapeOptions = NO_SHAPE,
    cases: Annotated[
        Path | None, typer.Option(help="A file of {name, schema, tests: [{valid, data}]}, one a line; may be gzip.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="The model with whose tokens to test.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say of each text if the masks let it through, token by token, and where not.

    An instance of a schema is JSON: it is written compactly, with properties in the order of the schema. With --after
    it is a text, as it is.
    """
    from py_core.grammar.kernel import GrammarKernel  # late: other commands begin sooner
    from py_core.grammar.schema import canonical

    tokenizer = asyncio.run(_tokenizer(model))
    kernel = GrammarKernel(asyncio.run(native_grammar_host()), token_bytes(tokenizer))
    if cases is not None:
        report = _test_cases(kernel, tokenizer, cases)
        _print(report, as_json)
        return
    made, schema = shape.read(), shape.schema
    if made is None or not instances:
        raise ValueError("Give --schema, --grammar or --regex and files to test, or --cases.")
    opened = kernel.open(made)
    read_schema: Any = json.loads(_text_in(schema)) if schema and shape.after is None else None
    told = []
    for path in instances:
        text = _text_in(path)
        if read_schema is not None:
            try:
                text = canonical(read_schema, json.loads(text))
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{path} is not JSON: {why_not_json(error)}. An instance of a schema has to be."
                ) from None
        found = follow(opened, tokenizer, text)
        told.append({"file": str(path), "passes": found.passes, "characters": found.done, "of": len(text)})
    if as_json:
        print(json.dumps(told))
    else:
        for one in told:
            verdict = "is let through" if one["passes"] else f"is stopped at character {one['characters']}"
            console().print(f"{one['file']} {verdict}.", soft_wrap=True)
    if not all(one["passes"] for one in told):
        raise typer.Exit(1)


async def _tokenizer(model: Path | None) -> Tokenizer:
    header = await read_header(open_source(model_path(model) if model else default_model_path()))
    return tokenizer_from_gguf(header.metadata)


def case_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of --cases. Raises ValueError for a line that is none."""
    packed = path.read_bytes()
    data = gzip.decompress(packed) if path.suffix == ".gz" else packed
    for number, line in enumerate(_decoded(path, data).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}, is not JSON: {why_not_json(error)}.") from None
        if not isinstance(row, dict) or not row.keys() >= {"name", "schema", "tests"}:
            raise ValueError(f'{path}, line {number}, is no row {{"name": ..., "schema": ..., "tests": [...]}}.')
        yield row


def _text_in(path: Path) -> str:
    return _decoded(path, path.read_bytes())


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8: save it as UTF-8.") from None


def _test_cases(kernel: GrammarKernel, tokenizer: Tokenizer, path: Path) -> dict[str, Any]:
    from py_core.grammar.schema import canonical, schema_grammar

    counts: Counter[str] = Counter()
    compile_ms, mask_us, names = list[float](), list[float](), dict[str, list[str]]()
    for row in case_rows(path):
        counts["schemas"] += 1
        begin = time.perf_counter()
        try:
            opened = kernel.open(schema_grammar(row["schema"]))
        except GrammarError as error:
            counts["refused"] += 1
            names.setdefault("refused", []).append(f"{row['name']}: {error}")
            continue
        compile_ms.append(1e3 * (time.perf_counter() - begin))
        wrong = False
        for one in row["tests"]:
            try:
                found = follow(opened, tokenizer, canonical(row["schema"], one["data"]))
            except GrammarError:
                counts["untested"] += 1
                names.setdefault("untested", []).append(row["name"])
                continue
            mask_us += found.mask_us
            if found.passes != one["valid"]:
                kind = "wrong_accepted" if found.passes else "wrong_refused"
                counts[kind] += 1
                names.setdefault(kind, []).append(row["name"])
                wrong = True
        counts["handled"] += not wrong
        opened.close()
    kinds = ("schemas", "refused", "handled", "wrong_accepted", "wrong_refused", "untested")
    return {kind: counts[kind] for kind in kinds} | {
        "compile_ms": _spread(compile_ms, {"p50": 50, "p95": 95}),
        "mask_us": {"mean": float(np.mean(mask_us or [0])), **_spread(mask_us, {"p99": 99, "max": 100})},
        "names": names,
    }


def _spread(values: Sequence[float], percents: dict[str, int]) -> dict[str, float]:
    return {name: float(np.percentile(values or [0], percent)) for name, percent in percents.items()}


def _print(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
        return
    table = Table(title="Schemas", show_header=False)
    for name, value in report.items():
        if isinstance(value, dict) and name != "names":
            value = ", ".join(f"{part} {number:,.2f}" for part, number in value.items())
        if name != "names":
            table.add_row(name, str(value))
    console().print(table)
