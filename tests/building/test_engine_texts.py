"""Python's messages in the page have their German in web/i18n/de/engine.js, by code, and no entry there is unused."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from app.building.common import ROOT
from app.building.node import node_path
from app.building.python.archives import NATIVE_ONLY
from app.records.kinds import KINDS
from app.routing.agent_catalog import shipped_agents
from py_core.messages import Message, UserError
from py_core.store.errors import StoreError
from py_core.store.kinds import Kind

OTHERS = {"gguf.needs-more"}
"""Codes of messages that the page never gets: another part of the file is read instead."""


@dataclass(frozen=True)
class Said:
    """A message in the code. values: None if a ** hides them."""

    code: str
    text: str
    values: frozenset[str] | None
    place: str


def _literal(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@cache
def trees() -> dict[str, ast.Module]:
    paths = [*(ROOT / "app").rglob("*.py"), *(ROOT / "py_core").rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


@cache
def user_errors() -> frozenset[str]:
    """The names of the classes of errors for the user."""
    bases = {
        node.name: {ast.unparse(base) for base in node.bases}
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {UserError.__name__}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return frozenset(found)


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Each place where a message or a user error is made: the name of its class, the place and the call."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                if name in user_errors() or name == Message.__name__:
                    yield name, f"{path}:{node.lineno}", node


@cache
def said() -> tuple[Said, ...]:
    found = []
    for name, place, call in calls():
        code, text, *_ = [*map(_literal, call.args[1 if name == StoreError.__name__ else 0 :]), None, None]
        if code is not None and text is not None:
            names = [keyword.arg for keyword in call.keywords if (name, keyword.arg) != ("AgentError", "field")]
            values = None if None in names else frozenset(name for name in names if name)
            found.append(Said(code, text, values, place))
    return tuple(found)


def names_in(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\{(\w+)\}", text))


class German:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "web" / "i18n", folder / "i18n")
        shutil.copytree(ROOT / "web" / "common", folder / "common")
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")

    def run(self, source: str) -> object:
        (self.folder / "run.js").write_text(source, encoding="utf-8")
        run = subprocess.run([node_path(), self.folder / "run.js"], capture_output=True, text=True, check=True)
        return json.loads(run.stdout)

    def said(self, *messages: object) -> list[str]:
        source = "import { setMessages, said } from './i18n/engine_texts.js';"
        source += "import { messages } from './i18n/de.js'; setMessages(messages);"
        source += f"console.log(JSON.stringify({json.dumps(messages)}.map((one) => said(one))))"
        return self.run(source)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> German:
    return German(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def catalogue(german: German) -> dict[str, str]:
    source = "import { messages } from './i18n/de/engine.js'; console.log(JSON.stringify(messages))"
    return german.run(source)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def workers(german: German) -> dict[str, str]:
    source = "import { workerMessages } from './i18n/de/workers.js'; console.log(JSON.stringify(workerMessages))"
    return german.run(source)  # type: ignore[return-value]


def test_each_error_for_a_person_has_a_code() -> None:
    uncoded = []
    for name, place, call in calls():
        given = call.args[1 if name == StoreError.__name__ else 0 :]
        if len(given) == 1 and (_literal(given[0]) is not None or isinstance(given[0], ast.JoinedStr)):
            uncoded.append(f"{place} {ast.unparse(call)}")
    assert uncoded == []


def test_a_code_has_one_text_and_all_its_values() -> None:
    texts = defaultdict(set)
    for one in said():
        assert re.fullmatch(r"[a-z]+(\.[a-z0-9-]+)+", one.code), one
        assert one.values in (None, names_in(one.text)), one
        texts[one.code].add(one.text)
    assert {code: found for code, found in texts.items() if len(found) > 1} == {}


def test_each_message_that_reaches_the_page_has_its_german(catalogue: dict[str, str]) -> None:
    missing = {one.code: one.place for one in said() if not one.place.startswith(NATIVE_ONLY)}
    assert {code: place for code, place in missing.items() if code not in catalogue.keys() | OTHERS} == {}


def test_german_takes_the_values_of_english_and_nothing_is_left_over(catalogue: dict[str, str]) -> None:
    english = {one.code: one.text for one in said()}
    for agent in shipped_agents():
        english |= {f"agent.{agent['id']}.{key}": agent[key] for key in ("title", "definition")}
    english |= {noun.code: noun.text for kind in KINDS for noun in (kind.noun(1), kind.noun(2))}
    adapters = {"kind.adapter.one", "kind.adapter.other"}  # which the page counts beside the records
    assert [code for code in catalogue.keys() - adapters if code not in english] == []
    told = {code: text for code, text in catalogue.items() if code in english}
    assert {code: text for code, text in told.items() if names_in(text) != names_in(english[code])} == {}
    counted = {
        noun.code for kind in KINDS.in_use for noun in (kind.noun(1), kind.noun(2)) if kind.nouns != Kind("").nouns
    }
    assert counted <= catalogue.keys()
    assert all(code in catalogue for code in english if code.startswith("agent."))


def test_a_message_is_said_with_its_values_and_an_unknown_one_in_english(german: German) -> None:
    from app.files.text import FileError, text_of
    from app.protocol import to_json

    with pytest.raises(FileError) as refused:
        text_of("a.png", b"\x89PNG")
    assert str(refused.value) == "a.png is not text. Sonata cannot read pictures."
    unknown = Message("nobody.knows", "Something {what}.", what=[Message("idle.facts", "facts"), "{more}"])
    assert german.said(to_json(refused.value.message), to_json(unknown), "As it was stored.") == [
        "a.png ist kein Text. Sonata kann keine Bilder lesen.",
        "Something Tatsachen, {more}.",
        "As it was stored.",
    ]


def test_each_message_of_a_worker_has_its_german(catalogue: dict[str, str], workers: dict[str, str]) -> None:
    literal = r"'((?:[^'\\]|\\.)*)'"
    english = {}
    for path in (ROOT / "web").rglob("*.js"):
        for code, text in re.findall(rf"\bmessage\({literal},\s*{literal}", path.read_text("utf-8")):
            assert english.setdefault(code, text) == text
    assert len(english) > 50
    german = catalogue | workers
    assert {code for code in english if code not in german} == set()
    assert {code for code in workers if code not in english} == set()
    assert {code: text for code, text in english.items() if names_in(text) != names_in(german[code])} == {}
