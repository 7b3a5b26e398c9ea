"""What Python says in the page has its German in web/i18n/de/engine.js, and nothing there is left over."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from test_texts import ALLOWED, texts_in_code

from app.building.common import ROOT
from app.building.node import node_path
from app.building.python_archives import NATIVE_ONLY
from app.memory import policy_words
from app.routing.agent_catalog import shipped_agents

NOT_SAID = (
    # said in both languages, patterns, and what the model reads
    *("py_core/tools/", "py_core/learning/augmentation.py", "py_core/learning/question_rules.py"),
    *("py_core/learning/teaching.py", "app/chat/titles.py", "app/files/material.py", "app/chat/help_answers.py"),
    *("app/lessons/talk.py", "py_core/learning/german_statements.py", "py_core/learning/memory_talk.py"),
    "py_core/learning/worth_remembering.py",
    # for the terminal
    *(
        "app/generation/speed.py",
        "app/bench/memory.py",
        "app/building/",
        "app/bench/logits.py",
        "app/bench/perplexity.py",
        "py_core/adapters/merging.py",
    ),
    *(
        "py_core/backends/numpy/backend.py",
        "py_core/backends/webgpu/host_wgpu.py",
        "py_core/backends/wasm/host_wasmtime.py",
    ),
    # of a mistake in a program, not in what somebody did
    *("app/page/calls.py", "app/page/snapshot.py", "py_core/adapters/head.py", "py_core/adapters/parameters.py"),
    *("py_core/training/session.py", "py_core/backends/wasm/backend.py", "py_core/hnsw/"),
    *("py_core/training/batches.py", "py_core/training/checkpoint.py", "py_core/learning/gate.py"),
    *("py_core/learning/imprint.py", "py_core/training/packing.py", "py_core/memory/records.py"),
    *("py_core/memory/schemas.py", "py_core/memory/store.py", "py_core/memory/trajectories.py"),
    *("py_core/training/backward.py", "py_core/routing/parameters.py", "py_core/routing/projection.py"),
    *("py_core/routing/routing_data.py",),
)
"""Modules whose sentences are not looked up."""
NEVER_SAID = {
    "You are a helpful AI assistant named Sonata.",  # to the model
    "DevOps",  # the same in German
    "start is {}, but must be one of the sequence's {} tokens, from 0 on.",  # mistakes in a program
    "end is {}, but must be from {} to {}.",
    "{} are asked for; hidden reads 1 to {} values, each once.",
    "start is {}, but must be from 1 to {}: one of the sequence's {} tokens, and not the first, which nothing comes "
    "before.",
    "{} tokens need states of shape {}, not {}.",
    "This model has no value {} to read; it has {}.",
    "Logits after the last {} tokens are asked for; the sequence has {}, and at most {} rows at a time can have them.",
    "{} sequences with {} sets of LoRA matrices are to be decoded together; it can be 1 to {}, each once, with the "
    "same set and sampling rules each.",
    "The rank of a style is {}, but must be 1 to {}.",
    "States of {} and {} and {} tokens do not fit each other.",
    "A step of a style has at most {} rows.",
    "There is no agent {}; there are {}.",
}
PARTS = {
    "The {} is empty. Write both a question and an answer.": [
        "The question is empty. Write both a question and an answer.",
        "The answer is empty. Write both a question and an answer.",
    ],
    "{} of them showed.": ["The last time it saw {}, and kept what {} of them showed."],
    "{}: it {}.": ["Sonata is learning: it {}."],
    "{} is done{}.": ["{} is done.", "{} is done, {} left."],
}
"""What the sentences are that Python puts together in parts."""


def said(tree: ast.AST) -> Iterator[str]:
    """Texts that end like a sentence, with {} for each value; no docstrings."""
    nodes = list(ast.walk(tree))
    left_out = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    left_out |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in left_out:
            continue
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        text = text.strip()
        if " " in text and text[-1] in ".!?" and re.search("[a-z]{2}", text):
            yield text


@cache
def said_in_the_page() -> dict[str, str]:
    """Sentence: the module that says it."""
    found = {}
    for path in [*(ROOT / "app").rglob("*.py"), *(ROOT / "py_core").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith((*NATIVE_ONLY, *NOT_SAID)):
            for text in said(ast.parse(path.read_text("utf-8"))):
                found |= dict.fromkeys(PARTS.get(text, [text]), name)
    for agent in shipped_agents():
        found |= dict.fromkeys([agent["title"], agent["definition"]], "app/routing/agents/agents.toml")
    for known in policy_words._KNOWN.values():
        found[known.title] = "app/memory/policy_words.py"
    for title, _ in policy_words._FACTORS.values():
        found[f"{title}: {{}}"] = "app/memory/policy_words.py"
    words = [*policy_words._SOURCES.values(), "Reset", "Delete", "on", "off"]
    found |= dict.fromkeys(words, "app/memory/policy_words.py")
    return found


def bare(sentence: str) -> str:
    return re.sub(r"\{\w*\}", "{}", sentence)


class German:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "web" / "i18n", folder)
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")

    def run(self, source: str) -> object:
        (self.folder / "run.js").write_text(source, encoding="utf-8")
        run = subprocess.run([node_path(), self.folder / "run.js"], capture_output=True, text=True, check=True)
        return json.loads(run.stdout)

    def told(self, *texts: str) -> list[str]:
        source = "import { setSentences, told } from './engine_texts.js'; import { sentences } from './de/engine.js';"
        source += "import { workerSentences } from './de/workers.js';"
        source += "setSentences([...sentences, ...workerSentences]); "
        source += f"console.log(JSON.stringify({json.dumps(texts)}.map(told)))"
        return self.run(source)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> German:
    return German(tmp_path_factory.mktemp("engine") / "i18n")


@pytest.fixture(scope="module")
def rows(german: German) -> list[list[str]]:
    source = "import { sentences } from './de/engine.js'; console.log(JSON.stringify(sentences))"
    return german.run(source)  # type: ignore[return-value]


def test_each_sentence_that_python_says_in_the_page_has_its_german(rows: list[list[str]]) -> None:
    known = {bare(english) for english, _ in rows}
    assert {text: name for text, name in said_in_the_page().items() if bare(text) not in known | NEVER_SAID} == {}


def test_no_german_sentence_is_left_over_and_none_is_there_twice(rows: list[list[str]]) -> None:
    texts = [bare(english) for english, _ in rows]
    said = {bare(text) for text in said_in_the_page()}
    sentences = [text for text in texts if text[-1] in ".!?"]  # a few words are values of sentences
    assert [text for text in sentences if text not in said] == []
    assert len(set(texts)) == len(texts)


def test_german_takes_the_values_of_english(rows: list[list[str]]) -> None:
    names = [tuple(set(re.findall(r"\{(\w+)\}", text)) for text in row) for row in rows]
    assert [rows[at] for at, (english, german) in enumerate(names) if not german <= english] == []


def test_sentences_are_told_with_their_values_one_by_one_and_unknown_ones_stay(german: German) -> None:
    assert german.told(
        "notes.txt is empty.",
        "Sonata is learning. 40% is done, about 3 minutes left.",
        "12 facts in use; 1 answer came from what you taught. Something unheard of.",
        "The file is truncated: it has 3 of 9 bytes. Copy it again. Nothing was changed.",
        "a.png is not text. Sonata reads no pictures.",
        "",
    ) == [
        "notes.txt ist leer.",
        "Sonata lernt. 40% sind geschafft, noch etwa 3 Minuten.",
        "12 Tatsachen in Gebrauch; 1 Antwort kamen aus dem, was du beigebracht hast. Something unheard of.",
        "Die Datei ist abgeschnitten: Sie hat 3 von 9 Bytes. Kopiere sie noch einmal. Nichts wurde geändert.",
        "a.png ist kein Text. Sonata liest keine Bilder.",
        "",
    ]


def test_each_sentence_of_a_worker_has_its_german(german: German) -> None:
    said = {
        text["text"].replace("{}{}", "{}").removesuffix(" {}").replace("{}", "7")
        for text in texts_in_code()
        if any(text["path"].startswith(path) and why == "said in workers" for path, why in ALLOWED.items())
    }
    assert len(said) > 50
    told = german.told(*said)
    assert [english for english, words in zip(said, told, strict=True) if english == words] == []
