"""Sonata beside llama.cpp, natively on the CPU: a beginning read before, guessed tokens, conversations at once.

    python -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python   # compiles for 15 minutes
    python -m tests.bench beside_llama_cpp --python /tmp/llama/bin/python [--task prefix|speculation|parallel]
        [--rounds 3] [--threads 1] [--prefix 2000] [--answer 160] [--conversations 8] [--prompt 512] [--tokens 128]
        [--model FILE] [--clock wall|cpu] [--preferred] [--json FILE]

llama-cpp-python is not part of the project: peers/llama_cpp_peer.py runs in the interpreter that has it. Both programs
have the same file open and get the same token ids, one works while the other waits, and the first one changes each
round; all is greedy. Figures are medians over rounds (and tasks), ratios are medians of each round's. Over 1 is
Sonata faster.

- prefix: milliseconds to the first token of a prompt of 2,000 tokens and a question, none of it cached, then of the
  same tokens and another question of 20. llama.cpp has Llama.generate's own match with the prompt before, in place.
- speculation: the tasks of data/speculation.toml, tokens a second behind the prompt, without guesses and with.
  llama.cpp has LlamaPromptLookupDecoding with 2 and with 10 tokens; the table has the better of each kind of task.
- parallel: conversations that have read their prompts are answered at once, and one alone; tokens a second of all.
  llama.cpp has its batch API, with a row of each conversation in a pass, and for one alone a context of its own.

Sonata natively is wasmtime on one thread, precise and fast; llama.cpp is native code with as many threads as
--threads says. Its settings are those that were fastest here: `SETTINGS`. `--clock cpu` counts CPU time instead: with
one thread that is the time on a quiet machine, even if other programs use the cores.

Not compared: the page in a browser (browser_decode.py does that, beside wllama), GPUs, and the rest of a prefix
after other conversations. In that case Sonata still has its pages, llama-cpp-python copies the whole state
(LlamaRAMCache), and llama-server has slots. Prompt lookup is llama-cpp-python's, in Python: while it is on, llama.cpp
computes logits of the whole prompt, which these figures leave out (`prefill_s` of its runs in the JSON has them; of
Sonata's only the first answer to a task has read all of the prompt).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Protocol

import numpy as np
from rich.table import Table

from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.engine.engine import Timings, shared_length
from py_core.formats.source import FileSource
from py_core.loading import Model, load_model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from tests.bench.engine.parallel_sequences import loader_of
from tests.bench.engine.speculation import TASKS as QUESTIONS
from tests.bench.in_browser import PEERS, preferred, processor
from tests.bench.reporting import options_of, print_tables, write_figures

TASKS = ("prefix", "speculation", "parallel")
LLAMA = "llama.cpp"
QUESTION = 20
"""Tokens of a question behind the prefix."""

LOOKUPS = (2, 10)
"""The most tokens that llama.cpp guesses: its documentation says 2 for CPUs, and 10 is the default."""

SETTINGS = {
    "prefix": {"flash": False},
    "speculation": {"flash": False},
    "parallel": {"flash": True, "unified": False},
}
"""The settings of llama.cpp, chosen by its CPU time here. With flash attention a question behind many tokens took
longer; prompts were read a tenth faster, and decoding took as long. It took longer if conversations share one cache
("unified")."""

CLOCKS: dict[str, Callable[[], float]] = {"wall": perf_counter, "cpu": process_time}

GREEDY = SamplingParams()


@dataclass(frozen=True)
class Answer:
    """`seconds` from when the prompt has been read. The end token counts as one of the tokens."""

    tokens: list[int]
    seconds: float
    prefill_seconds: float

    @property
    def tok_s(self) -> float:
        return len(self.tokens) / self.seconds


class Side(Protocol):
    """One of the compared engines."""

    @property
    def name(self) -> str: ...

    @property
    def guesses(self) -> Sequence[int]:
        """The numbers of guessed tokens that `answer` accepts; 0 is no guessing."""
        ...

    async def first_token_ms(self, tokens: list[int]) -> float:
        """Return the time from a prompt to its first token. A prefix that was read before need not be read again."""
        ...

    async def answer(self, prompt: list[int], tokens: int, guesses: int) -> Answer:
        """Return an answer up to its end, or `tokens` tokens at most."""
        ...

    async def read(self, prompts: list[list[int]], tokens: int) -> float:
        """Read each prompt in a conversation of its own, with room for `tokens` tokens. Returns tokens a second."""
        ...

    async def together(self, count: int, tokens: int) -> float:
        """Return the tokens a second of `count` answers at once, after `read`. May be called again."""
        ...


class Sonata:
    """A model on wasmtime. 1 stands for any number of guesses."""

    guesses = (0, 1)

    def __init__(self, precision: str, model: Model, clock: Callable[[], float]) -> None:
        self.name, self._clock = f"Sonata {precision}", clock
        self._engine, self._end = model.engine, model.tokenizer.eos_ids
        self._conversations: dict[int, list[tuple[TokenSequence, list[int]]]] = {}

    async def first_token_ms(self, tokens: list[int]) -> float:
        sequence, timings = self._engine.new_sequence(), Timings()
        begin = self._clock()
        await self._engine.prefill(sequence, tokens, timings)
        await self._say(sequence, 1, timings)
        taken = self._clock() - begin
        self._engine.free(sequence)
        return 1000 * taken

    async def answer(self, prompt: list[int], tokens: int, guesses: int) -> Answer:
        self._engine.speculates = guesses > 0
        sequence, timings = self._engine.new_sequence(), Timings()
        begin = self._clock()
        await self._engine.prefill(sequence, prompt, timings)
        read, said = self._clock(), list[int]()
        async for ids in self._engine.generate(sequence, tokens, GREEDY, timings):
            said += ids
        end = self._clock()
        if timings.reason == "end":  # it is not yielded
            said.append(sequence.tokens[-1])
        self._engine.free(sequence)
        self._engine.speculates = True
        return Answer(said, end - read, read - begin)

    async def read(self, prompts: list[list[int]], tokens: int) -> float:
        # These conversations share no pages and make no guesses, as with llama.cpp here.
        conversations = [(self._engine.new_sequence(shares=False), prompt) for prompt in prompts]
        self._conversations[len(prompts)] = conversations
        begin = self._clock()
        for sequence, prompt in conversations:
            await self._engine.prefill(sequence, prompt[:-1], Timings())
        return sum(len(prompt) - 1 for prompt in prompts) / (self._clock() - begin)

    async def together(self, count: int, tokens: int) -> float:
        for sequence, prompt in self._conversations[count]:
            await self._engine.prefill(sequence, prompt, Timings())  # forgets the answer; the last token runs again
        begin = self._clock()
        await asyncio.gather(*(self._say(sequence, tokens, Timings()) for sequence, _ in self._conversations[count]))
        return count * tokens / (self._clock() - begin)

    async def _say(self, sequence: TokenSequence, tokens: int, timings: Timings) -> None:
        async for _ in self._engine.generate(sequence, tokens, GREEDY, timings, ignore_end=True):
            pass


class LlamaCpp:
    """peers/llama_cpp_peer.py in a process of its own."""

    name = LLAMA
    guesses = (0, *LOOKUPS)

    def __init__(self, process: subprocess.Popen[str], context: int, end: Sequence[int]) -> None:
        """`context`: positions of the context for `first_token_ms`. `end`: the tokens that end an answer."""
        self._process, self._context, self._end = process, context, list(end)
        self.about: dict[str, Any] = self._call("about")

    async def first_token_ms(self, tokens: list[int]) -> float:
        return self._call("first_token", tokens=tokens, context=self._context, **SETTINGS["prefix"])

    async def answer(self, prompt: list[int], tokens: int, guesses: int) -> Answer:
        # Its scores have a row for each position of the context, so that is no longer than it must be.
        context = -(-(len(prompt) + tokens) // 512) * 512
        asked = {"prompt": prompt, "tokens": tokens, "guesses": guesses, "context": context, "end": self._end}
        return Answer(**self._call("answer", **asked, **SETTINGS["speculation"]))

    async def read(self, prompts: list[list[int]], tokens: int) -> float:
        return self._call("read", prompts=prompts, tokens=tokens, **SETTINGS["parallel"])

    async def together(self, count: int, tokens: int) -> float:
        found = self._call("together", count=count, tokens=tokens, **SETTINGS["parallel"])
        return count * tokens / found["seconds"]

    def _call(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"call": name} | arguments) + "\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"llama.cpp ended at {name}: see what it wrote above")
        return json.loads(line)


@contextlib.contextmanager
def llama_cpp(python: str, model: Path, threads: int, clock: str) -> Iterator[subprocess.Popen[str]]:
    """The peer's process. Raises SystemExit with a sentence if that interpreter has no llama-cpp-python."""
    if not has_llama_cpp(python):
        raise SystemExit(
            f"{python} has no llama-cpp-python. Make an environment for it, which is not part of the project: "
            "`python -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python` (it compiles for some 15 "
            "minutes), and name it: --python /tmp/llama/bin/python."
        )
    command = [python, str(PEERS / "llama_cpp_peer.py"), str(model), str(threads), clock]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def has_llama_cpp(python: str) -> bool:
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('llama_cpp') is None)"
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", look], check=False).returncode == 0
    return False


def drawn(count: int, *seeds: int) -> list[int]:
    return np.random.default_rng(seeds).integers(1000, 40_000, count).tolist()


def in_turn(sides: Sequence[Side], turn: int) -> Sequence[Side]:
    """Return the sides in an order that changes with each round, so that each is first in turn."""
    first = turn % len(sides)
    return [*sides[first:], *sides[:first]]


async def measure_prefix(sides: Sequence[Side], options: argparse.Namespace) -> list[dict[str, Any]]:
    for side in sides:
        await side.first_token_ms(drawn(QUESTION, 0))
    found = []
    for turn in range(options.rounds):
        prefix = drawn(options.prefix, 1, turn)  # another prefix each round, which is in no cache
        for side in in_turn(sides, turn):
            run: dict[str, Any] = {"engine": side.name, "round": turn}
            for number, name in enumerate(("first_ms", "second_ms")):
                run[name] = await side.first_token_ms(prefix + drawn(QUESTION, 2, turn, number))
            found.append(run)
            print(run, file=sys.stderr)
    return found


async def measure_speculation(sides: Sequence[Side], options: argparse.Namespace, model: Model) -> list[dict[str, Any]]:
    tasks = tomllib.loads(QUESTIONS.read_text("utf-8"))["task"]
    prompts = [await model.encode_chat([{"role": "user", "content": task["prompt"].strip()}]) for task in tasks]
    for side in sides:
        for guesses in side.guesses:
            await side.answer(prompts[0], 8, guesses)
    found = []
    for turn in range(options.rounds):
        for number, (task, prompt) in enumerate(zip(tasks, prompts, strict=True)):
            for side in in_turn(sides, turn + number):
                for guesses in side.guesses[:: 1 if turn % 2 else -1]:
                    answer = await side.answer(prompt, options.answer, guesses)
                    run = {"engine": side.name, "round": turn, "task": number, "kind": task["kind"], "guesses": guesses}
                    found.append(
                        run | {"tok_s": answer.tok_s, "said": answer.tokens, "prefill_s": answer.prefill_seconds}
                    )
                    print(run, f"{answer.tok_s:.1f} tok/s, {len(answer.tokens)} tokens", file=sys.stderr)
    return found


async def measure_parallel(
    sides: Sequence[Side], options: argparse.Namespace
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Return the speed of each engine at reading the prompts, in tokens a second, and its runs."""
    counts = (1, options.conversations)
    prompts = [drawn(options.prompt, 3, number) for number in range(options.conversations)]
    read = {side.name: [await side.read(prompts[:count], options.tokens) for count in counts][-1] for side in sides}
    for side in sides:
        for count in counts:
            await side.together(count, 8)
    found = []
    for turn in range(options.rounds):
        for side in in_turn(sides, turn):
            run: dict[str, Any] = {"engine": side.name, "round": turn}
            for name, count in zip(("alone", "together"), counts, strict=True):
                run[name] = await side.together(count, options.tokens)
            found.append(run)
            print(run, file=sys.stderr)
    return read, found


def engines_of(runs: list[dict[str, Any]]) -> list[str]:
    """Return the engines' names, llama.cpp's first."""
    return sorted({run["engine"] for run in runs}, key=lambda name: (name != LLAMA, name != "Sonata precise"))


def compared(runs: list[dict[str, Any]], names: Sequence[str], less_is_better: bool) -> dict[str, dict[str, float]]:
    """Return by engine the median of each figure, and as "NAME_x" the median of its gain over llama.cpp (a ratio)."""
    theirs = {run["round"]: run for run in runs if run["engine"] == LLAMA}
    found: dict[str, dict[str, float]] = {}
    for engine in engines_of(runs):
        mine = [run for run in runs if run["engine"] == engine]
        found[engine] = {name: median(run[name] for run in mine) for name in names}
        for name in names:
            ratios = [run[name] / theirs[run["round"]][name] for run in mine]
            found[engine][f"{name}_x"] = median(1 / ratio if less_is_better else ratio for ratio in ratios)
        first, second = names
        found[engine]["times"] = median(
            run[first] / run[second] if less_is_better else run[second] / run[first] for run in mine
        )
    return found


Runs = dict[tuple[int, int], dict[str, Any]]
"""Answers of one engine with one kind of guesses, by round and task."""


def times(these: Runs, those: Runs) -> float:
    """Return how many times as fast `these` were decoded as `those`."""
    return median(run["tok_s"] / those[at]["tok_s"] for at, run in these.items())


def with_guesses(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return by engine the tokens a second without guesses and with the best guesses, for tasks of one kind."""
    ways: dict[str, dict[int, Runs]] = {}
    for run in runs:
        ways.setdefault(run["engine"], {}).setdefault(run["guesses"], {})[run["round"], run["task"]] = run
    best = {}
    for engine, mine in ways.items():
        best[engine] = max((times(answers, mine[0]), way) for way, answers in mine.items() if way)[1]
    found = {}
    for engine in engines_of(runs):
        plain, guessed = ways[engine][0], ways[engine][best[engine]]
        found[engine] = {
            "plain": median(run["tok_s"] for run in plain.values()),
            "guessed": median(run["tok_s"] for run in guessed.values()),
            "times": times(guessed, plain),
            "guesses": best[engine],
            "plain_x": times(plain, ways[LLAMA][0]),
            "guessed_x": times(guessed, ways[LLAMA][best[LLAMA]]),
            "same": all(run["said"] == plain[at]["said"] for at, run in guessed.items()),
            "as_llama_cpp": median(
                shared_length(run["said"], ways[LLAMA][0][at]["said"]) / len(run["said"]) for at, run in plain.items()
            ),
        }
    return found


def table_of(title: str, columns: Sequence[str], rows: list[list[str]], names: int = 1) -> Table:
    """The first columns have names, the others figures."""
    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < names else "right")
    for row in rows:
        table.add_row(*row)
    return table


def prefix_table(found: dict[str, dict[str, float]], title: str) -> Table:
    columns = ("", "nobody has read it, ms", "the second question, ms", "times as fast", "first x", "second x")
    rows = [
        [
            engine, f"{one['first_ms']:,.0f}", f"{one['second_ms']:,.0f}", f"{one['times']:.1f}",
            f"{one['first_ms_x']:.2f}", f"{one['second_ms_x']:.2f}",
        ]
        for engine, one in found.items()
    ]  # fmt: skip
    return table_of(title, columns, rows)


def speculation_table(found: dict[str, dict[str, dict[str, Any]]], title: str) -> Table:
    columns = ("", "", "without guesses", "with", "times", "without x", "with x", "same answers", "as llama.cpp's")
    rows = [
        [
            kind if engine == LLAMA else "", f"{engine}, {one['guesses']}" if engine == LLAMA else engine,
            f"{one['plain']:.1f}", f"{one['guessed']:.1f}", f"{one['times']:.2f}", f"{one['plain_x']:.2f}",
            f"{one['guessed_x']:.2f}", "yes" if one["same"] else "no", f"{one['as_llama_cpp']:.0%}",
        ]
        for kind, engines in found.items()
        for engine, one in engines.items()
    ]  # fmt: skip
    return table_of(title, columns, rows, names=2)


def parallel_table(found: dict[str, dict[str, float]], prompts: dict[str, float], title: str) -> Table:
    columns = ("", "prompts, tok/s", "one alone", "together", "times one", "alone x", "together x")
    rows = [
        [
            engine, f"{prompts[engine]:.0f}", f"{one['alone']:.1f}", f"{one['together']:.1f}", f"{one['times']:.2f}",
            f"{one['alone_x']:.2f}", f"{one['together_x']:.2f}",
        ]
        for engine, one in found.items()
    ]  # fmt: skip
    return table_of(title, columns, rows)


def report(found: dict[str, Any], table: Table, options: argparse.Namespace) -> None:
    """Write and print the figures after each task, so that they are there if the next task fails."""
    write_figures(options, found)
    about = found["llama.cpp"]
    table.caption = (
        f"{found['model']}; llama-cpp-python {about['version']}, threads: {about['threads']}; {found['cpu']}; "
        f"rounds: {options.rounds}, {options.clock} time"
    )
    print_tables(table)


async def measure(options: argparse.Namespace, path: Path) -> None:
    tasks = options.task or TASKS
    found: dict[str, Any] = {
        "model": path.name, "cpu": processor(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0],
        "clock": options.clock, "settings": SETTINGS,
    }  # fmt: skip
    with llama_cpp(options.python, path, options.threads, options.clock) as process:
        models = {
            precision: await load_model(FileSource(path), loader_of("wasm", precision), native_renderer())
            for precision in ("precise", "fast")
        }
        model = models["precise"]
        theirs = LlamaCpp(process, options.prefix + 2 * QUESTION, sorted(model.tokenizer.eos_ids))
        clock = CLOCKS[options.clock]
        sides: list[Side] = [theirs, *(Sonata(precision, one, clock) for precision, one in models.items())]
        found["llama.cpp"] = theirs.about
        if "prefix" in tasks:
            runs = await measure_prefix(sides, options)
            engines = compared(runs, ("first_ms", "second_ms"), less_is_better=True)
            found["prefix"] = {"engines": engines, "tokens": options.prefix, "runs": runs}
            title = f"First token behind {options.prefix:,} tokens and a question of {QUESTION}"
            report(found, prefix_table(engines, title), options)
        if "speculation" in tasks:
            runs = await measure_speculation(sides, options, model)
            names = dict.fromkeys(run["kind"] for run in runs)
            kinds = {kind: with_guesses([run for run in runs if run["kind"] == kind]) for kind in names}
            # The number of tokens is enough for the file.
            found["speculation"] = {"kinds": kinds, "runs": [run | {"said": len(run["said"])} for run in runs]}
            title = f"Decoding, tok/s, answers of {options.answer} tokens at most"
            report(found, speculation_table(kinds, title), options)
        if "parallel" in tasks:
            read, runs = await measure_parallel(sides, options)
            engines = compared(runs, ("alone", "together"), less_is_better=False)
            about = {"prompt": options.prompt, "tokens": options.tokens, "prompts_tok_s": read}
            found["parallel"] = {"engines": engines, **about, "runs": runs}
            title = f"{options.conversations} conversations, {options.tokens} tokens behind {options.prompt}, tok/s"
            report(found, parallel_table(engines, read, title), options)
        for one in models.values():
            one.close()


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has llama-cpp-python")
    parser.add_argument("--task", choices=TASKS, action="append", help="only this one; may be given again")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of llama.cpp")
    parser.add_argument("--prefix", type=int, default=2000, help="tokens that two questions begin with")
    parser.add_argument("--answer", type=int, default=160, help="tokens of an answer to a task of speculation")
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a conversation's prompt")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of a conversation's answer")
    parser.add_argument("--model", type=Path, metavar="FILE", help="the usual model otherwise")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="what seconds are: with cpu, CPU time")
    parser.add_argument("--preferred", action="store_true", help="get the cores before all other programs")
    options = parser.parse_args()
    path = options.model or default_model_path()
    with preferred() if options.preferred else contextlib.nullcontext():
        asyncio.run(measure(options, path))
