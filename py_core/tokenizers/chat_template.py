"""A conversation to token ids, by the template that comes with the model.

What people write must never become a control token: a message that holds "<|im_end|>" could otherwise end its own turn
and speak for someone else. So `encode_chat` finds control tokens only in the template's own text. Everything between
two of them, template text and contents alike, is encoded as one piece, because merges may cross the border between the
two; ordinary conversations thus get exactly the ids of the rendered text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.conversation_shape import Message, merge_repeats, merge_system
from py_core.tokenizers.default_template import default_template
from py_core.tokenizers.prompts import framed
from py_core.tokenizers.template_sandbox import MAX_SOURCE_CHARS, BoundedEnvironment

__all__ = ["ChatTemplate", "ChatTemplateError", "Message", "encode_chat"]

# Templates compare these fields and print keys, so we leave them unchanged and refuse special tokens in them.
_NAMED_FIELDS = frozenset(["role", "type"])
_PRIVATE_USE = range(0x100000, 0x10FFFE)
_PROBE = "5318008"  # no change of case and no trimming changes it
_WORD_BREAK = "\u200b"


class ChatTemplateError(ValueError):
    """The template cannot render these messages; the message says why."""


class ChatTemplate:
    """A model's chat template (jinja2), run in a sandbox."""

    def __init__(self, template_source: str, bos_token: str = "", eos_token: str = "") -> None:
        """Raises ChatTemplateError where the template does not parse."""
        self.source = template_source
        self._environment = BoundedEnvironment()
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._marks: tuple[Tokenizer, frozenset[str]] | None = None
        if len(template_source) > MAX_SOURCE_CHARS:
            raise ChatTemplateError(
                f"the model's chat template is {len(template_source)} characters long, more than any real one; "
                "choose another file of this model"
            )
        try:
            self._template = self._environment.from_string(template_source)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"the model's chat template is broken in line {error.lineno}: {error.message}; "
                "choose another file of this model"
            ) from None
        except Exception as error:  # jinja2 and Python's compiler fail in many ways on hostile source
            raise ChatTemplateError(f"the model's chat template cannot be used: {_reason(error)}") from None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a GGUF file; where it has none, that of the family which its special tokens belong to.

        Raises ChatTemplateError where it is no text.
        """
        source = metadata.get("tokenizer.chat_template")
        if source is None:
            source = default_template(tokenizer)
        if not isinstance(source, str):
            raise ChatTemplateError("the model's chat template is no text; choose another file of this model")

        def text(index: int | None) -> str:
            return "" if index is None else tokenizer.tokens[index]

        return cls(source, text(tokenizer.bos_id), text(tokenizer.eos_id))

    @cached_property
    def takes_system(self) -> bool:
        """Whether it prints a system message. Some refuse it, some leave it out without a word."""
        user = {"role": "user", "content": "Hi"}
        rendered = self._try([{"role": "system", "content": _PROBE}, user])
        return _PROBE in rendered if rendered is not None else self._try([user]) is None

    @cached_property
    def takes_repeats(self) -> bool:
        """Whether two messages of one role may follow each other."""
        user = {"role": "user", "content": "Hi"}
        return self._try([user, user]) is not None or self._try([user]) is None

    def marks(self, tokenizer: Tokenizer) -> frozenset[str]:
        """The user-defined tokens by which it tells who speaks. They must not come from a message either, though they
        are found in every other text. (Command R's are such, and those of Gemma in older files.)"""
        if self._marks is None or self._marks[0] is not tokenizer:
            roles = [{"role": role, "content": _PROBE} for role in ("system", "user", "assistant", "user")]
            text = self.source + (self._try(self.fitting(roles)) or "")
            looks_so = (token for token in tokenizer.special_tokens if len(token) > 2 and token[:1] in "<[{|")
            others = {token for token in looks_so if token not in tokenizer.control_tokens and token in text}
            self._marks = tokenizer, frozenset(others)
        return self._marks[1]

    def fitting(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The conversation as the template takes it: where it has no place for a system message, that stands before
        the first message of the user, and where roles must alternate, messages of one role become one."""
        if any(message.get("role") == "system" for message in messages) and not self.takes_system:
            messages = merge_system(messages)
        if any(one.get("role") == other.get("role") for one, other in pairwise(messages)) and not self.takes_repeats:
            messages = merge_repeats(messages)
        return messages

    def _try(self, messages: Sequence[Message]) -> str | None:
        try:
            return self.render(messages)
        except ChatTemplateError:
            return None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The conversation as the text that the model was trained on.

        Raises ChatTemplateError: the template refuses these messages, fails on them, or is too costly.
        """
        self._environment.restart()
        try:
            return self._environment.concat(
                self._template.root_render_func(
                    self._template.new_context(
                        {"messages": messages, "add_generation_prompt": add_generation_prompt, **self._tokens}
                    )
                )
            )
        except Exception as error:  # whatever a hostile template brings about, the user gets one kind of error
            raise ChatTemplateError(
                f"the model's chat template cannot render this conversation: {_reason(error)}"
            ) from None


def encode_chat(
    tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Message], add_generation_prompt: bool = True, *,
    bos: bool = True,
) -> list[int]:  # fmt: skip
    """Token ids of the conversation, with BOS and EOS as `framed` adds them (bos: False leaves BOS out).

    Control tokens and the template's `marks` come from the template alone, never from a message. A system message that
    the template has no place for stands before the first message of the user (`ChatTemplate.fitting`).
    Raises ChatTemplateError as `render` does, and where a role or a key holds a control token.
    """
    marks = template.marks(tokenizer)
    forbidden = [*tokenizer.control_tokens, *marks]
    for value in sorted(set(_fields(messages, named=True))):
        if any(token in value for token in forbidden):
            raise ChatTemplateError(
                f"a message's role or key, {value!r:.80}, holds a special token of the model; use a plain name"
            )
    messages = template.fitting(messages)
    rendered = template.render(messages, add_generation_prompt)
    contents = sorted(set(_fields(messages, named=False)))
    parts = _template_parts(template, messages, add_generation_prompt, rendered, contents)
    if parts is None:
        # The template changes the contents or depends on them, so its own text cannot be told apart: disarm them.
        safe = _replace_fields(messages, {content: _disarmed(forbidden, content) for content in contents})
        parts = [(template.render(safe, add_generation_prompt), True)]
    return framed(tokenizer, tokenizer.encode_parts(parts, marks), bos=bos, by_template=True)


def _template_parts(
    template: ChatTemplate, messages: Sequence[Message], add_generation_prompt: bool, rendered: str, contents: list[str]
) -> list[tuple[str, bool]] | None:
    """`rendered` cut into (text, is_template), or None where it cannot be told apart.

    The template is rendered once more with a private-use character for each content; then both renderings are walked
    together. A content may appear as it is, stripped, or as JSON; anything else gives None.
    """
    used = set(template.source).union(*contents, *_fields(messages, named=True))
    free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
    # An empty content stays empty, because templates test for it.
    mark_of = dict(zip(filter(None, contents), free, strict=False))
    if len(mark_of) < sum(map(bool, contents)):
        return None
    content_of = {mark: content for content, mark in mark_of.items()}
    try:
        marked = template.render(_replace_fields(messages, mark_of), add_generation_prompt)
    except ChatTemplateError:
        return None
    # Without any content there is nothing to split at.
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
    """How a template may print a content, the likeliest first."""
    as_json = json.dumps(content, ensure_ascii=False)[1:-1]
    return list(dict.fromkeys([content, content.strip(), content.lstrip(), content.rstrip(), as_json]))


def _disarmed(forbidden: Collection[str], content: str) -> str:
    """`content` with a zero-width space wherever a control token could begin, even after the template changes its case
    or strips it, and whatever comes after it."""
    begins = {(token[0], token[1:2]) for token in forbidden}
    if not begins:
        return content
    pattern = "|".join(f"{re.escape(first)}(?={re.escape(second)}|\\s*$)" for first, second in sorted(begins))
    # A token of one character cannot be broken up, so it is removed.
    return re.sub(
        pattern,
        lambda match: _WORD_BREAK if match[0] in forbidden else match[0] + _WORD_BREAK,
        content,
        flags=re.IGNORECASE,
    )


def _fields(value: Any, named: bool, name: str = "") -> Iterator[str]:
    """The strings in messages: keys and those that templates compare (`named`), or all the others."""
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
    """A copy of messages with every string but the named fields replaced."""
    if isinstance(value, str):
        return value if name in _NAMED_FIELDS else replacements.get(value, value)
    if isinstance(value, Mapping):
        return {key: _replace_fields(item, replacements, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_fields(item, replacements, name) for item in value]
    return value


def _reason(error: Exception) -> str:
    """The error in words, without the names of Python's classes where it has words of its own."""
    if isinstance(error, RecursionError):
        return "it nests too deep"
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    words = str(error).strip()[:300]
    return words if isinstance(error, TemplateError) and words else f"{type(error).__name__}: {words}"
