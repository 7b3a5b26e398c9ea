"""What a tree of candidates would be worth over a chain of guesses: tokens of a pass of eight rows, by kind of task.

    python tests/bench/candidate_trees.py [--model FILE] [--tokens 160] [--ignore-end] [--json FILE]

The model answers the tasks of data/speculation.toml once (natively, the WASM kernels, greedy, without guesses). Then
the answers are replayed: behind each token that a pass ends with, each way of guessing fills the seven rows that are
left, and a pass gives one token more than the longest path of right guesses. "chain" is what is built: what came after
the longest match. The others share the rows between several continuations that differ in their first token ("4+3",
"3+2+2"), or, where they agree at first, behind their common beginning ("fork": two that differ somewhere, the shared
rows once). "by match" is a rule that could be built: the chain where the match is of six tokens or more, else 4+3.
"either" takes for each pass the better of chain, 4+3, 3+2+2 and fork, as if somebody knew before: no rule that chooses
between them gives more. "any place" has seven rows for each of all the places that are compared. Passes need a match of
so many tokens ("from 1" as on a GPU, "from 3" as on the CPU); else they give one token. --ignore-end lets answers go on
behind the end token, to as many tokens as are asked for: models repeat themselves there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from app.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.engine import Timings
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.sampling import SamplingParams
from py_core.speculation.guesses import LEAST_MATCH, MOST_LOOKED_AT, SIZES, PromptLookup

TASKS = Path(__file__).parent / "data" / "speculation.toml"
GUESSES = SIZES[-1] - 1

Paths = list[list[int]]
"""Continuations that a pass tries. Those that begin alike share rows."""


class Places(PromptLookup):
    """What came after each of the places that are compared, those most like the end first, no two the same."""

    def continuations(self) -> Paths:
        found: dict[tuple[int, ...], int] = {}
        if self.match:
            found[tuple(self.propose(GUESSES))] = self.match
        for before in self._before.values():
            place = before[-1] if before else -1
            for _ in range(MOST_LOOKED_AT):
                if place < 0:
                    break
                path = self._after(place)
                found[path] = max(found.get(path, 0), self._alike(place))
                place = before[place]
        return [list(path) for path in sorted(found, key=found.__getitem__, reverse=True)]

    def _after(self, place: int) -> tuple[int, ...]:
        period = len(self._tokens) - 1 - place
        path = self._tokens[place + 1 : place + 1 + GUESSES]
        while len(path) < GUESSES:
            path.append(path[len(path) - period])
        return tuple(path)


def chain(found: Paths) -> Paths:
    return found[:1]


def at_root(lengths: Sequence[int], found: Paths) -> Paths:
    """So many guesses of each of the best continuations with different first tokens; the first has what is left."""
    firsts = {path[0]: path for path in reversed(found)}
    paths = [path for path in found if firsts[path[0]] is path][: len(lengths)]
    left = GUESSES - sum(lengths[1 : len(paths)])
    return [path[:length] for path, length in zip(paths, [left, *lengths[1:]], strict=False)]


def fork(found: Paths) -> Paths:
    """The best, and the next that differs: behind what they share each has half of the rows, the best the larger."""
    if len(found) < 2:
        return found
    best, other = found[:2]
    shared = next(at for at, (one, two) in enumerate(zip(best, other, strict=True)) if one != two)
    of_other = (GUESSES - shared) // 2
    return [best[: GUESSES - of_other], other[: shared + of_other]]


def anywhere(found: Paths) -> Paths:
    return found


WAYS: dict[str, Callable[[Paths], Paths]] = {
    "chain": chain, "4+3": partial(at_root, (4, 3)), "3+2+2": partial(at_root, (3, 2, 2)), "fork": fork,
}  # fmt: skip
SHAPES = (*WAYS, "by match", "either", "any place")

LONG_MATCH = 6
"""Where so many tokens were there before, one continuation is likely."""


def right(paths: Paths, told: Sequence[int]) -> int:
    """How many guesses of the best path are what was told."""
    lengths = [0]
    for path in paths:
        wrong = (at for at, (one, other) in enumerate(zip(path, told, strict=False)) if one != other)
        lengths.append(next(wrong, min(len(path), len(told))))
    return max(lengths)


def passes_of(prompt: list[int], answer: list[int], shape: str, least: int) -> int:
    """Replay an answer with one way of guessing."""
    lookup, done, passes = Places(prompt), 0, 0
    while done < len(answer):
        ways = list(WAYS.values()) if shape == "either" else [WAYS.get(shape, anywhere)]
        if shape == "by match":
            ways = [WAYS["chain" if lookup.match >= LONG_MATCH else "4+3"]]
        found = lookup.continuations() if lookup.match >= least else []
        gained = 1 + max(right(way(found), answer[done:]) for way in ways)
        lookup.extend(answer[done : done + gained])
        done, passes = done + gained, passes + 1
    return passes


async def answers(
    path: Path, prompts: Sequence[str], tokens: int, ignore_end: bool
) -> list[tuple[list[int], list[int]]]:
    """The ids of each prompt, and of the model's answer to it."""
    model = await load_model(FileSource(path), partial(load_wasm, WasmtimeHost(kernel_path())), native_renderer())
    model.engine.speculates = False
    found = []
    for text in prompts:
        ids = await model.encode_chat([{"role": "user", "content": text}])
        sequence = model.engine.new_sequence()
        await model.engine.prefill(sequence, ids, Timings())
        stream = model.engine.generate(sequence, tokens, SamplingParams(), Timings(), ignore_end=ignore_end)
        said = [one async for some in stream for one in some]
        model.engine.free(sequence)
        found.append((ids, said))
    model.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--ignore-end", action="store_true")
    options = parser.parse_args()
    tasks = tomllib.loads(TASKS.read_text("utf-8"))["task"]
    texts = [task["prompt"].strip() for task in tasks]
    told = asyncio.run(answers(options.model or default_model_path(), texts, options.tokens, options.ignore_end))
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for least in (1, LEAST_MATCH):
        table = Table(title=f"Tokens of a pass of {SIZES[-1]} rows, matches from {least}")
        for column in ("", "tokens", *SHAPES):
            table.add_column(column, justify="right" if column else "left")
        for kind in dict.fromkeys(task["kind"] for task in tasks):
            mine = [both for task, both in zip(tasks, told, strict=True) if task["kind"] == kind]
            tokens = sum(len(answer) for _, answer in mine)
            row = {shape: tokens / sum(passes_of(*both, shape, least) for both in mine) for shape in SHAPES}
            figures.setdefault(str(least), {})[kind] = row
            times = [f"{value:.2f} ({value / row['chain'] - 1:+.0%})" for value in list(row.values())[1:]]
            table.add_row(kind, str(tokens), f"{row['chain']:.2f}", *times)
        Console(width=125).print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
