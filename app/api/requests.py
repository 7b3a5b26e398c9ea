"""The requests that the API answers, read strictly from JSON.

A field that is not there or null has its usual value. Fields that nobody here knows are left out, since clients send
more of them each year; those that would change the answer, and cannot be kept, are refused.
"""

from __future__ import annotations

import inspect
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeVar

from app.api.errors import ApiError
from app.generation.grammars import shape_of
from app.tools.model_tool import ToolFailure
from app.tools.shapes import Shape, hints_of
from app.tools.shapes import shape_of as annotation_shape
from py_core.display import one_line
from py_core.engine.turns import Priority
from py_core.grammar.expressions import Grammar, GrammarError
from py_core.messages import UserError
from py_core.sampling import MOST_BIASES, SamplingParams
from py_core.tokenizers.chat_template import Message
from py_core.tool_calls.definitions import AUTO, ToolChoice, ToolDefinition, choice_from, tools_from

MOST_CHOICES = 8
MOST_STOPS = 16
MOST_LIKELIEST = 20
"""The most tokens whose probabilities come with each token's."""
MOST_BIAS = 100.0
_ROLES = {"developer": "system", "function": "tool"}
_REFUSED = {
    "audio": "sound", "modalities": "other modalities than text", "functions": "`functions`: give `tools`",
    "function_call": "`function_call`: give `tool_choice`", "web_search_options": "a search of the web",
}  # fmt: skip
"""Fields that would change the answer."""

Request = TypeVar("Request")


@dataclass(frozen=True)
class StreamOptions:
    include_usage: bool = False


@dataclass(frozen=True)
class Sampled:
    """The fields that requests for text share; the defaults are those of Sonata's own chat: the likeliest tokens."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: int = 1
    max_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: str | list[str] = field(default_factory=list)
    logit_bias: dict[str, float] = field(default_factory=dict)
    service_tier: str = "auto"

    @property
    def priority(self) -> Priority:
        """Return the urgency: answers of the tier "flex" wait while others are made."""
        return Priority.BACKGROUND if self.service_tier == "flex" else Priority.INTERACTIVE

    @property
    def likeliest(self) -> int | None:
        """Return how many probabilities come with each token's, None if none are wanted."""
        return None

    def sampling(self, shape: Grammar | None, vocab_size: int) -> list[SamplingParams]:
        """Return the way of drawing of each answer; they differ by their seeds. Raises ApiError."""
        seed = secrets.randbits(32) if self.seed is None else self.seed
        try:
            first = SamplingParams(
                self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty, self.presence_penalty,
                self.frequency_penalty, seed=seed % 2**32, grammar=shape, biases=_biases(self.logit_bias, vocab_size),
                likeliest=self.likeliest,
            )  # fmt: skip
        except UserError as error:
            raise ApiError(str(error), param=str(error).split()[0]) from None
        return [replace(first, seed=(first.seed + at) % 2**32) for at in range(self.n)]

    @property
    def stops(self) -> list[str]:
        """Return the texts that end an answer."""
        return [self.stop] if isinstance(self.stop, str) else self.stop


@dataclass(frozen=True)
class SonataFields:
    """The fields that only Sonata has. memory: the name of an open memory, whose lessons answer."""

    memory: str = ""


@dataclass(frozen=True)
class ChatRequest(Sampled):
    """A request of /v1/chat/completions."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    max_completion_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[Any] = field(default_factory=list)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    sonata: SonataFields = SonataFields()
    logprobs: bool = False
    top_logprobs: int = 0

    @property
    def likeliest(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def most_tokens(self) -> int:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def conversation(self) -> list[Message]:
        """Return the messages as templates take them. Raises ApiError."""
        if not self.messages:
            raise ApiError("There are no messages: give at least one, of the role user.", param="messages")
        return [_message(one, f"messages[{at}]") for at, one in enumerate(self.messages)]

    def shape(self) -> Grammar | None:
        """Return the grammar of the answer's form. Raises ApiError."""
        given = self.response_format or {"type": "text"}
        match given.get("type"):
            case "text":
                return None
            case "json_object":
                schema: Any = {"type": "object"}
            case "json_schema" if isinstance(given.get("json_schema"), Mapping):
                schema = given["json_schema"].get("schema", {})
            case "regex" if isinstance(given.get("regex"), str):
                schema = None
            case _:
                raise ApiError(
                    'response_format has the type "text", "json_object", "json_schema" with `json_schema`, or "regex" '
                    "with `regex`.",
                    param="response_format",
                )
        try:
            return shape_of(None if schema is None else json.dumps(schema), None, given.get("regex"))
        except (GrammarError, ValueError, RecursionError) as error:
            raise ApiError(str(error), param="response_format") from None

    def callable_tools(self) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
        """Return the tools and the choice. Raises ApiError."""
        try:
            tools = tools_from(self.tools) if self.tools else ()
            return tools, choice_from(self.tool_choice, tools) if self.tool_choice else AUTO
        except UserError as error:
            raise ApiError(str(error), param="tools") from None


@dataclass(frozen=True)
class CompletionRequest(Sampled):
    """A request of /v1/completions. prompt: a text, or token ids."""

    prompt: str | list[str] | list[int] = ""
    echo: bool = False
    max_tokens: int = 16
    logprobs: int | None = None

    @property
    def likeliest(self) -> int | None:
        return self.logprobs


@dataclass(frozen=True)
class LessonRequest:
    """A request of /v1/sonata/lessons. memory: the name of an open one."""

    memory: str = ""
    question: str = ""
    answer: str = ""


@dataclass(frozen=True)
class LessonsRequest:
    """A request that lists the lessons of a memory, or deletes the one with this id."""

    memory: str = ""
    id: str = ""


@dataclass(frozen=True)
class TokenizeRequest:
    """A request of /tokenize. content or prompt: the text. add_special: with the tokens that begin a text."""

    content: str | None = None
    prompt: str | None = None
    add_special: bool = False


@dataclass(frozen=True)
class DetokenizeRequest:
    """A request of /detokenize."""

    tokens: list[int] = field(default_factory=list)


def read(kind: type[Request], data: Any) -> Request:
    """Read a request. Raises ApiError."""
    if not isinstance(data, Mapping):
        raise ApiError("The body is no object of JSON: send one.")
    for name, what in _REFUSED.items():
        if data.get(name) not in (None, False, {}, [], 0):
            raise ApiError(f"This server has no {what}: leave `{name}` out.", param=name)
    values, shapes = {}, _shapes(kind)  # type: ignore[arg-type]  # a class can be hashed
    for name, value in data.items():
        if value is not None and name in shapes:
            try:
                values[name] = shapes[name].read(value, name)
            except (ToolFailure, RecursionError) as failure:
                raise ApiError(str(failure).replace("The argument", "The field"), param=name) from None
    request = kind(**values)
    if isinstance(request, Sampled):
        _check(request)
    return request


def schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a request."""
    properties = {name: {"anyOf": [shape.schema, {"type": "null"}]} for name, shape in _shapes(kind).items()}
    return {"type": "object", "description": inspect.getdoc(kind) or "", "properties": properties}


@cache
def _shapes(kind: type) -> dict[str, Shape]:
    hints = hints_of(kind, kind.__name__)
    return {one.name: _lenient(annotation_shape(hints[one.name], one.name)) for one in fields(kind)}


def _lenient(shape: Shape) -> Shape:
    """Return the shape of an object with fields that leaves other fields out, as the request itself does."""
    if not (known := shape.schema.get("properties")):
        return shape

    def read_known(value: Any, place: str) -> Any:
        if isinstance(value, Mapping):
            value = {key: one for key, one in value.items() if key in known and one is not None}
        return shape.read(value, place)

    return Shape({**shape.schema, "additionalProperties": True}, read_known)


def _check(request: Sampled) -> None:
    most_tokens = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    limits = [("n", 1, MOST_CHOICES), *((name, 1, 2**31) for name in most_tokens)]
    limits += [(name, 0, MOST_LIKELIEST) for name in ("logprobs", "top_logprobs")]
    for name, least, most in limits:
        value = getattr(request, name, None)
        if value is not None and not least <= value <= most:
            raise ApiError(f"`{name}` is {value}: it must be from {least:,} to {most:,}.", param=name)
    stops = request.stops
    if len(stops) > MOST_STOPS or not all(stops):
        raise ApiError(f"`stop` has at most {MOST_STOPS} texts, and none is empty.", param="stop")
    if isinstance(request, ChatRequest) and request.top_logprobs and not request.logprobs:
        raise ApiError("`top_logprobs` comes with probabilities: set `logprobs` to true, too.", param="top_logprobs")
    if isinstance(request, CompletionRequest) and request.echo and request.logprobs is not None:
        raise ApiError("The prompt's tokens have no probabilities here: leave `echo` or `logprobs` out.", param="echo")


def _biases(given: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Return biases by the tokens' ids. Raises ApiError."""
    if len(given) > MOST_BIASES:
        raise ApiError(
            f"`logit_bias` has {len(given):,} tokens, but may have at most {MOST_BIASES:,}.", param="logit_bias"
        )
    found = dict[int, float]()
    for name, bias in given.items():
        token = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else vocab_size
        if token >= vocab_size or not -MOST_BIAS <= bias <= MOST_BIAS:
            raise ApiError(
                f"`logit_bias` maps ids of tokens, below {vocab_size:,}, to numbers from {-MOST_BIAS:.0f} to "
                f"{MOST_BIAS:.0f}: {one_line(name)[:20]} is not such an entry.",
                param="logit_bias",
            )
        found[token] = float(bias)
    return tuple(found.items())


def _message(given: Mapping[str, Any], place: str) -> Message:
    role = given.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool", "function"):
        raise ApiError(f"{place}.role is system, developer, user, assistant or tool.", param=f"{place}.role")
    message: dict[str, Any] = {"role": _ROLES.get(role, role), "content": _content(given.get("content"), place, role)}
    for name in ("name", "tool_call_id"):
        if isinstance(given.get(name), str):
            message[name] = given[name]
    if calls := given.get("tool_calls"):
        if role != "assistant" or not _are_calls(calls):
            raise ApiError(
                f"{place}.tool_calls is a list of {{id, type, function: {{name, arguments}}}} of the assistant.",
                param=f"{place}.tool_calls",
            )
        message["tool_calls"] = calls
    return message


def _content(content: Any, place: str, role: str) -> str:
    if content is None and role == "assistant":
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not all(isinstance(part, Mapping) for part in content):
        raise ApiError(f"{place}.content is a text, or a list of parts.", param=f"{place}.content")
    texts = []
    for part in content:
        if part.get("type") not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            kind = re.sub(r"\W", "", str(part.get("type")))[:20]
            raise ApiError(
                f"{place} has a part of the type {kind or 'nothing'}: this model reads text only. Leave it out.",
                param=f"{place}.content",
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _are_calls(calls: Any) -> bool:
    def is_call(one: Any) -> bool:
        function = one.get("function") if isinstance(one, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return False
        try:
            return isinstance(json.loads(function.get("arguments") or "{}"), dict)
        except (TypeError, ValueError, RecursionError):
            return False

    return isinstance(calls, list) and all(map(is_call, calls))
