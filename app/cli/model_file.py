"""Commands that read only a model file's header, so a file with a vocabulary and no weights will do, too."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from app.cli.terminal import PRINTS_JSON, console, say, wants_json
from app.models.cache import model_path
from py_core.backends.fusion import fused_layers
from py_core.display import one_line, shown
from py_core.formats.gguf import GGUFHeader, TensorInfo, read_header
from py_core.formats.source import WeightSource, open_source
from py_core.models.config import name_of, read_rope_factors
from py_core.models.gemma4 import PER_LAYER
from py_core.models.registry import describe_model
from py_core.models.rotation import STANDS_STILL, Rotation
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.prompts import encode_text
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.vocabulary import TokenizerError

ModelOption = Annotated[
    Path | None,
    typer.Option("--model", help="A GGUF file, or a name of `sonata models list`; the default comes with Sonata."),
]
NoBosOption = Annotated[
    bool, typer.Option("--no-bos", help="Leave out the token that begins a text, even if the model's file asks for it.")
]


def tokenize(
    text: Annotated[str | None, typer.Argument(help="A text to turn into a JSON list of token ids.")] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Turn lists of ids into strings.")] = False,
    special: Annotated[bool, typer.Option("--special", help="Parse special tokens in the text.")] = False,
    model: ModelOption = None,
    no_bos: NoBosOption = False,
    as_json: Annotated[bool, typer.Option("--json", help=PRINTS_JSON)] = False,
) -> None:
    """Turn a text, or a JSON list of strings on standard input, into tokens; with --decode lists of ids into strings.

    JSON is the list of ids of a text, and a list of such lists of standard input. The tokens that begin and end a text
    are added where the model's file wants them.
    """
    header = asyncio.run(read_header(open_source(model_path(model))))
    tokenizer = tokenizer_from_gguf(header.metadata)
    if text is not None:
        if decode:
            raise ValueError("--decode reads lists of token ids from standard input: leave out the text.")
        ids = encode_text(tokenizer, text, special=special, bos=not no_bos)
        if wants_json(as_json):
            print(json.dumps(ids))
        else:
            _say_tokens(tokenizer, ids)
        return
    try:
        given = json.load(sys.stdin)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Standard input is not JSON: {error}") from error
    if decode:
        if not _is_list_of(given, list) or not all(_is_list_of(ids, int) for ids in given):
            raise ValueError("Standard input must be a JSON list of lists of token ids.")
        made: list[str] | list[list[int]] = [tokenizer.decode(ids) for ids in given]
    else:
        if not _is_list_of(given, str):
            raise ValueError("Standard input must be a JSON list of strings.")
        made = [encode_text(tokenizer, each, special=special, bos=not no_bos) for each in given]
    if wants_json(as_json):
        print(json.dumps(made))
        return
    for one in made:
        if isinstance(one, str):
            say(one)
        else:
            _say_tokens(tokenizer, one)


def _say_tokens(tokenizer: Tokenizer, ids: list[int]) -> None:
    """A line each, and a final line that ends the text."""
    for id in ids:
        say(f"{id:>7}  {shown(tokenizer.decode([id]))}")
    say(f"{len(ids):,} {'token' if len(ids) == 1 else 'tokens'}")


def info(model: ModelOption = None, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Show what is in a model file."""
    path = model_path(model)
    source = open_source(path)
    header = asyncio.run(read_header(source))
    described = asyncio.run(_described(source, header))
    tokenizer = _tokenizer_facts(header)
    formats: dict[str, list[int]] = {}
    parameters = 0
    for tensor in header.tensors.values():
        parameters += int(np.prod(tensor.shape, dtype=np.int64))
        counts = formats.setdefault(tensor.format.name, [0, 0])
        counts[0] += 1
        counts[1] += tensor.nbytes
    if as_json:
        facts = {"file": str(path), "gguf_version": header.version, "parameters": parameters, **described}
        facts["tokenizer"] = tokenizer
        facts["tensors"] = {name: {"count": count, "bytes": size} for name, (count, size) in formats.items()}
        print(json.dumps(facts))
        return
    table = Table(show_header=False, title=escape(described["name"]))
    table.add_row("file", f"{escape(str(path))} ({source.size / 1e6:.1f} MB, GGUF v{header.version})")
    table.add_row(
        "parameters", f"{parameters / 1e6:.1f} M" if header.tensors else "none: the file has only a vocabulary"
    )
    # A model without windows or soft-caps has zeros there, which would only be noise.
    shown = {name: value for name, value in described.items() if value or isinstance(value, bool)}
    if not shown.get("sliding_window"):
        shown.pop("local_rope", None)
    for name, value in {**shown, **{f"tokenizer: {name}": value for name, value in tokenizer.items()}}.items():
        table.add_row(escape(name), escape(str(value)))
    for name, (count, size) in formats.items():
        table.add_row(f"{name} tensors", f"{count} ({size / 1e6:.1f} MB)")
    console().print(table)


async def _described(source: WeightSource, header: GGUFHeader) -> dict[str, Any]:
    """The model's sizes; for a file without weights only its name and architecture."""
    if not header.tensors:
        kind = _short(header.metadata.get("general.architecture")) or "unknown"
        return {"architecture": kind, "name": name_of(header.metadata) or kind}
    config, graph = describe_model(header, None, await read_rope_factors(source, header))
    fused = fused_layers(graph)
    return asdict(config) | {
        "conv_layers": sorted(config.conv_layers),
        "local_layers": sorted(config.local_layers),
        "per_layer_embeddings": _size_of(header.tensors.get(PER_LAYER)),
        "rope": _rotation_words(config.rope),
        "local_rope": _rotation_words(config.local_rope),
        "fused_layers": f"{sum(fused)} of {len(fused)}",
    }


def _rotation_words(rotation: Rotation) -> str:
    """A model's rotary embedding, in one line."""
    turning = [frequency for frequency in rotation.frequencies if frequency > STANDS_STILL]
    slowest = f"the slowest pair turns once in {2 * math.pi / turning[-1]:,.0f} tokens"
    return f"{2 * len(turning)} values of a head, {slowest}"


def _size_of(tensor: TensorInfo | None) -> str:
    """A tensor's format and size; "" if there is none."""
    return f"{tensor.format.name}, {tensor.nbytes / 1e6:.1f} MB" if tensor else ""


def _tokenizer_facts(header: GGUFHeader) -> dict[str, Any]:
    """The tokenizer's kind and rules, and BOS, EOS and all end tokens as texts. If it cannot be used, the reason."""
    kind = _short(header.metadata.get("tokenizer.ggml.model"))
    try:
        tokenizer = tokenizer_from_gguf(header.metadata)
    except TokenizerError as error:
        return {"kind": kind, "problem": str(error)}
    ends = sorted(tokenizer.eos_ids)
    return {
        "kind": kind,
        "rules": _short(header.metadata.get("tokenizer.ggml.pre")),
        "tokens": tokenizer.vocab_size,
        "special_tokens": len(tokenizer.special_tokens),
        "bos": None if tokenizer.bos_id is None else _short(tokenizer.tokens[tokenizer.bos_id]),
        "add_bos": tokenizer.add_bos,
        "add_eos": tokenizer.add_eos,
        "ends": [_short(tokenizer.tokens[index]) for index in ends],
        "chat_template": bool(str(header.metadata.get("tokenizer.chat_template", "")).strip()),
    }


def _short(value: Any) -> str | None:
    """A file's contents, for people and for JSON."""
    return value if value is None else one_line(value) if isinstance(value, str) else shown(value)


def _is_list_of(value: object, kind: type) -> bool:
    # bool is an int in Python, but not a token id
    return isinstance(value, list) and all(isinstance(item, kind) and not isinstance(item, bool) for item in value)
