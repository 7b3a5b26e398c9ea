"""Runs chat templates in a sandbox, a WebAssembly module that its host can stop: they come from a stranger's file.

web/kernels/jinja is that module, the same in the page (template_renderer_browser.py) and natively
(template_renderer_wasmtime.py). It has its own memory with a maximum, gets a copy of the conversation, and returns
text. The host stops it after some seconds. Natively these are seconds of CPU time: on a machine under load a template
gets little of the CPU, so wall-clock time says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

MAX_SOURCE_CHARS = 1 << 17
"""The longest allowed source of a template, in characters; the longest of 70 published ones has 17,000."""
MAX_SECONDS = 2.0
"""The longest time for the templates' part of one prompt. A chat of 50 turns takes some milliseconds."""

BROKEN, FAILED, COSTLY = 1, 2, 3
"""The error codes of web/kernels/jinja: an invalid template, an error or a refusal, a limit exceeded."""


class TemplateError(ValueError):
    """The template gave no text. The message is half a sentence with the reason: "it nests too deep"."""


class TemplateBrokenError(TemplateError):
    """The source is no template."""


class TemplateCostlyError(TemplateError):
    """The template exceeds its limits of time or memory, or uses more than any real template."""


class TemplateRenderer(Protocol):
    """Runs one template at a time, each in its own memory."""

    spent: float
    """Seconds that the last run used of its limit: CPU time, if the host can measure it."""

    async def run(self, request: bytes, check: bool, seconds: float) -> bytes:
        """The text, in UTF-8, that the template of `encode_request` renders. check: only parse the source.

        Raises TemplateError, also if that takes longer than `seconds`.
        """
        ...


def encode_request(source: str, variables: Mapping[str, Any]) -> bytes:
    """The module's input: JSON {source, variables, now}. Raises TemplateError if a value cannot be encoded as JSON."""
    now = datetime.now().timetuple()
    try:
        text = json.dumps({"source": source, "variables": variables, "now": [*now[:8]]})
    except (TypeError, ValueError, RecursionError) as error:
        raise TemplateError(f"the conversation cannot be given to it: {error}") from None
    return text.encode("ascii")


def decode_text(content: bytes) -> str:
    """Decode the module's output; a lone surrogate is three bytes there."""
    return content.decode("utf-8", "surrogatepass")


def error_of(kind: int, words: str) -> TemplateError:
    """The error for a code that the module passed to `refuse`."""
    return {BROKEN: TemplateBrokenError, COSTLY: TemplateCostlyError}.get(kind, TemplateError)(words)


def too_slow() -> TemplateCostlyError:
    return TemplateCostlyError(f"it takes longer than {MAX_SECONDS:.0f} seconds")
