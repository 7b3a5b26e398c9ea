"""How good a model's answers are with each way of drawing tokens, and with an agent's instruction in each place.

    python -m tests.bench answer_settings [--model qwen2.5-coder-0.5b] [--backend wasm] [--kinds code long]
        [--settings "penalty 0.2" plain] [--show] [--json FILE]

The tasks are in tests/bench/data/chat_tasks.toml; a program judges the answers. Each is the first message of a chat,
answered as in the app (app/generation/assistant.py), with at most 400 tokens. `looped` counts the answers that were
ended because they only repeated themselves, `ended` those that the model ended. Code that a model wrote is run, with
its check, in a process of its own with a time limit.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from app.cli.loading import BackendChoice, ModelOptions
from app.generation.answer_settings import AnswerSettings
from app.generation.assistant import SYSTEM_PROMPT, Assistant
from app.protocol import Done
from app.routing.agent_catalog import current_agents, no_changes, shipped_agents
from py_core.loading import Model
from py_core.sampling import SamplingParams
from tests.bench.reporting import options_of, print_tables, write_figures

TASKS = Path(__file__).parents[1] / "data" / "chat_tasks.toml"
LONGEST = 400
AT_ONCE = 8
SECONDS = 5
BLOCK = re.compile(r"```(?:python)?\n(.*?)(?:```|\Z)", re.DOTALL)

SETTINGS: dict[str, tuple[str, SamplingParams]] = {
    "penalty 0.2": ("message", SamplingParams(frequency_penalty=0.2)),
    "penalty 0.1": ("message", SamplingParams(frequency_penalty=0.1)),
    "plain": ("message", SamplingParams()),
    "repetition 1.05": ("message", SamplingParams(repetition_penalty=1.05)),
    "repetition 1.1": ("message", SamplingParams(repetition_penalty=1.1)),
    "drawn": ("message", SamplingParams(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.1, seed=1)),
    "penalty 0.2, system": ("system", SamplingParams(frequency_penalty=0.2)),
    "plain, system": ("system", SamplingParams()),
    "penalty 0.2, no instruction": ("nowhere", SamplingParams(frequency_penalty=0.2)),
    "plain, no instruction": ("nowhere", SamplingParams()),
}
"""Where the agent's instruction stands, and how tokens are drawn. "drawn" is what Qwen2.5's authors suggest."""


def runs(answer: str, check: str) -> bool:
    """Return whether the answer's code passes the check."""
    found = BLOCK.search(answer)
    source = f"{found[1] if found else answer}\n{check}\n"
    try:
        return not subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, timeout=SECONDS).returncode
    except (subprocess.TimeoutExpired, ValueError):  # it contains a zero byte
        return False


def is_right(task: dict[str, Any], answer: str) -> bool:
    """Return whether an answer is as the task asks."""
    if "check" in task and not runs(answer, task["check"]):
        return False
    wanted = all(re.search(each, answer) for each in task.get("wants", ()))
    return wanted and not any(re.search(each, answer) for each in task.get("refuses", ()))


async def answer_to(model: Model, task: dict[str, Any], place: str, sampling: SamplingParams) -> Done:
    agent = next(one for one in current_agents(shipped_agents(), no_changes()) if one.id == task["agent"])
    assistant = Assistant(model, sampling, LONGEST)
    if place == "system" and agent.system_prompt != SYSTEM_PROMPT:
        assistant.use_settings(AnswerSettings(instructions=agent.system_prompt))
    if place != "message":
        agent = replace(agent, system_prompt=SYSTEM_PROMPT)
    try:
        return [event async for event in assistant.respond(task["request"], agent) if isinstance(event, Done)][-1]
    finally:
        assistant.close()


async def measure(
    model: Model, tasks: list[dict[str, Any]], place: str, sampling: SamplingParams, show: bool
) -> dict[str, Any]:
    """Return the answers, and how many are right of each kind."""
    few = asyncio.Semaphore(AT_ONCE)

    async def one(task: dict[str, Any]) -> dict[str, Any]:
        async with few:
            done = await answer_to(model, task, place, sampling)
        right = await asyncio.to_thread(is_right, task, done.text)
        facts = {"kind": task["kind"], "request": task["request"]}
        return {**facts, "answer": done.text, "reason": done.reason, "right": right}

    answers = await asyncio.gather(*map(one, tasks))
    if show:
        for each in answers:
            print(f"--- {each['right']}, {each['reason']}: {each['request']}\n{each['answer']}\n", flush=True)
    reasons = Counter(each["reason"] for each in answers)
    right = Counter(each["kind"] for each in answers if each["right"])
    return {"right": dict(right), "ended": reasons["end"], "looped": reasons["loop"], "answers": answers}


async def main() -> None:
    known = tomllib.loads(TASKS.read_text("utf-8"))
    parser = options_of(__doc__)
    parser.add_argument("--model", type=Path, help="a file, or the name of a kept model")
    parser.add_argument("--backend", choices=[choice.value for choice in BackendChoice], default="auto")
    parser.add_argument("--kinds", nargs="+", choices=list(known), default=list(known))
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--show", action="store_true", help="print the answers")
    options = parser.parse_args()
    tasks = [
        {"kind": kind, "agent": known[kind]["agent"], "refuses": known[kind].get("refuses", ()), **task}
        for kind in options.kinds for task in known[kind]["tasks"]
    ]  # fmt: skip
    model = await ModelOptions(model=options.model, backend=BackendChoice(options.backend)).load()
    found = {name: await measure(model, tasks, *SETTINGS[name], options.show) for name in options.settings}
    write_figures(options, {"model": str(options.model or "default"), "settings": found})
    counts = Counter(task["kind"] for task in tasks)
    judged = [kind for kind in counts if kind != "long"]
    table = Table(title=f"Right answers, {options.model or 'the default model'}")
    for column in ("", *(f"{kind} of {counts[kind]}" for kind in judged), "all", f"ended of {len(tasks)}", "looped"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in found.items():
        right = [row["right"].get(kind, 0) for kind in judged]
        table.add_row(name, *map(str, (*right, sum(right), row["ended"], row["looped"])))
    print_tables(table)
