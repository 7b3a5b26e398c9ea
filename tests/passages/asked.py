"""Questions about some texts (questions.toml; questions_de.toml in German), and the passages that answer them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from py_core.passages.chunks import each_chunk, kind_of
from py_core.passages.search import PassageIndex
from py_core.routing.embedder import Embedder

HERE = Path(__file__).parent
Languages = Literal["en", "de", "de over en"]
"""The language of questions and texts, or German questions over the English texts."""


@dataclass(frozen=True)
class Asked:
    """right: the numbers of the passages that answer it."""

    question: str
    kind: str
    right: frozenset[int]


@dataclass(frozen=True)
class Case:
    """All texts as in one conversation: passages with their vectors, and questions with theirs."""

    texts: list[str]
    asked: list[Asked]
    vectors: np.ndarray
    questions: np.ndarray

    def index(self, with_vectors: bool = True) -> PassageIndex:
        index = PassageIndex(self.texts)
        for number, vector in enumerate(self.vectors if with_vectors else []):
            index.put(number, vector)
        return index

    def recall(self, way: str, most: int) -> int:
        """The number of questions for which a right passage is among the first. way: "meaning", "words" or "both"."""
        index, plain = self.index(), self.index(with_vectors=False)
        found = 0
        for one, vector in zip(self.asked, self.questions, strict=True):
            if way == "meaning":
                first = list(np.argsort(-(self.vectors @ vector), kind="stable")[:most])
            else:
                hits = index.search(one.question, vector) if way == "both" else plain.search(one.question, None)
                first = [hit.number for hit in hits[:most]]
            found += any(number in one.right for number in first)
        return found


async def open_case(embedder: Embedder, languages: Languages = "en") -> Case:
    texts, plain, names = list[str](), list[str](), list[str]()
    for path in sorted((HERE / ("texts_de" if languages == "de" else "texts")).iterdir()):
        whole = path.read_text(encoding="utf-8")
        for chunk in each_chunk(whole, kind_of(path.name)):
            names.append(path.name)
            plain.append(_flat(chunk.text(whole)))
            texts.append(f"{path.name}, {chunk.place}\n{chunk.text(whole)}")
    asked = []
    for row in _questions(languages):
        of_file = [number for number, name in enumerate(names) if name == row["file"]]
        right = frozenset(number for number in of_file if _flat(row["answer"]) in plain[number])
        assert right, row
        asked.append(Asked(row["question"], row["kind"], right))
    vectors = [meaning.vector for meaning in await embedder.meanings(texts)]
    questions = [meaning.vector for meaning in await embedder.meanings([one.question for one in asked])]
    return Case(texts, asked, np.stack(vectors), np.stack(questions))


def _questions(languages: Languages) -> list[dict[str, Any]]:
    english: list[dict[str, Any]] = _rows("questions.toml")
    if languages == "en":
        return english
    german = _rows("questions_de.toml")
    if languages == "de":
        return german
    of = {row["question"]: row for row in english}
    return [of[row["english"]] | {"question": row["question"]} for row in german]


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tomllib.loads((HERE / name).read_text(encoding="utf-8"))["questions"]
    return rows


def _flat(text: str) -> str:
    return " ".join(text.split())
