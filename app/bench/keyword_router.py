"""The peer of semantic routing: a router that looks at words only.

It scores an agent by the words of a request, weighted like TF-IDF: hand-written lists (routing_data/keywords.toml),
each agent's name, and words that its examples use more than others' do. That is as good as we could make it without
vectors.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from py_core.routing.agents import Example

_FILE = Path(__file__).with_name("routing_data") / "keywords.toml"
KEYWORDS = tomllib.loads(_FILE.read_text(encoding="utf-8"))
"""agent -> {"obvious": words, "more": words}."""

OBVIOUS_WEIGHT, MORE_WEIGHT = 3.0, 1.0
"""Score of a keyword of one agent; a keyword of k of n agents counts log(n / k) / log(n) of it."""

_ENDING = r"(?:s|es|ed|d|ing|er|ers)?"


class KeywordRouter:
    """Ranks agents for a text. With `examples` it also learns the words of each agent's requests."""

    def __init__(self, examples: Iterable[Example] = (), keywords: Mapping[str, Mapping[str, list[str]]] = KEYWORDS):
        weights: dict[str, dict[str, float]] = {agent: {} for agent in keywords}
        for agent, lists in keywords.items():
            for words, weight in ((lists["more"], MORE_WEIGHT), (lists["obvious"], OBVIOUS_WEIGHT)):
                weights[agent].update(dict.fromkeys(words, weight))
            weights[agent][agent.replace("-", " ")] = OBVIOUS_WEIGHT
        agents_with = Counter(word for words in weights.values() for word in words)
        self._patterns = [
            (agent, weight * math.log(len(weights) / agents_with[word]) / math.log(len(weights)), word_pattern(word))
            for agent, words in weights.items()
            for word, weight in words.items()
        ]
        self.agents = list(weights)
        self._learned = _word_scores(examples, self.agents)

    def rank(self, text: str) -> list[tuple[str, float]]:
        """All agents with their scores, the best first; ties in the order of the keyword lists."""
        scores = dict.fromkeys(self.agents, 0.0)
        for agent, weight, pattern in self._patterns:
            if pattern.search(text):
                scores[agent] += weight
        for word in set(_words(text)):
            for agent, score in self._learned.get(word, {}).items():
                scores[agent] += score
        return sorted(scores.items(), key=lambda item: -item[1])


def word_pattern(word: str) -> re.Pattern[str]:
    """Matches a keyword with the usual endings, or a phrase, without regard to case."""
    ending = "" if " " in word else _ENDING
    return re.compile(rf"(?<!\w){re.escape(word)}{ending}(?!\w)", re.IGNORECASE)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_+#]+", text.lower())


def _word_scores(examples: Iterable[Example], agents: list[str]) -> dict[str, dict[str, float]]:
    """word -> agent -> log of how much likelier the word is in its requests than in all (naive Bayes, smoothed)."""
    requests = Counter[str]()
    with_word: dict[str, Counter[str]] = {}
    for example in examples:
        if example.agent in agents:
            requests[example.agent] += 1
            for word in set(_words(example.text)):
                with_word.setdefault(word, Counter())[example.agent] += 1
    total = sum(requests.values())
    return {
        word: {
            agent: math.log(
                ((counts[agent] + 0.5) / (requests[agent] + 1)) / ((sum(counts.values()) + 0.5) / (total + 1))
            )
            for agent in agents
        }
        for word, counts in with_word.items()
    }
