"""The API over HTTP: what it costs beside the engine alone, and its throughput with several clients.

    python -m tests.bench api_load [--model NAME] [--backend NAME] [--clients 1,8,32] [--rounds N] [--tokens N]
        [--pairs N] [--beside URL]... [--connections N --at-once N] [--json FILE]

Every request is a stream with a prompt of its own, greedy, and has --tokens tokens at most; an answer
that ends sooner counts with the tokens that it has.

- cost: one model answers like prompts in turns, over HTTP with a client in a process of its own, and by the same code
  without HTTP. To the first token, and a token behind it, in milliseconds; medians of the prompts, and of the
  differences within a pair of prompts.
- throughput: `sonata serve --api` in a process of its own and so many clients at once, a request each; tokens a second
  of all.
- load, with --connections: the clients of tests/api/load.py, some of which leave, or send prompts of 1 MB and what is
  no JSON. Each of the others must get what it gets alone. Seconds, and what the server's process holds before and
  after; its figures must say then that nothing runs or waits and no page is held.

--beside names other servers that speak the API, such as `python -m llama_cpp.server --model FILE --port 8001`
(http://localhost:8001/v1); they get the same requests in turns.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx
from rich.table import Table

from app.api.completions import ChatAnswer
from app.api.requests import ChatRequest
from app.api.server import ApiServer
from app.building.common import ROOT
from app.cli.loading import BackendChoice, ModelOptions
from py_core.loading import Model
from tests.api.load import EACH_CLOSED, KINDS, answer, body_of, load
from tests.api.served import served
from tests.bench.reporting import options_of, print_tables, write_figures

TOPICS = (
    "rivers",
    "bread",
    "trains",
    "islands",
    "clocks",
    "bees",
    "glass",
    "winter",
    "maps",
    "bridges",
    "salt",
    "owls",
)
CLIENT = """
import asyncio, json, sys
from tests.bench.engine.api_load import over_http
for line in sys.stdin:
    made = asyncio.run(over_http(sys.argv[1], json.loads(line)))
    print(json.dumps([made.first, made.seconds, made.tokens]), flush=True)
"""


@dataclass(frozen=True)
class Answered:
    """first: seconds to the first token. seconds: in all. tokens: as the server counts them."""

    first: float
    seconds: float
    tokens: int

    @property
    def per_token(self) -> float:
        return (self.seconds - self.first) / max(1, self.tokens - 1)


def request_of(number: int, tokens: int) -> dict[str, Any]:
    topic = TOPICS[number % len(TOPICS)]
    asked = f"Tell me a long story about {topic}, number {number}, with people, places and what they say."
    return {
        "messages": [{"role": "user", "content": asked}], "max_tokens": tokens, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip


async def over_http(address: str, request: dict[str, Any]) -> Answered:
    """Ask a server. Raises RuntimeError with its refusal."""
    parts = urlsplit(address)
    body, begin = json.dumps(request).encode(), time.perf_counter()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
    head = f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    status, first, pieces, usage = await reader.readline(), 0.0, 0, None
    if b" 200 " not in status:
        raise RuntimeError(f"{address}: {status.decode().strip()} {(await reader.read()).decode()[-300:]}")
    async for line in reader:
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            if any(choice["delta"].get("content") for choice in chunk["choices"]):
                first = first or time.perf_counter()
                pieces += 1
    writer.close()
    return Answered(first - begin, time.perf_counter() - begin, usage["completion_tokens"] if usage else pieces)


async def without_http(model: Model, request: dict[str, Any]) -> Answered:
    begin, first = time.perf_counter(), 0.0
    answer = ChatAnswer(model, "", ChatRequest(messages=request["messages"], max_tokens=request["max_tokens"]))
    await answer.prepare()
    async with aclosing(answer.deltas()) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            first = first or (time.perf_counter() if delta.get("content") else 0.0)
    return Answered(first - begin, time.perf_counter() - begin, answer.usage()["completion_tokens"])


@asynccontextmanager
async def program(options: Any) -> AsyncIterator[tuple[str, int]]:
    """Gives the address of a server of this checkout, and the number of its process."""
    given = ["--backend", options.backend, *(["--model", str(options.model)] if options.model else [])]
    command = [sys.executable, "-u", "-m", "app.cli.main", "serve", "--api", "--port", "0", *given]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    assert process.stdout
    try:
        said = (await process.stdout.readline()).decode()
        found = re.search(r"http://\S+", said)
        if found is None:
            raise RuntimeError(f"the server does not start: {said}")
        address = found[0].replace("localhost", "127.0.0.1")  # a name is looked up for each connection
        yield address, process.pid
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[Callable[[dict[str, Any]], Awaitable[Answered]]]:
    """Gives a client in a process of its own."""
    command = [sys.executable, "-c", CLIENT, address]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    assert process.stdin
    assert process.stdout
    to, back = process.stdin, process.stdout

    async def ask(request: dict[str, Any]) -> Answered:
        to.write(json.dumps(request).encode() + b"\n")
        return Answered(*json.loads(await back.readline()))

    yield ask
    to.close()
    await process.wait()


async def cost(model: Model, options: Any) -> dict[str, float]:
    """Milliseconds over HTTP, and more than without."""
    pairs = list[tuple[Answered, Answered]]()
    async with served(ApiServer(model)) as address, client_of(f"{address}/v1") as ask:
        for number in range(options.pairs + 1):
            turns: list[Any] = [None, None]
            for place in (0, 1) if number % 2 else (1, 0):
                request = request_of(number % len(TOPICS) + len(TOPICS) * (2 * number + place), options.tokens)
                turns[place] = await (ask(request) if place else without_http(model, request))
            pairs.append((turns[0], turns[1]))
    pairs = pairs[1:]  # the first of each warms up
    return {
        "first_ms": 1000 * median(http.first for _, http in pairs),
        "first_more_ms": 1000 * median(http.first - alone.first for alone, http in pairs),
        "token_ms": 1000 * median(http.per_token for _, http in pairs),
        "token_more_percent": 100 * median(http.per_token / alone.per_token - 1 for alone, http in pairs),
    }


async def throughput(addresses: Sequence[str], options: Any) -> dict[str, dict[int, float]]:
    """Tokens a second by server and number of clients."""
    found: dict[str, dict[int, list[float]]] = {address: {} for address in addresses}
    number = 1000
    for _ in range(options.rounds):
        for clients in map(int, options.clients.split(",")):
            for address in addresses:
                begin = time.perf_counter()
                requests = [request_of(number + one, options.tokens) for one in range(clients)]
                made = await asyncio.gather(*(over_http(address, request) for request in requests))
                rate = sum(one.tokens for one in made) / (time.perf_counter() - begin)
                found[address].setdefault(clients, []).append(rate)
            number += clients
    return {address: {clients: median(rates) for clients, rates in by.items()} for address, by in found.items()}


async def under_load(address: str, process: int, options: Any) -> dict[str, float]:
    """Raises AssertionError if a client gets another answer than alone, or something is left of one."""
    async with httpx.AsyncClient(base_url=address.removesuffix("/v1"), **EACH_CLOSED) as http:
        texts = [await answer(http, body_of(kind, options.tokens)) for kind in range(KINDS)]
        before, begin = megabytes(process), time.perf_counter()
        await load(http, texts, options.connections, options.at_once, options.tokens)
        seconds = time.perf_counter() - begin
        await asyncio.sleep(1)  # the last that left are noticed
        told = (await http.get("/metrics")).text
    for name in ("requests_processing", "requests_deferred", "kv_cache_usage_ratio"):
        assert f"llamacpp:{name} 0.0" in told, told
    return {"seconds": seconds, "before_mb": before, "after_mb": megabytes(process)}


def megabytes(process: int) -> float:
    """The memory of a process that is resident (Linux only, else 0)."""
    status = Path(f"/proc/{process}/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.is_file() else None
    return int(found[1]) / 1000 if found else 0.0


async def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--model", type=Path, help="a name or a path; the usual model otherwise")
    parser.add_argument("--backend", choices=[choice.value for choice in BackendChoice], default="auto")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=16, help="of prompts, for the cost of HTTP")
    parser.add_argument("--beside", action="append", default=[], metavar="URL", help="another server")
    parser.add_argument("--connections", type=int, default=0, help="of the load; none without it")
    parser.add_argument("--at-once", type=int, default=64, help="of those connections")
    options = parser.parse_args()
    model = await ModelOptions(model=options.model, backend=BackendChoice(options.backend)).load()
    costs = await cost(model, options)
    model.close()
    async with program(options) as (address, process):
        rates = await throughput([address, *options.beside], options)
        loaded = await under_load(address, process, options) if options.connections else {}
    write_figures(options, {"cost": costs, "throughput": rates, "load": loaded})
    first = Table("to the first token, ms", "more than without HTTP", "a token, ms", "more, %", title="cost of HTTP")
    first.add_row(*(f"{costs[key]:.2f}" for key in ("first_ms", "first_more_ms", "token_ms", "token_more_percent")))
    several = Table("server", *(f"{clients} clients" for clients in rates[address]), title="tokens a second")
    for name, by in rates.items():
        several.add_row("Sonata" if name == address else name, *(f"{rate:.0f}" for rate in by.values()))
    print_tables(first, several)
    if loaded:
        print("load: {seconds:.0f} s, {before_mb:.0f} MB before, {after_mb:.0f} MB after".format(**loaded))
    return 0
