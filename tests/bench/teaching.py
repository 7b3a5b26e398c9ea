"""How well a statement can be asked for later, when its question was made by rules (py_core/learning/teaching.py).

    python tests/bench/teaching.py [--split dev] [--json FILE]

Each fact's answer is told as a statement of the person's ("My cat is called Pumpernickel"), and all facts of the split
are stored. Then each fact's own question and its paraphrases are asked. Compared with facts that are stored with their
own question. "right": the gate opens for that fact.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.lessons.shipped_gate import shipped_gate
from app.native_runtime import open_embedder
from py_core.learning.gate import CANDIDATES
from py_core.learning.teaching import flipped, lesson_of

FACTS = Path(__file__).resolve().parents[2] / "app" / "lessons" / "facts"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines = (FACTS / f"facts_{options.split}.jsonl").read_text(encoding="utf-8").splitlines()
    facts = [json.loads(line) for line in lines]
    told = [lesson_of(flipped(fact["answer"])) for fact in facts]
    questions = {
        "its own question": [fact["question"] for fact in facts],
        "a question by rules": [each.question for each in told if each],
    }
    found = {}
    for name, stored in questions.items():
        found[name] = await measure(stored, facts)
    same = sum(each is not None and each.answer == fact["answer"] for each, fact in zip(told, facts, strict=True))
    unknown = sum(question.startswith("What do you know about") for question in questions["a question by rules"])
    if options.json:
        options.json.write_text(json.dumps(found))
    table = Table(
        "stored with", "own question right", "paraphrases right", "opens wrongly", title=f"{len(facts)} facts"
    )
    for name, (taught, paraphrases, wrong) in found.items():
        table.add_row(name, f"{taught:.3f}", f"{paraphrases:.3f}", f"{wrong:.3f}")
    Console().print(table)
    print(f"The answer is said as it was in {same} of {len(facts)}; {unknown} have no question but for their subject.")


async def measure(stored: list[str], facts: list[dict[str, object]]) -> tuple[float, float, float]:
    embedder, gate = open_embedder(), shipped_gate()
    wholes = [f"{question} {fact['answer']}" for question, fact in zip(stored, facts, strict=True)]
    pairs = list(
        zip(
            zip(stored, await embedder.meanings(stored), strict=True),
            zip(wholes, await embedder.meanings(wholes), strict=True),
            strict=True,
        )
    )
    right: dict[bool, list[bool]] = {True: [], False: []}
    wrong = []
    for number, fact in enumerate(facts):
        for text in (fact["question"], *fact["paraphrases"]):  # type: ignore[misc]
            (asked,) = await embedder.meanings([text])
            similar = [max(float(asked.vector @ each[1].vector) for each in pair) for pair in pairs]
            best = sorted(range(len(pairs)), key=lambda at: -similar[at])[:CANDIDATES]
            scores = gate.scores((text, asked), [pairs[at] for at in best])
            at = int(np.argmax(scores))
            opens = scores[at] > gate.threshold
            right[text == fact["question"]].append(bool(opens and best[at] == number))
            wrong.append(bool(opens and best[at] != number))
    return float(np.mean(right[True])), float(np.mean(right[False])), float(np.mean(wrong))


if __name__ == "__main__":
    asyncio.run(main())
