"""Grammars of answers with calls: what they let through, and that the reader finds calls in all of it."""

from __future__ import annotations

import random
from functools import cache

import jsonschema
import numpy as np
import pytest

from app.generation.grammars import token_bytes
from py_core.grammar.kernel import GrammarKernel, OpenGrammar
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.vocabulary import CONTROL
from py_core.tool_calls.definitions import AUTO, ChoiceMode, ToolChoice, ToolError, tools_from
from py_core.tool_calls.forms import FORMS, JSON, CallForm, form_of
from py_core.tool_calls.reader import BadCall, CallReader, ToolCall, read_calls
from py_core.tool_calls.shape import call_shape
from tests.grammar.test_kernel import open_kernel
from tests.tiny.tokenizers import bpe
from tests.tool_calls.test_reader import CORPUS

TOOLS = tools_from(
    [
        {
            "name": "weather",
            "parameters": {
                "properties": {"city": {"type": "string", "description": "Its name"}, "days": {"$ref": "#/$defs/day"}},
                "required": ["city"],
                "$defs": {"day": {"type": "integer", "minimum": 1, "maximum": 9}},
            },
        },
        {
            "name": "time",
            "parameters": {
                "properties": {
                    "zone": {"type": "string", "enum": ["utc", "here"]},
                    "places": {"type": "array", "items": {"properties": {"at": {"type": "number"}}}, "maxItems": 2},
                    "exact": {"type": "boolean"},
                }
            },
        },
    ]
)
SPECIAL = sorted({mark for form in FORMS.values() for mark in form.marks if "tool_call>" not in mark or "|" in mark})
TOKENIZER = tokenizer_from_gguf(bpe(dict.fromkeys(SPECIAL, CONTROL)))
TOKENS = token_bytes(TOKENIZER)


@cache
def kernel() -> GrammarKernel:
    return open_kernel(TOKENS)


def opened(form: CallForm, chosen: ToolChoice = AUTO, is_parallel: bool = True) -> OpenGrammar:
    shape = call_shape(TOOLS, chosen, form, TOKENIZER.control_tokens, is_parallel=is_parallel)
    assert shape is not None
    return kernel().open(shape)


def passes(grammar: OpenGrammar, text: str) -> bool:
    states = grammar.along(grammar.begins, ids := TOKENIZER.encode(text, special=True))
    return len(states) > len(ids) and grammar.may_end(states[-1])


def walk(grammar: OpenGrammar, seed: int) -> str:
    """A random text of the grammar; strings and numbers end soon."""
    draw, state, ids = random.Random(seed), grammar.begins, list[int]()
    while len(ids) < 120 or not grammar.may_end(state):
        if len(ids) > 160:
            ids += grammar.closing(state) or []
            break
        bits = np.unpackbits(grammar.mask(state).view(np.uint8), count=len(TOKENS), bitorder="little")
        allowed = [
            int(one) for one in np.flatnonzero(bits) if one > 255 or 0x20 <= TOKENS[one][0] < 0x7F or bits.sum() < 9
        ]
        if not allowed or (grammar.may_end(state) and draw.random() < 0.2):
            break
        ends = [one for one in allowed if one > 255 or TOKENS[one] in b'"}])<']
        ids.append(draw.choice(ends if ends and draw.random() < 0.5 else allowed))
        state = grammar.along(state, ids[-1:])[-1]
    return TOKENIZER.decode(ids)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_what_a_shape_lets_through_are_calls_of_tools_with_valid_arguments(name: str) -> None:
    form, schemas = FORMS[name], {tool.name: dict(tool.parameters) for tool in TOOLS}
    grammar = opened(form, ToolChoice(ChoiceMode.required))
    for seed in range(6):
        text = walk(grammar, seed)
        reader = CallReader(form, schemas, is_shaped=True)
        parts = [*reader.push(text), *reader.flush()]
        assert parts, text
        for part in parts:
            assert isinstance(part, ToolCall), (text, part)
            jsonschema.validate(part.arguments, schemas[part.name] | {"additionalProperties": False})


@pytest.mark.parametrize("row", [row for row in CORPUS if row.get("shaped")], ids=lambda row: row["about"])
def test_calls_as_families_write_them_are_let_through(row: dict[str, str]) -> None:
    answer, form = row["answer"], FORMS[row["form"]]
    for chosen in (AUTO, ToolChoice(ChoiceMode.required)):
        assert passes(opened(form, chosen), answer)
    assert passes(opened(form, ToolChoice(ChoiceMode.required, "weather")), answer) == ("time" not in answer)
    assert passes(opened(form, is_parallel=False), answer) == ("time" not in answer and "[{" not in answer[:2])
    assert passes(opened(form), "It is late.\n[1] {}")
    assert not passes(opened(form, ToolChoice(ChoiceMode.required)), "It is late.")
    for other in (answer.replace("weather", "rain"), answer.replace("city", "town"), answer.replace("Bern", '<|"|>')):
        assert not passes(opened(form), other), other


def test_text_before_a_call_and_text_that_is_none() -> None:
    call = '{"name": "time", "arguments": {}}'
    hermes = opened(FORMS["hermes"])
    assert passes(hermes, f"I look.\n<tool_call>\n{call}\n</tool_call>")
    assert not passes(hermes, f"<tool_call>\n{call}\n</tool_call>\nThere.")
    assert passes(opened(JSON), call)
    for text in ("Hi", "", "``", "```python\n1\n```", "```c\n{", "`{`", "\n Hi {", "jsons"):
        assert passes(opened(JSON), text), text
    for text in (f"Hi {call}",):
        assert passes(opened(JSON), text), "further on it is text"
    shaped = CallReader(JSON, ["time"], is_shaped=True)
    parts = [*shaped.push(f"\u00a0{call}"), *shaped.flush()]
    assert not any(isinstance(part, ToolCall) for part in parts), "a text of the grammar that is not a call"
    for text in ("{}", "[1]", " {", "```json\n1\n```", "```\n{", "```jsonc", "``` x"):
        assert not passes(opened(JSON), text), text


def test_a_model_that_may_choose_can_name_a_tool_that_is_not_there() -> None:
    for form in (JSON, FORMS["llama"]):
        assert passes(opened(form), '{"name": "rain"}')
        others = ('{"name": "rain", "arguments": {}}', '{"name": "time"}', '{"name": "rain"}\n{"name": "rain"}')
        for text in others:
            assert not passes(opened(form), text), text
        assert not passes(opened(form, ToolChoice(ChoiceMode.required)), '{"name": "rain"}')
    reader = CallReader(JSON, ["time"], is_shaped=True)
    assert passes(opened(FORMS["hermes"]), '<tool_call>\n{"name": "rain"}\n</tool_call>')
    assert passes(opened(FORMS["phi"]), '<|tool_call|>[{"name": "rain"}]<|/tool_call|>')
    (bad,) = [*reader.push('```json\n{"name": "rain"}\n```'), *reader.flush()]
    assert isinstance(bad, BadCall)
    assert bad.tool == "rain"
    assert read_calls(JSON, ["time"], '{"name": "Anna"}')[2] == [], "in an answer without a shape it may be anything"


def test_a_schema_that_cannot_be_kept_is_named() -> None:
    hard = {"properties": {"a": {"items": {"type": "string", "pattern": "(a)\\1"}}}}
    tools = tools_from([{"name": "good"}, {"name": "hard", "parameters": hard}])
    for name in sorted(FORMS):
        with pytest.raises(ToolError, match=r"the tool hard .*#/properties/a/items/pattern: ") as error:
            call_shape(tools, AUTO, FORMS[name])
        assert "$defs" not in str(error.value)
        assert call_shape(tools, AUTO, FORMS[name], allow=["pattern"]) is not None
    some = tools_from([{"name": "some", "parameters": {"anyOf": [{"required": ["a"]}], "properties": {"a": {}}}}])
    assert call_shape(some, AUTO, JSON) is not None
    with pytest.raises(ToolError, match=r"the tool some .*#/anyOf: not supported"):
        call_shape(some, AUTO, FORMS["lfm2"])
    assert call_shape(TOOLS, ToolChoice(ChoiceMode.none), JSON) is None
    assert call_shape(TOOLS, AUTO, JSON) is call_shape(TOOLS, AUTO, JSON)


def test_templates_tell_their_form() -> None:
    for template, name in (
        ("<tools></tools> <tool_call>", "hermes"), ("<tool_call><function=x>", "xml"), ("[TOOL_CALLS]", "mistral"),
        ("[TOOL_CALLS] [ARGS]", "mistral-named"), ("<|tool|><|tool_call|>", "phi"), ("ipython", "llama"),
        ("[func_name1(params_name1=params_value1)]", "python"), ("<|tool_call>call:", "gemma4"),
        ("{{ messages }}", "json"), ("<start_function_call>", "function-gemma"), ("<|tool_call_start|>", "lfm2"),
    ):  # fmt: skip
        assert form_of(template).name == name
    assert form_of("<tool_call>", name="Qwen2.5 Coder 0.5B Instruct AWQ") is JSON
    assert form_of("<|tool|>", ["<|tool_call|>"]).name == "phi"


def test_tags_that_are_special_tokens_are_shown_to_the_reader() -> None:
    ids = TOKENIZER.encode("<|tool_call_start|>[time()]<|tool_call_end|>", special=True)
    stream = TOKENIZER.stream(skip_special=True, shown=FORMS["lfm2"].marks)
    assert "".join(map(stream.push, ids)) == "<|tool_call_start|>[time()]<|tool_call_end|>"
    stream = TOKENIZER.stream(skip_special=True, shown=FORMS["phi"].marks)
    assert "".join(map(stream.push, ids)) == "[time()]"
