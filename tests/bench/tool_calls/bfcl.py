"""Questions and answers of the Berkeley Function Calling Leaderboard (BFCL v4), as the package `bfcl-eval` has them.

Calls are compared with answers by the rules that it publishes for Python."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.building.common import one_build_at_a_time
from app.building.download import Download, Downloader, Source
from app.building.python_env import pypi_address
from app.paths import cache_dir

PACKAGE = "bfcl-eval==2026.3.23"
FILE = "bfcl_eval-2026.3.23-py3-none-any.whl"
SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
FOLDER = "bfcl_eval/data"
CATEGORIES = ("simple_python", "multiple", "parallel", "irrelevance")
MORE = ("parallel_multiple", "live_simple", "live_multiple", "live_parallel", "live_irrelevance")
_TYPES = {"dict": "object", "float": "number", "double": "number", "tuple": "array", "long": "integer"}
_JSON_TYPES = frozenset(["object", "number", "array", "integer", "string", "boolean", "null"])
_KEPT = frozenset(["description", "enum", "required", "default", "minimum", "maximum", "minItems", "maxItems"])
_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True)
class Question:
    """tools: OpenAI's form of the functions. answer: {function: {parameter: its possible values}}, one a call; empty
    if no function fits."""

    id: str
    category: str
    messages: list[dict[str, str]]
    tools: list[dict[str, Any]]
    answer: list[dict[str, dict[str, list[Any]]]]


def archive() -> Path:
    """The package's wheel in the cache. It is downloaded if it is not there. Raises BuildError."""
    cache, source = cache_dir(), Source(pypi=PACKAGE)
    with one_build_at_a_time(cache):
        return Downloader(cache, pypi_address).ensure(Download(cache / "bench" / FILE, SHA256, (source,)))


def questions(wheel: Path, category: str) -> list[Question]:
    """All questions of a category, in their order."""
    with zipfile.ZipFile(wheel) as packed:
        rows = _rows(packed, f"{FOLDER}/BFCL_v4_{category}.json")
        path = f"{FOLDER}/possible_answer/BFCL_v4_{category}.json"
        answers = {row["id"]: row["ground_truth"] for row in _rows(packed, path)} if path in packed.namelist() else {}
    return [
        Question(row["id"], category, row["question"][0], [_tool(one) for one in row["function"]],
                 [{_name(name): given for name, given in call.items()} for call in answers.get(row["id"], [])])
        for row in rows
    ]  # fmt: skip


def _rows(packed: zipfile.ZipFile, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in packed.read(path).decode().splitlines()]


def _name(name: str) -> str:
    """A name by OpenAI's rules, as the leaderboard makes it for models that have them."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    parameters = _schema(function["parameters"]) | {"type": "object"}
    return {"type": "function", "function": {**function, "name": _name(function["name"]), "parameters": parameters}}


def _schema(found: dict[str, Any]) -> dict[str, Any]:
    """A schema of the leaderboard as JSON Schema: "any" is no type, and what is not JSON Schema is left out."""
    made: dict[str, Any] = {}
    kind = found.get("type")
    if isinstance(kind, str) and (kind := _TYPES.get(kind.lower(), kind.lower())) in _JSON_TYPES:
        made["type"] = kind
    made |= {key: value for key, value in found.items() if key in _KEPT}
    if isinstance(found.get("properties"), dict):
        made["properties"] = {name: _schema(inner) for name, inner in found["properties"].items()}
    if isinstance(found.get("items"), dict):
        made["items"] = _schema(found["items"])
    return made


@dataclass(frozen=True)
class Verdict:
    """The result of a question. name: the right functions were called, or none if none fits. right: also with the right
    arguments."""

    name: bool
    right: bool


def verdict(question: Question, calls: Sequence[dict[str, Any]]) -> Verdict:
    """Compare calls {name, arguments} with the answer. The order of parallel calls does not count."""
    wanted = list(question.answer)
    names = sorted(call["name"] for call in calls) == sorted(name for one in wanted for name in one)
    left, right = list(calls), names
    for one in wanted:
        found = next((call for call in left if _is_right(question, one, call)), None)
        if found is None:
            return Verdict(names, False)
        left.remove(found)
    return Verdict(names, right)


def _is_right(question: Question, wanted: dict[str, dict[str, list[Any]]], call: dict[str, Any]) -> bool:
    ((name, possible),) = wanted.items()
    if call["name"] != name:
        return False
    (schema,) = (tool["function"]["parameters"] for tool in question.tools if tool["function"]["name"] == name)
    known, arguments = schema.get("properties", {}), call["arguments"]
    if any(key not in arguments for key in schema.get("required", [])):
        return False
    if any(key not in known or key not in possible for key in arguments):
        return False
    if any(key not in arguments and "" not in values for key, values in possible.items()):
        return False
    return all(_fits(value, possible[key], known[key].get("type")) for key, value in arguments.items())


def _fits(value: Any, possible: Sequence[Any], kind: str | None) -> bool:
    """True if a value is one of the possible ones: strings without case, spaces and some signs, whole numbers for
    decimal ones, but no number for a truth value or a text."""
    if isinstance(value, dict):
        return any(_fits_object(value, one) for one in possible if isinstance(one, dict))
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return any(
            len(one) == len(value) and all(map(_fits_object, value, one)) for one in possible if isinstance(one, list)
        )
    if kind == "integer" and isinstance(value, float):
        return False
    return any(_same(value, one) for one in possible)


def _fits_object(value: dict[str, Any], possible: Any) -> bool:
    if not isinstance(possible, dict) or any(key not in possible for key in value):
        return False
    if any(key not in value and "" not in values for key, values in possible.items()):
        return False
    return all(any(_same(given, one) for one in possible[key]) for key, given in value.items())


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, str) and isinstance(other, str):
        return _plain(value) == _plain(other)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
