"""The adapter's training data: requests with the agent that should get them, as written and changed."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates.toml")
_LEADS = (
    "hey, ", "hi! ", "pls ", "please ", "ok so ", "quick one: ", "hello, ", "so ", "um, ", "next: ", "todo: ",
    "one more thing: ", "for work: ", "good morning, ", "i was wondering, ",
)  # fmt: skip
_TAILS = (" pls", " please", " thanks", " thx", "?", "!", "!!", ".", " asap", " ok?", " if possible", " today", " :)")
_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


@dataclass(frozen=True)
class Request:
    """`group` numbers a cluster of meaning within the agent; paraphrases share it."""

    text: str
    agent: str
    group: int
    hard: bool = False


def read_requests(folder: Path) -> list[Request]:
    """Every example of FOLDER/AGENT.toml. Raises FileNotFoundError if there is none."""
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise FileNotFoundError(f"There are no examples in {folder}: name the folder that holds AGENT.toml files.")
    return [
        Request(entry["text"], path.stem, entry["group"], entry.get("hard", False))
        for path in files
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["example"]
    ]


def folds(requests: Sequence[Request], count: int, seed: int) -> list[int]:
    """The fold of each request: all of a group are in one, and each agent's groups are spread evenly."""
    number: dict[tuple[str, int], int] = {}
    for agent in sorted({request.agent for request in requests}):
        groups = sorted({request.group for request in requests if request.agent == agent})
        random.Random(f"{seed} {agent}").shuffle(groups)
        number |= {(agent, group): index % count for index, group in enumerate(groups)}
    return [number[request.agent, request.group] for request in requests]


class Templates:
    """Requests made from templates.toml."""

    def __init__(self, path: Path = TEMPLATES) -> None:
        patterns = tomllib.loads(path.read_text(encoding="utf-8"))
        self.topics: list[str] = patterns.pop("topics")
        self._patterns: dict[str, list[str]] = patterns

    def request(self, agent: str, topic: str, rng: random.Random) -> str:
        """A request to this agent about the topic."""
        return rng.choice(self._patterns[agent]).format(topic)


def changed(text: str, rng: random.Random) -> str:
    """The text as another user may have typed it: with typos, missing words, no capitals, or text around it."""
    words = text.split()
    if len(words) > 4 and rng.random() < 0.3:
        del words[rng.randrange(len(words))]
    if len(words) > 12 and rng.random() < 0.2:
        words = words[: rng.randrange(8, len(words))] if rng.random() < 0.5 else words[rng.randrange(1, 5) :]
    text = " ".join(words)
    if rng.random() < 0.3:
        text = rng.choice(_LEADS) + text
    if rng.random() < 0.25:
        text = text.rstrip(".?! ") + rng.choice(_TAILS)
    if rng.random() < 0.25:
        text = re.sub(r"[^\w\s]", "", text)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        text = _with_typo(text, rng)
    return text


def _with_typo(text: str, rng: random.Random) -> str:
    if len(text) < 8:
        return text
    at = rng.randrange(1, len(text) - 2)
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    if kind == 2:
        return text[:at] + text[at] + text[at:]
    row = next((row for row in _KEYBOARD if text[at].lower() in row), None)
    if row is None:
        return text
    near = row[max(0, row.index(text[at].lower()) - 1) :][:3]
    return text[:at] + rng.choice(near) + text[at + 1 :]
