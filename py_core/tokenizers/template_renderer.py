"""Where chat templates run: they come from a stranger's file, so in a module that ends where its host says.

web/kernels/jinja is that module, the same in the page (template_renderer_browser.py) and natively
(template_renderer_wasmtime.py). It has memory of its own with a maximum, gets a copy of the conversation, and gives
back text; the host ends it after some seconds. Natively these are seconds of the processor: a machine under load gives
a template little of it, so the clock on the wall says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

MAX_SOURCE_CHARS = 1 << 17
"""Longest source of a template; the longest of 70 published ones has 17,000."""
MAX_SECONDS = 2.0
"""Longest time for the templates' part of one prompt. A chat of 50 turns takes some milliseconds."""

BROKEN, FAILED, COSTLY = 1, 2, 3
"""What web/kernels/jinja says of a template: no template at all, an error or a refusal, beyond its bounds."""


class TemplateError(ValueError):
    """The template gave no text. The message is half a sentence that says why: "it nests too deep"."""


class TemplateBrokenError(TemplateError):
    """The source is no template."""


class TemplateCostlyError(TemplateError):
    """The template wants more time or memory than it gets, or more than any real one uses."""


class TemplateRenderer(Protocol):
    """Runs one template at a time, each in memory of its own."""

    spent: float
    """Seconds that the last run took of those that it got: of the processor, as far as the host can tell."""

    async def run(self, request: bytes, check: bool, seconds: float) -> bytes:
        """The text, in UTF-8, that the template of `encode_request` makes. check: only read the source, make nothing.

        Raises TemplateError, also where that takes longer than `seconds`.
        """
        ...


def encode_request(source: str, variables: Mapping[str, Any]) -> bytes:
    """What the module reads: JSON {source, variables, now}. Raises TemplateError where something is no JSON."""
    now = datetime.now().timetuple()
    try:
        text = json.dumps({"source": source, "variables": variables, "now": [*now[:8]]})
    except (TypeError, ValueError, RecursionError) as error:
        raise TemplateError(f"the conversation cannot be given to it: {error}") from None
    return text.encode("ascii")


def decode_text(content: bytes) -> str:
    """What the module wrote; a lone surrogate is three bytes there."""
    return content.decode("utf-8", "surrogatepass")


def error_of(kind: int, words: str) -> TemplateError:
    """The error that the module's `refuse` names."""
    return {BROKEN: TemplateBrokenError, COSTLY: TemplateCostlyError}.get(kind, TemplateError)(words)


def too_slow() -> TemplateCostlyError:
    return TemplateCostlyError(f"it takes longer than {MAX_SECONDS:.0f} seconds")
