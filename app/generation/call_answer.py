"""A model's answer to a conversation with tools: text, and the calls that it wants made. Nothing is executed here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from app.generation.answer_stream import AnswerStream
from app.protocol import Thought
from py_core.backend_errors import ContextFullError
from py_core.engine.engine import Timings
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.chat_template import Message
from py_core.tool_calls.definitions import AUTO, ChoiceMode, ToolCall, ToolChoice, ToolDefinition
from py_core.tool_calls.forms import CallForm, form_of
from py_core.tool_calls.prompt import ASKED, with_tools
from py_core.tool_calls.reader import BadCall, CallReader, FreeText, Part
from py_core.tool_calls.shape import call_shape, words_shape

_GREEDY = SamplingParams(temperature=0.0)


@dataclass(frozen=True)
class CallAnswer:
    """text: what is not a call, also `bad`, which only looks like calls. reason: as in Done."""

    text: str
    calls: tuple[ToolCall, ...]
    bad: tuple[BadCall, ...]
    reason: str
    prompt_tokens: int
    new_tokens: int


def form_of_model(model: Model) -> CallForm:
    """Return the form in which a model writes calls."""
    return form_of(model.template.source, model.tokenizer.special_tokens, model.config.own_name)


class CallStream:
    """One answer, as parts. `timings` has its costs, and why it ended."""

    def __init__(
        self, model: Model, tools: Sequence[ToolDefinition], chosen: ToolChoice = AUTO, *, max_tokens: int,
        sampling: SamplingParams = _GREEDY, is_shaped: bool = True, is_parallel: bool = True,
        allow: Collection[str] = (), first: int = 1, may_call: bool = True,
    ) -> None:  # fmt: skip
        """is_shaped: calls follow a grammar. is_parallel, allow: as in `call_shape`. first: the number of the first
        call's id. may_call: if not, the answer is text, though the model knows the tools. Raises ToolError if a tool's
        schema cannot be kept."""
        self._model = model
        self._tools = tools if chosen.mode is not ChoiceMode.none else ()
        self._form = form_of_model(model)
        shape = None
        if is_shaped:
            controls = model.tokenizer.control_tokens
            shape = call_shape(tools, chosen, self._form, controls, is_parallel=is_parallel, allow=allow)
            if not may_call:
                shape = words_shape(self._form, controls)
        schemas = {tool.name: tool.parameters for tool in self._tools if may_call}
        self._reader = CallReader(self._form, schemas, is_shaped=shape is not None, first=first)
        self.words = AnswerStream(
            model, max_tokens, replace(sampling, grammar=shape),
            end_at_loops=shape is None or chosen.mode is ChoiceMode.auto, shown=self._form.marks,
        )  # fmt: skip
        """The answer as the model writes it, with its calls."""

    @property
    def written(self) -> tuple[str, str]:
        """As AnswerStream.written."""
        return self.words.written

    @property
    def timings(self) -> Timings:
        return self.words.timings

    @property
    def length(self) -> int:
        """The number of characters that are given, or are parts of calls."""
        return self.words.length - self._reader.held

    async def parts(self, messages: Sequence[Message]) -> AsyncIterator[Part]:
        """Read a conversation, and yield text, calls, and what only looks like one. Thoughts are left out. Raises
        ContextFullError, ChatTemplateError, BackendError."""
        model = self._model
        told, entries = await with_tools(model.template, messages, self._tools)
        prompt = await model.encode_chat(told, tools=entries)
        if len(prompt) >= model.engine.context_length:
            raise ContextFullError(
                "calls.context",
                "The tools and the conversation have {length} tokens, and the model reads at most {most}. Give fewer "
                "tools, or shorten their descriptions.",
                length=len(prompt),
                most=model.engine.context_length,
            )
        sequence = model.engine.new_sequence()
        try:
            await model.engine.prefill(sequence, prompt, self.timings)
            async with aclosing(self.said(sequence, prompt)) as said:  # type: ignore[type-var]
                async for part in said:
                    if not isinstance(part, Thought):
                        yield part
        finally:
            model.engine.free(sequence)

    async def said(self, sequence: TokenSequence, prompt: list[int]) -> AsyncIterator[Part | Thought]:
        """Answer a prompt that the sequence has read. Raises BackendError."""
        async with aclosing(self.words.said(sequence, prompt)) as words:  # type: ignore[type-var]
            async for said in words:
                for part in [said] if isinstance(said, Thought) else self._reader.push(said):
                    yield part
        for part in self._reader.flush():
            yield part


def asked_with_tools(system: str, question: str, chosen: ToolChoice = AUTO) -> list[Message]:
    """Return the messages of a question. If the model may choose, the system message says when to call."""
    if chosen.mode is ChoiceMode.auto:
        system = f"{system} {ASKED}"
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


async def answer_with_calls(stream: CallStream, messages: Sequence[Message]) -> CallAnswer:
    """Return the whole answer. Raises what `CallStream.parts` does."""
    found = [part async for part in stream.parts(messages)]
    calls = tuple(part for part in found if isinstance(part, ToolCall))
    bad = tuple(part for part in found if isinstance(part, BadCall))
    text = "".join(part.text for part in found if isinstance(part, FreeText | BadCall))
    timings = stream.timings
    return CallAnswer(text, calls, bad, timings.reason, timings.prompt_tokens, timings.new_tokens)
