"""Where an agent's instruction stands in the prompt, and what the answers are like.

Each request comes after two turns that other agents answered. The instruction of the request's agent is:

- first:  the system message at the start, as if the agent had answered from the start on (the prefix changes)
- middle: a system message of its own before the request, where the agent changes (the prefix stays)
- user:   the beginning of the request itself, after one system message for all agents (the prefix stays)
- after:  the end of the request, likewise
- none:   nowhere; the one system message is all

With --fresh the request is the first message of its conversation instead. Printed for each: how many answers have the
form that the agent is for (code, numbered steps, method and path), how similar they are to the request in meaning, the
share of distinct runs of 4 words, how many end by themselves, and how many simple questions are answered right.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import tomllib
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from app.build_outputs import kernel_path  # noqa: E402
from app.models.downloads import default_model_path  # noqa: E402
from app.models.template_renderer import native_renderer  # noqa: E402
from app.native_runtime import open_embedder  # noqa: E402
from app.routing.agent_catalog import current_agents, no_changes, shipped_agents  # noqa: E402
from py_core.backends.wasm.backend import load_wasm  # noqa: E402
from py_core.backends.wasm.host_wasmtime import WasmtimeHost  # noqa: E402
from py_core.engine.engine import Timings  # noqa: E402
from py_core.formats.source import FileSource  # noqa: E402
from py_core.loading import load_model  # noqa: E402

REQUESTS = ROOT / "app" / "bench" / "routing_data" / "routing_test.toml"
AGENTS = {agent.id: agent for agent in current_agents(shipped_agents(), no_changes())}
PLAIN = AGENTS["assistant"]
BEFORE = [
    ("assistant", "Hello, who are you?", "I'm Sonata, an AI assistant. How can I help you today?"),
    (
        "researcher",
        "What is the difference between tea and coffee?",
        "Tea is made from the leaves of the tea plant, coffee from roasted beans. Coffee has more caffeine: 95 mg "
        "a cup, against 40 in black tea.",
    ),
]
FORMS = {
    **dict.fromkeys(("coder", "tester", "refactorer", "devops"), r"```|\n {4}\S|def |\$ "),
    "planner": r"(?s)(^|\n)\s*1[.)].*\n\s*2[.)].*\n\s*3[.)]",
    "api-docs": r"(GET|POST|PUT|PATCH|DELETE)\b",
}
FACTS = [
    ("What is the capital of France?", "Paris"), ("What is the capital of Japan?", "Tokyo"),
    ("What is the capital of Italy?", "Rome"), ("What is the capital of Germany?", "Berlin"),
    ("What is the capital of Spain?", "Madrid"), ("What is the capital of Russia?", "Moscow"),
    ("What is the capital of England?", "London"), ("What is the capital of Egypt?", "Cairo"),
    ("What is the capital of China?", "Beijing"), ("What is the capital of Greece?", "Athens"),
    ("How many days are in a week?", "(?i)seven|7"), ("How many months are in a year?", "(?i)twelve|12"),
    ("What is the chemical symbol for water?", "H2O|H₂O"), ("What is the chemical symbol for gold?", "Au"),
    ("Which planet is closest to the Sun?", "Mercury"), ("Which planet is the largest?", "Jupiter"),
    ("Who wrote Romeo and Juliet?", "Shakespeare"), ("Who painted the Mona Lisa?", "Vinci"),
    ("Who developed the theory of relativity?", "Einstein"), ("What color is the sky on a clear day?", "(?i)blue"),
    ("What is the largest ocean?", "Pacific"), ("What is the opposite of hot?", "(?i)cold"),
    ("What language is spoken in Brazil?", "Portuguese"), ("What gas do plants take in?", "(?i)carbon dioxide|CO2"),
    ("What is the fastest land animal?", "(?i)cheetah"), ("What is frozen water called?", "(?i)ice"),
    ("What do bees make?", "(?i)honey"), ("How many legs does a spider have?", "(?i)eight|8"),
    ("What is the first letter of the alphabet?", "A"), ("In which continent is Kenya?", "Africa"),
]  # fmt: skip


def messages(placement: str, before, agent, request: str) -> list[dict[str, str]]:
    turns = [(AGENTS[name], asked, answer) for name, asked, answer in before]
    if placement == "first":
        made = [{"role": "system", "content": agent.system_prompt}]
        for _, asked, answer in turns:
            made += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        return [*made, {"role": "user", "content": request}]
    if placement == "middle":
        made, last = [], None
        for one, asked, answer in [*turns, (agent, request, None)]:
            if one is not last:
                made.append({"role": "system", "content": one.system_prompt})
            last = one
            made.append({"role": "user", "content": asked})
            if answer is not None:
                made.append({"role": "assistant", "content": answer})
        return made
    made = [{"role": "system", "content": PLAIN.system_prompt}]
    for one, asked, answer in [*turns, (agent, request, None)]:
        parts = {"user": [one.system_prompt, asked], "after": [asked, one.system_prompt], "none": [asked]}[placement]
        made.append({"role": "user", "content": asked if one is PLAIN else "\n\n".join(parts)})
        if answer is not None:
            made.append({"role": "assistant", "content": answer})
    return made


async def answer(model, said, agent, max_tokens: int) -> tuple[str, bool]:
    sequence, timings = model.engine.new_sequence(), Timings()
    await model.engine.prefill(sequence, await model.encode_chat(said), timings)
    ids = [id async for batch in model.engine.generate(sequence, max_tokens, agent.sampling, timings) for id in batch]
    model.engine.free(sequence)
    return model.tokenizer.decode(ids), timings.reason == "end"


def distinct(text: str) -> float:
    words = text.split()
    runs = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return len(set(runs)) / len(runs) if runs else 1.0


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--placements", nargs="+", default=["first", "middle", "user", "after", "none"])
    parser.add_argument("--requests", type=int, default=3, help="of each agent")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--show", action="store_true", help="print the answers")
    options = parser.parse_args()
    model = await load_model(
        FileSource(default_model_path()), partial(load_wasm, WasmtimeHost(kernel_path())), native_renderer()
    )
    embedder = open_embedder()
    asked: dict[str, list[str]] = {}
    for row in tomllib.loads(REQUESTS.read_text(encoding="utf-8"))["request"]:
        if row["difficulty"] == "easy" and row["agent"] in AGENTS and row["agent"] != PLAIN.id:
            asked.setdefault(row["agent"], []).append(row["text"])
    before = [] if options.fresh else BEFORE
    for placement in options.placements:
        shaped, similar, runs, ended = [], [], [], []
        for name, texts in asked.items():
            for text in texts[: options.requests]:
                said = messages(placement, before, AGENTS[name], text)
                got, end = await answer(model, said, AGENTS[name], options.max_tokens)
                if name in FORMS:
                    shaped.append(bool(re.search(FORMS[name], got)))
                one, other = await embedder.embed([text, got[:600] or "."])
                similar.append(float(one @ other))
                runs.append(distinct(got))
                ended.append(end)
                if options.show:
                    print(f"--- {placement}, {name}: {text}\n{got}\n", flush=True)
        right = []
        for text, wanted in FACTS:
            got, _ = await answer(model, messages(placement, before, PLAIN, text), PLAIN, 40)
            right.append(bool(re.search(wanted, got)))
            if options.show:
                print(f"--- {placement}: {text} {got!r} {right[-1]}")
        figures = f"form {sum(shaped)} of {len(shaped)}; similarity {statistics.mean(similar):.3f}"
        figures += f"; distinct runs {statistics.mean(runs):.3f}; ended {sum(ended)} of {len(ended)}"
        print(f"{placement}: {figures}; facts {sum(right)} of {len(right)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
