"""Chat templates in the page: web/tokenizers/template_cage.js runs them in a worker of their own."""

from __future__ import annotations

from typing import Any

from pyodide.ffi import to_js

from py_core.tokenizers.template_renderer import error_of, too_slow


class BrowserTemplateRenderer:
    """A TemplateRenderer."""

    def __init__(self, cage: Any) -> None:
        """cage: a TemplateCage of web/tokenizers/template_cage.js."""
        self._cage = cage
        self.spent = 0.0

    async def run(self, request: bytes, check: bool, seconds: float) -> bytes:
        answer = await self._cage.run(to_js(request), check, 1000 * seconds)
        self.spent = answer.spent / 1000
        if hasattr(answer, "text"):
            content: bytes = answer.text.to_bytes()
            return content
        raise error_of(answer.kind, answer.words) if hasattr(answer, "words") else too_slow()
