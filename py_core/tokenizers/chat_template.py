"""Turns a conversation into token ids, by the template that comes with the model.

Text that people write must never become a control token: otherwise a message that contains "<|im_end|>" could end its
own turn and speak for someone else. So `encode_chat` finds control tokens only in the template's own text. Everything
between two of them, template text and contents alike, is encoded as one piece, because merges may cross the border
between template and contents. Ordinary conversations thus get exactly the ids of the rendered text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from py_core.display import shown
from py_core.messages import UserError
from py_core.tokenizers.aside import encode_aside
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.conversation_shape import Message, Tool, is_plain, merge_repeats, merge_system
from py_core.tokenizers.default_template import default_template
from py_core.tokenizers.prompts import framed
from py_core.tokenizers.template_renderer import (
    MAX_SECONDS,
    MAX_SOURCE_CHARS,
    TemplateBrokenError,
    TemplateCostlyError,
    TemplateError,
    TemplateRenderer,
    decode_text,
    encode_request,
    too_slow,
)

__all__ = ["ChatTemplate", "ChatTemplateError", "Message", "Tool", "encode_chat"]

# Templates compare these fields and print keys, so we leave them unchanged and refuse special tokens in them.
_NAMED_FIELDS = frozenset(["role", "type"])
_PRIVATE_USE = range(0x100000, 0x10FFFE)
_PROBE = "5318008"  # unaffected by changes of case and by trimming
_WORD_BREAK = "\u200b"


class ChatTemplateError(UserError, ValueError):
    """The template cannot render these messages; the message says why."""


class ChatTemplateCostlyError(ChatTemplateError):
    """The template exceeds its limits of time or memory. It is not tried again with other messages."""


class ChatTemplate:
    """A model's chat template (Jinja), run by a renderer that limits its time and memory."""

    def __init__(
        self, template_source: str, renderer: TemplateRenderer, bos_token: str = "", eos_token: str = ""
    ) -> None:
        """Raises ChatTemplateError if the source is longer than any template."""
        if len(template_source) > MAX_SOURCE_CHARS:
            raise ChatTemplateError(
                "template.long",
                "The model's chat template is {length} characters long, more than any real one. Choose another file "
                "of this model.",
                length=len(template_source),
            )
        self.source = template_source
        self._renderer = renderer
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._takes_system: bool | None = None
        self._takes_repeats: bool | None = None
        self._takes_tools: bool | None = None
        self._marks: tuple[Tokenizer, frozenset[str]] | None = None
        self._left = math.inf

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer, renderer: TemplateRenderer) -> ChatTemplate:
        """The template of a GGUF file; if it has none, that of the model family with the same special tokens.

        Raises ChatTemplateError if it is not text.
        """
        source = metadata.get("tokenizer.chat_template")
        source = "" if source is None else source
        if not isinstance(source, str):
            raise ChatTemplateError(
                "template.no-text", "The model's chat template is not text. Choose another file of this model."
            )
        if not source.strip():
            source = default_template(tokenizer)

        def text(index: int | None) -> str:
            return "" if index is None else tokenizer.tokens[index]

        return cls(source, renderer, text(tokenizer.bos_id), text(tokenizer.eos_id))

    async def check(self) -> None:
        """Raises ChatTemplateError if the source is no valid template."""
        await self._run({}, check=True)

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """All renderings inside share MAX_SECONDS. Outside of it, each rendering may take as long."""
        self._left = MAX_SECONDS
        try:
            yield
        finally:
            self._left = math.inf

    async def takes_user(self) -> bool:
        """True if the template prints the user's newest message, or refuses it. A template that does neither is
        useless: the model would answer something else."""
        asked = {"role": "user", "content": _PROBE}
        before = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        rendered = [await self.attempt([asked]), await self.attempt([*before, asked])]
        return all(text is None or _PROBE in text for text in rendered)

    async def takes_system(self) -> bool:
        """True if the template prints a system message and the user's message behind it. Some templates refuse that,
        others silently leave one out."""
        if self._takes_system is None:
            self._takes_system = await self._prints("system")
        return self._takes_system

    async def takes_repeats(self) -> bool:
        """True if two messages of one role may follow each other."""
        if self._takes_repeats is None:
            self._takes_repeats = await self._prints("user")
        return self._takes_repeats

    async def takes_tools(self) -> bool:
        """True if the template prints definitions of tools, beside a system message if it takes one, and the user's
        message."""
        if self._takes_tools is None:
            name, asked = f"f{_PROBE}", _PROBE[::-1]
            parameters = {"type": "object", "properties": {}, "required": []}
            function = {"name": name, "description": "Adds", "parameters": parameters}
            messages = await self.fitting([{"role": "system", "content": "Hi"}, {"role": "user", "content": asked}])
            text = await self.attempt(messages, [{"type": "function", "function": function}])
            self._takes_tools = text is not None and name in text and asked in text
        return self._takes_tools

    async def _prints(self, role: str) -> bool:
        """True if the template prints a message of this role and a user's behind it, or always refuses the latter."""
        first, second = _PROBE, _PROBE[::-1]
        user = {"role": "user", "content": second}
        rendered = await self.attempt([{"role": role, "content": first}, user])
        return await self.attempt([user]) is None if rendered is None else first in rendered and second in rendered

    async def marks(self, tokenizer: Tokenizer) -> frozenset[str]:
        """The user-defined tokens that mark the speaker. Like control tokens, they must not come from a message, though
        they are found in every other text. (Command R has such tokens, and so has Gemma in older files.)"""
        if self._marks is None or self._marks[0] is not tokenizer:
            roles = [{"role": role, "content": _PROBE} for role in ("system", "user", "assistant", "user")]
            text = self.source + (await self.attempt(await self.fitting(roles)) or "")
            looks_so = (token for token in tokenizer.special_tokens if len(token) > 2 and token[:1] in "<[{|")
            others = {token for token in looks_so if token not in tokenizer.control_tokens and token in text}
            self._marks = tokenizer, frozenset(others)
        return self._marks[1]

    async def fitting(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The conversation in a form that the template accepts. If it does not support a system message, that is put
        before the first user message. If roles must alternate, consecutive messages of one role are merged, but no
        calls of tools and none of their results."""
        has_system = any(message.get("role") == "system" for message in messages)
        if has_system and not await self.takes_system():
            messages = merge_system(messages)
        plain = [message for message in messages if is_plain(message)]
        repeats = any(one.get("role") == other.get("role") for one, other in pairwise(plain))
        if repeats and not await self.takes_repeats():
            messages = merge_repeats(messages)
        return messages

    async def attempt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str | None:
        """As `render`, but None if the template refuses these messages. Raises ChatTemplateCostlyError."""
        try:
            return await self.render(messages, tools=tools)
        except ChatTemplateCostlyError:
            raise
        except ChatTemplateError:
            return None

    async def render(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, tools: Sequence[Tool] = ()
    ) -> str:
        """The conversation as the text that the model was trained on. The template gets a copy of the messages. tools:
        their definitions in OpenAI's form; without any, the template does not have the variable.

        Raises ChatTemplateError if the template refuses these messages, fails on them, or is too costly.
        """
        more = {"messages": messages, "add_generation_prompt": add_generation_prompt, **self._tokens}
        if tools:
            more["tools"] = tools
        return await self._run(more, check=False)

    async def _run(self, variables: Mapping[str, Any], check: bool) -> str:
        try:
            seconds = min(self._left, MAX_SECONDS)
            if seconds <= 0:
                raise too_slow()
            try:
                return decode_text(await self._renderer.run(encode_request(self.source, variables), check, seconds))
            finally:
                self._left -= self._renderer.spent
        except TemplateBrokenError as error:
            raise ChatTemplateError(
                "template.broken",
                "The model's chat template is broken {why}. Choose another file of this model.",
                why=error,
            ) from None
        except TemplateError as error:
            if isinstance(error, TemplateCostlyError):
                raise ChatTemplateCostlyError(
                    "template.costly",
                    "The model's chat template cannot render this conversation: {why}. Choose another file of this "
                    "model.",
                    why=error,
                ) from None
            raise ChatTemplateError(
                "template.failed", "The model's chat template cannot render this conversation: {why}", why=error
            ) from None


async def encode_chat(
    tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message], add_generation_prompt: bool = True, *,
    bos: bool = True, begun: Sequence[tuple[str, bool]] = (), tools: Sequence[Tool] = (),
) -> list[int]:  # fmt: skip
    """Token ids of the conversation, with BOS and EOS as `framed` adds them (bos: False leaves BOS out).

    begun: the beginning of the answer, which the model is to continue, as (text, True if special tokens are found in
    it). tools: as in `ChatTemplate.render`.

    Control tokens and the template's `marks` come from the template alone, never from a message or a tool. A system
    message that the template does not support is put before the first user message (`ChatTemplate.fitting`).
    Raises ChatTemplateError as `render` does, and if a role or a key contains a control token.
    """
    with template.bounded():
        marks = await template.marks(tokenizer)
        forbidden = [*tokenizer.control_tokens, *marks]
        for value in sorted(set(_fields([messages, tools], named=True))):
            if any(token in value for token in forbidden):
                raise ChatTemplateError(
                    "template.special-token",
                    "A message's role or key, {value}, contains a special token of the model. Use a plain name.",
                    value=shown(value),
                )
        parts = [*await _parts(template, messages, tools, add_generation_prompt, forbidden), *begun]
    return framed(tokenizer, await encode_aside(tokenizer, parts, marks), bos=bos, by_template=True)


async def _parts(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Tool], add_generation_prompt: bool,
    forbidden: Collection[str],
) -> list[tuple[str, bool]]:  # fmt: skip
    """The rendered conversation as (text, is_template)."""
    messages = await template.fitting(messages)
    rendered = await template.render(messages, add_generation_prompt, tools)
    contents = sorted(set(_fields([messages, tools], named=False)))
    parts = await _template_parts(template, messages, tools, add_generation_prompt, rendered, contents)
    if parts is None:
        # The template changes the contents or depends on them, so its own text cannot be identified: disarm the
        # contents.
        disarmed = {content: _disarmed(forbidden, content) for content in contents}
        safe, safe_tools = _replace_fields(messages, disarmed), _replace_fields(tools, disarmed)
        parts = [(await template.render(safe, add_generation_prompt, safe_tools), True)]
    return parts


async def _template_parts(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Tool], add_generation_prompt: bool,
    rendered: str, contents: list[str],
) -> list[tuple[str, bool]] | None:  # fmt: skip
    """`rendered` cut into (text, is_template), or None if the two cannot be told apart.

    The template is rendered once more with a private-use character for each content. Then both renderings are compared
    side by side. A content may appear verbatim, stripped, or as JSON; anything else gives None.
    """
    used = set(template.source).union(*contents, *_fields([messages, tools], named=True))
    free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
    # An empty content stays empty, because templates test for it.
    mark_of = dict(zip(filter(None, contents), free, strict=False))
    if len(mark_of) < sum(map(bool, contents)):
        return None
    content_of = {mark: content for content, mark in mark_of.items()}
    marked_messages, marked_tools = _replace_fields(messages, mark_of), _replace_fields(tools, mark_of)
    try:
        marked = await template.render(marked_messages, add_generation_prompt, marked_tools)
    except ChatTemplateCostlyError:
        raise
    except ChatTemplateError:
        return None
    # Without any content, there is nothing to split at.
    pieces = re.split(f"([{''.join(mark_of.values())}])", marked) if mark_of else [marked]
    parts: list[tuple[str, bool]] = []
    at = 0
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            if not rendered.startswith(piece, at):
                return None
            parts.append((piece, True))
            at += len(piece)
            continue
        following = pieces[index + 1]
        last = index + 2 == len(pieces)
        for form in _forms(content_of[piece]):
            end = at + len(form)
            if rendered.startswith(form, at) and rendered.startswith(following, end):
                if last and end + len(following) != len(rendered):
                    continue
                break
        else:
            return None
        parts.append((form, False))
        at = end
    return parts if at == len(rendered) else None


def _forms(content: str) -> list[str]:
    """The forms in which a template may print a content, the likeliest first."""
    as_json = json.dumps(content, ensure_ascii=False)[1:-1]
    return list(dict.fromkeys([content, content.strip(), content.lstrip(), content.rstrip(), as_json]))


def _disarmed(forbidden: Collection[str], content: str) -> str:
    """`content` with a zero-width space wherever a control token could begin, even if the template changes its case or
    strips it, and whatever comes after it."""
    begins = {(token[0], token[1:2]) for token in forbidden}
    if not begins:
        return content
    pattern = "|".join(f"{re.escape(first)}(?={re.escape(second)}|\\s*$)" for first, second in sorted(begins))
    # A token of one character cannot be broken up, so remove it.
    return re.sub(
        pattern,
        lambda match: _WORD_BREAK if match[0] in forbidden else match[0] + _WORD_BREAK,
        content,
        flags=re.IGNORECASE,
    )


def _fields(value: Any, named: bool, name: str = "") -> Iterator[str]:
    """The strings in messages: keys and the fields that templates compare (`named`), or all others."""
    if isinstance(value, str):
        if (name in _NAMED_FIELDS) == named:
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if named:
                yield str(key)
            yield from _fields(item, named, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _fields(item, named, name)


def _replace_fields(value: Any, replacements: Mapping[str, str], name: str = "") -> Any:
    """A copy of messages with every string replaced except in the named fields."""
    if isinstance(value, str):
        return value if name in _NAMED_FIELDS else replacements.get(value, value)
    if isinstance(value, Mapping):
        return {key: _replace_fields(item, replacements, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_fields(item, replacements, name) for item in value]
    return value
