"""Turns errors of the page's JavaScript into words for a person."""

from __future__ import annotations

from typing import Any

from py_core.messages import Words, words_from


def js_words(error: Any) -> Words:
    """The words of a JsException: with its code if it is a user error (web/common/user_error.js)."""
    said: Any = getattr(error, "said", None)
    return words_from(said.to_py()) if hasattr(said, "to_py") else str(error.message)
