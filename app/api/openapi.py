"""GET /openapi.json: the API in the form that OpenAPI's tools read, made of the requests' dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.api.embeddings import EmbeddingsRequest
from app.api.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    LessonRequest,
    LessonsRequest,
    Sampled,
    TokenizeRequest,
    schema_of,
)  # fmt: skip
from app.api.responses import ResponsesRequest

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "code": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


@dataclass(frozen=True)
class _Operation:
    """An address and what it does. body: the class of the request, or of the fields of its query; None if it has
    neither. answer: the type of its body."""

    method: str
    path: str
    about: str
    body: type | None = None
    answer: str = "application/json"


OPERATIONS = (
    _Operation("post", "/v1/chat/completions", "Answer a conversation", ChatRequest),
    _Operation("post", "/v1/completions", "Continue a text", CompletionRequest),
    _Operation("post", "/v1/responses", "Answer a conversation, in the newer form", ResponsesRequest),
    _Operation("post", "/v1/embeddings", "Vectors of texts", EmbeddingsRequest),
    _Operation("get", "/v1/models", "The model that runs"),
    _Operation("post", "/v1/sonata/lessons", "Teach a lesson", LessonRequest),
    _Operation("get", "/v1/sonata/lessons", "The lessons of a memory", LessonsRequest),
    _Operation("delete", "/v1/sonata/lessons", "Forget a lesson", LessonsRequest),
    _Operation("post", "/tokenize", "The tokens of a text", TokenizeRequest),
    _Operation("post", "/detokenize", "The text of tokens", DetokenizeRequest),
    _Operation("get", "/health", "How many answers run and wait"),
    _Operation("get", "/metrics", "Figures for Prometheus; over HTTP only", None, "text/plain"),
    _Operation("get", "/openapi.json", "This document"),
)


def openapi() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sonata", "version": "1", "description": "A language model, by the interface of OpenAI's."},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(one: _Operation) -> dict[str, Any]:
    kinds = [one.answer]
    if one.body is not None and issubclass(one.body, Sampled):
        kinds.append("text/event-stream")
    told: dict[str, Any] = {"summary": one.about}
    if one.body is not None and one.method == "post":
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema_of(one.body)}}}
    elif one.body is not None:
        fields = schema_of(one.body)["properties"]
        told["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    told["responses"] = {
        "200": {"description": "The answer", "content": {kind: {} for kind in kinds}},
        "default": {"description": "Why there is none", "content": {"application/json": error}},
    }
    return told
