"""Reading the body of a request: Sonata's reader beside pydantic's, and msgspec's if it is installed.

    python -m tests.bench api_bodies [--rounds N] [--json FILE]

Microseconds from the bytes of a chat to the request, the least of the rounds: a chat of eight messages, a tool and a
schema, and one of a hundred messages. The models of pydantic and msgspec have the fields of
ChatRequest, with its types and no more.
"""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import pydantic
from rich.table import Table

from app.api.requests import ChatRequest, read
from tests.bench.reporting import options_of, print_tables, write_figures

try:
    import msgspec
except ImportError:  # `pip install msgspec`
    msgspec = None  # type: ignore[assignment]

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather now", "parameters": CITY}}
CALLS = 200


def body_of(messages: int) -> bytes:
    said = "The river is longer than the road beside it, and both end at the same bridge. " * 6
    return json.dumps(
        {
            "model": "a model", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 256,
            "temperature": 0.2, "top_p": 0.9, "seed": 7, "stop": ["\n\n"], "tools": [TOOL], "user": "unknown here",
            "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY}},
            "messages": [{"role": ("user", "assistant")[at % 2], "content": said} for at in range(messages)],
        }
    ).encode()  # fmt: skip


def readers() -> dict[str, Callable[[bytes], Any]]:
    hints, usual = get_type_hints(ChatRequest), fields(ChatRequest)
    more = {
        one.name: (hints[one.name], one.default_factory() if one.default is MISSING else one.default)  # type: ignore[misc]
        for one in usual
    }
    model: Any = pydantic.create_model("Chat", __config__=pydantic.ConfigDict(strict=True, frozen=True), **more)
    found: dict[str, Callable[[bytes], Any]] = {
        "json.loads alone": json.loads,
        "Sonata": lambda data: read(ChatRequest, json.loads(data)),
        "pydantic": model.model_validate_json,
    }
    if msgspec is not None:
        shape = msgspec.defstruct("Chat", [(name, *typed) for name, typed in more.items()])
        found["msgspec"] = msgspec.json.Decoder(shape).decode
    return found


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    bodies = {"8 messages": body_of(8), "100 messages": body_of(100)}
    figures = {
        name: {
            what: 1e6 / CALLS * min(timeit.repeat(lambda: reader(body), number=CALLS, repeat=options.rounds))  # noqa: B023
            for what, body in bodies.items()
        }
        for name, reader in readers().items()
    }
    table = Table("reader", *(f"{what}, {len(body) / 1000:.1f} kB" for what, body in bodies.items()), title="µs")
    for name, by in figures.items():
        table.add_row(name, *(f"{value:,.0f}" for value in by.values()))
    write_figures(options, figures)
    print_tables(table)
    return 0
