"""Answers of the real models, eight at once, each valid by a schema of its own. In their middle the device is lost.

On a software GPU the smaller model takes 4 minutes and the larger one 15. `python build.py models 0.5b` fetches that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.cli.loading import native_grammar_host
from app.generation.grammars import VocabularyGrammars
from app.models.cache import model_path as path_of
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.webgpu.backend import load_webgpu
from py_core.engine.engine import Timings
from py_core.formats.source import FileSource
from py_core.grammar.schema import schema_grammar
from py_core.loading import BackendLoader, Model, load_model
from py_core.sampling import SamplingParams
from tests.backends.backend_pairs import NO_PAUSE
from tests.backends.dying_host import DeviceGoes, WorkersDie


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def whole(least: int, most: int, **more: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def pattern(source: str) -> dict[str, Any]:
    return {"type": "string", "pattern": source}


PLACE = {"type": "array", "prefixItems": [whole(-90, 90), whole(-180, 180)], "items": False, "minItems": 2}
TREE = {
    "$ref": "#/$defs/a",
    "$defs": {
        "a": closed({"letter": {"enum": ["a", "b"]}, "next": {"$ref": "#/$defs/b"}}, "letter"),
        "b": {"type": "array", "items": pattern("^[a-z]{1,3}$"), "maxItems": 2},
    },
}
ASKED: list[tuple[str, Any]] = [
    (
        "Who wrote Faust?",
        closed({"name": {"type": "string", "minLength": 1, "maxLength": 9}, "year": whole(1700, 1850)}, "name", "year"),
    ),
    (
        "Name three colours.",
        {"type": "array", "items": {"enum": ["red", "blue", "grün 🟢"]}, "uniqueItems": True, "minItems": 2},
    ),
    ("When was the first flight to the moon?", closed({"day": {"type": "string", "format": "date"}}, "day")),
    ("Is water wet?", {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"const": "it depends"}]}),
    ("Give me a phone number.", pattern(r"^\+[1-9][0-9]{1,2} [0-9]{3,8}$")),
    ("Where is Paris?", closed({"at": PLACE, "note": {"type": "string", "maxLength": 8}}, "at")),
    ("A tree of letters, please.", TREE),
    (
        "What costs how much?",
        {
            "type": "object", "patternProperties": {"^[a-z]{2,5}$": whole(0, 500, multipleOf=5)},
            "additionalProperties": False, "minProperties": 1, "maxProperties": 3,
        },
    ),
]  # fmt: skip
"""Questions, and schemas whose texts all end soon."""
RULES = {"greedy": SamplingParams(), "at temperature 1": SamplingParams(temperature=1.0, seed=7)}
ROOM = 300
"""More tokens than any of the texts has."""


async def open_model(path: Path, load: BackendLoader) -> Model:
    model = await load_model(FileSource(path), load, native_renderer(), context=512)
    grammars = VocabularyGrammars(model.tokenizer, model.config.vocab_size, native_grammar_host)
    model.engine.constraint_of = grammars.constraint
    return model


async def answer(model: Model, question: str, schema: Any, rules: SamplingParams) -> str:
    engine, timings = model.engine, Timings()
    sequence = engine.new_sequence()
    try:
        await engine.prefill(sequence, await model.encode_chat([{"role": "user", "content": question}]), timings)
        sampling = SamplingParams(**{**vars(rules), "grammar": schema_grammar(schema)})
        said = [token async for ids in engine.generate(sequence, ROOM, sampling, timings) for token in ids]
    finally:
        engine.free(sequence)
    assert timings.reason == "end"
    return model.tokenizer.decode(said)


async def valid_answers(model: Model, rules: SamplingParams) -> list[str]:
    """The answers to all questions, which are asked at once."""
    texts = await asyncio.gather(*(answer(model, *asked, rules) for asked in ASKED))
    for (_, schema), text in zip(ASKED, texts, strict=True):
        checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        checker.validate(json.loads(text))
    return texts


SMALL, LARGER = "smollm2-135m", "qwen2.5-coder-0.5b"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", [pytest.param(SMALL, marks=pytest.mark.all), pytest.param(LARGER, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("backend", ["numpy", "wasm", "webgpu"])
async def test_each_answer_is_valid_whatever_is_lost(
    backend: str, name: str, model_path: Path, kernel_wasm: Callable[..., Path]
) -> None:
    host = {"wasm": lambda: WorkersDie(kernel_wasm()), "webgpu": DeviceGoes, "numpy": lambda: None}[backend]()
    load: BackendLoader = load_numpy
    if isinstance(host, WorkersDie):
        load = partial(load_wasm, host)
    elif host:
        load = partial(load_webgpu, host, settings=NO_PAUSE)
    model = await open_model(model_path if name == SMALL else path_of(Path(name)), load)
    if host:
        host.lose(0)
    answers = [await valid_answers(model, RULES["greedy"])]
    for lost, rules in enumerate(RULES.values(), 1):
        if host:
            host.lose(host.calls // 2)
        answers.append(await valid_answers(model, rules))
        assert host is None or host.lost == lost
    assert answers[0] != answers[2], "the temperature counts"
    model.close()
