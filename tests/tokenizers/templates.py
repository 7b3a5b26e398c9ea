"""Chat templates for tests that do not await: the native renderer, with an event loop for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from app.models.template_renderer import native_renderer
from py_core.tokenizers import chat_template
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.chat_template import ChatTemplate, Message


def template_of(source: str, bos_token: str = "", eos_token: str = "") -> ChatTemplate:
    return ChatTemplate(source, native_renderer(), bos_token, eos_token)


def render(template: ChatTemplate, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
    return asyncio.run(template.render(messages, add_generation_prompt))


def encode_chat(tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message], **more: Any) -> list[int]:
    return asyncio.run(chat_template.encode_chat(tokenizer, template, messages, **more))
