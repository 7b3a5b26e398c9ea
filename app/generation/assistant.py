"""One conversation turn from text to text: prompt, generate, record.

Every prompt of a conversation begins with the content of the last one, so that the engine reads only what is new. The
system message is the same for all agents, and an agent's instruction stands at the beginning of the message that it
answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from app.files.material import Material
from app.generation.answer_adapters import AnswerAdapters
from app.generation.answer_settings import AnswerSettings, kept_from_loops
from app.generation.assistant_adapters import WithAdapters
from app.generation.grammars import behind_thought
from app.generation.learned_answer import BEYOND, LEARNED_SAMPLING, AnswerHead, ids_of_learned, longest_learned
from app.generation.partial_answer import PartialAnswer, begun_again
from app.generation.prompt_reading import read_prompt
from app.generation.prompt_window import PromptWindow
from app.generation.stop_token import StopToken
from app.generation.text_stream import TextStream
from app.protocol import AnswerEvent, Canvas, Context, Delta, Done, Reading, Replacement, Thought
from py_core.adapters.lora import LoraAdapter
from py_core.backend_errors import BackendError, ContextFullError
from py_core.engine.engine import Timings, shared_length
from py_core.engine.page_keeping import PageShelf
from py_core.learning.reading import answer_in, fact_of, reading_message
from py_core.loading import Model
from py_core.messages import UserError
from py_core.paging.page_table import PAGE
from py_core.routing.agents import Agent
from py_core.sampling import SamplingParams
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.chat_template import Message
from py_core.tokenizers.thinking import ThoughtSplitter, opens_thought, split_thought

if TYPE_CHECKING:
    from app.files.analysis import Analysis
    from app.generation.tool_loop import ToolUse

# A small model puts wrong words close behind right ones: drawing at random, even at temperature 0.2, loses facts that
# the likeliest token has (docs/decisions/0005).
CHAT_SAMPLING = SamplingParams(temperature=0.0)

MAX_TOKENS = 1024
"""The most tokens of an answer. Small models sometimes do not find an end."""

SYSTEM_PROMPT = "You are a helpful AI assistant named Sonata."
"""The system prompt of every conversation. Without a system prompt, some templates insert the name of the model's
maker."""

_BROUGHT_AHEAD = 2 * PAGE
"""Tokens that are run before a message comes: those after the last whole page, and a few that differ."""

_LEAST_ANSWER = 64
"""Tokens kept free for the answer: older turns are left out of the prompt until this number is free."""


class EmptyMessageError(UserError, ValueError):
    """There is nothing to answer."""


def user_message(text: str, agent: Agent | None = None) -> Message:
    """Return the user's message as the model reads it: after the instruction of the agent that answers."""
    if agent is None or agent.system_prompt == SYSTEM_PROMPT:
        return {"role": "user", "content": text}
    return {"role": "user", "content": f"{agent.system_prompt}\n\n{text}"}


def assistant_message(text: str) -> Message:
    return {"role": "assistant", "content": text}


class Assistant(WithAdapters):
    """A conversation with one model. Only one `respond` runs at a time."""

    def __init__(
        self, model: Model, sampling: SamplingParams | None = None, max_tokens: int = MAX_TOKENS,
        adapters: AnswerAdapters | None = None,
    ) -> None:  # fmt: skip
        """sampling: for every answer, as it is; without it `usual_sampling`. adapters: of the model, if other
        conversations use it too."""
        super().__init__(adapters or AnswerAdapters(model.engine))
        self.model = model
        self.messages: list[Message] = []
        self._sampling, self._max_tokens = sampling, max_tokens
        self._sequence = model.engine.new_sequence()
        self._alone: TokenSequence | None = None
        """The sequence for answers of lessons, which the model gives without having read the conversation."""
        self.sequence = self._sequence
        """The sequence of the last answer: what the model has read for it, and said."""
        limit = model.engine.context_length - min(_LEAST_ANSWER, max_tokens)
        self._limit = limit
        self._window = PromptWindow(model, SYSTEM_PROMPT, limit)
        self._settings = AnswerSettings()
        self._forgotten = 0
        self._open: PartialAnswer | None = None
        """The last answer, which `go_on` continues."""
        self.context: Context | None = None
        """The parts of the conversation's last prompt."""
        self.shelf: PageShelf | None = None
        """Keeps what the model has read of the conversation, if it is kept."""
        self._stop = StopToken()
        """Stops the running answer, or stopped the last one."""
        self._bringing: asyncio.Task[None] | None = None

    async def respond(
        self, text: str, agent: Agent | None = None, *, before: Sequence[Message] | None = None,
        sampling: SamplingParams | None = None, heads: Sequence[AnswerHead] = (), taught: str | None = None,
        material: Material | None = None, tools: ToolUse | None = None, stop: StopToken | None = None,
    ) -> AsyncIterator[AnswerEvent]:  # fmt: skip
        """Stream the answer to a message. The text joins the conversation; of a stopped answer, the part that was said.

        agent: answers (its instruction, sampling and longest answer); the plain assistant if none.
        before: what the message follows, instead of all that was said so far; of that the model reads what is new.
        sampling: draw the answer in this way.
        heads: of a lesson that answers (LearningService.recall): as it was learned, without the conversation before,
        without the chosen adapter, and always with the likeliest token. taught: the lesson's answer; if the model
        departs from it, the rest of it is given as text.
        material: of attached files. The model reads it with the message; it does not join the conversation.
        tools: the model may call these; the calls and their results join the conversation, too.
        stop: ends the answer, as `stop` does.
        Raises EmptyMessageError, ContextFullError (a message too long for the model) or BackendError. The part of the
        answer that was seen by then stays in the conversation; without an answer it is as it was before.
        """
        if not text.strip():
            raise EmptyMessageError("chat.empty-message", "The message is empty. Write something first.")
        self._stop = stop or StopToken()
        await self._leave_off()
        messages = [*(self.messages if before is None else before), user_message(text, agent)]
        sampling, max_tokens = self._manner(agent, sampling)
        engine, sequence = self.model.engine, self._sequence
        if heads:
            max_tokens = min(max_tokens, longest_learned(heads))
            window = PromptWindow(self.model, SYSTEM_PROMPT, engine.context_length - max_tokens)
            prompt, _ = await window.fit([messages[-1]], 0)
            forgotten = self._forgotten
            sequence = self._alone = self._alone or engine.new_sequence()
        else:
            opening, asked = (material.opening, material.asked(text)) if material else ("", text)
            reads = [*messages[:-1], user_message(asked, agent)]
            if tools is not None:
                file = material.tokens if material else 0
                called = self._say_with_tools(tools, messages, reads, opening, sampling, max_tokens, file)
                async with aclosing(called) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
                return
            prompt, forgotten = await self._window.fit(reads, self._left_out_of(messages), opening)
            self.context = self._window.context(prompt, reads, forgotten, material.tokens if material else 0)
        said = self._say(sequence, prompt, messages, forgotten, sampling, max_tokens, heads, taught=taught)
        async with aclosing(said) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    def _manner(self, agent: Agent | None, sampling: SamplingParams | None) -> tuple[SamplingParams, int]:
        """Return how an agent's answer is drawn, and its most tokens."""
        sampling = sampling or self.usual_sampling(agent)
        max_tokens = min(agent.max_tokens, self._max_tokens) if agent else self._max_tokens
        longest = min(max_tokens, self._settings.longest or max_tokens)
        return sampling, longest

    def usual_sampling(self, agent: Agent | None) -> SamplingParams:
        """Return how tokens are drawn if nobody says otherwise: as given for every answer, as the user has set it, or
        as the agent does."""
        if self._sampling is not None:
            return self._sampling
        usual = self._settings.sampling or (agent.sampling if agent else CHAT_SAMPLING)
        return kept_from_loops(usual, self.model.graph.parameters)

    @property
    def has_shape(self) -> bool:
        """True if all answers have a shape."""
        return self._sampling is not None and self._sampling.grammar is not None

    async def is_shaped(self, text: str) -> bool:
        """Return True if a text that the model does not draw may be an answer: it has the shape of all answers, if they
        have one. Raises GrammarError."""
        shape = self._sampling.grammar if self._sampling else None
        return shape is None or await self.model.engine.is_shaped(text, shape)

    async def go_on(
        self, text: str, answer: str, thought: str = "", agent: Agent | None = None, *, before: Sequence[Message],
        sampling: SamplingParams | None = None, material: Material | None = None, stop: StopToken | None = None,
    ) -> AsyncIterator[AnswerEvent]:  # fmt: skip
        """Stream the rest of an answer that did not come to its end. Done has all of its text.

        text: the message; answer, thought: what was said to it; the rest as in `respond`. It continues with exactly the
        tokens that were said, if the model still has them. Raises ContextFullError, BackendError.
        """
        self._stop = stop or StopToken()
        await self._leave_off()
        messages = [*before, user_message(text, agent)]
        sampling, max_tokens = self._manner(agent, sampling)
        opening, asked = (material.opening, material.asked(text)) if material else ("", text)
        reads = [*messages[:-1], user_message(asked, agent)]
        known = self._open if self._open and self._open.is_of(messages, answer, thought) else None
        if known is None or len(known.tokens) + _LEAST_ANSWER > self.model.engine.context_length:
            first = self._left_out_of(messages)
            known = await begun_again(self.model, self._window, reads, first, opening, answer, thought)
        prompt, forgotten = list(known.tokens), known.forgotten
        self.context = self._window.context(prompt, reads, forgotten, material.tokens if material else 0)
        saying = self._say(self._sequence, prompt, messages, forgotten, sampling, max_tokens, (), known)
        async with aclosing(saying) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def analyse(
        self, text: str, analysis: Analysis, *, before: Sequence[Message] | None = None,
        sampling: SamplingParams | None = None, stop: StopToken | None = None,
    ) -> AsyncIterator[AnswerEvent]:  # fmt: skip
        """Stream the code that answers a question about a table; a part of it is given. The model reads nothing of the
        conversation, which message and answer join. The rest: as in `respond`."""
        self._stop = stop or StopToken()
        await self._leave_off()
        messages = [*(self.messages if before is None else before), user_message(text)]
        sampling, max_tokens = sampling or self._sampling or CHAT_SAMPLING, self._manner(None, None)[1]
        reads = [user_message(analysis.asked(text))]
        known = await begun_again(self.model, self._window, reads, 0, "", analysis.begun, "")
        self.context = self._window.context(known.tokens, reads, 0)
        yield Delta(analysis.begun)
        sequence = self._alone = self._alone or self.model.engine.new_sequence()
        prompt, forgotten = list(known.tokens), self._forgotten
        saying = self._say(sequence, prompt, messages, forgotten, sampling, max_tokens, known=known, analysis=analysis)
        async with aclosing(saying) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def _say(
        self, sequence: TokenSequence, prompt: list[int], messages: list[Message], forgotten: int,
        sampling: SamplingParams, max_tokens: int, heads: Sequence[AnswerHead] = (), known: PartialAnswer | None = None,
        taught: str | None = None, analysis: Analysis | None = None,
    ) -> AsyncIterator[AnswerEvent]:  # fmt: skip
        """Read a prompt and answer, or continue the answer with which it ends. taught: as in `respond`. analysis: says
        where the answer ends, and how."""
        stop = self._stop
        if stop.is_stopped:
            yield Done("stopped")
            return
        engine, timings = self.model.engine, Timings()
        self.sequence = sequence
        self._answers_with = self.adapter.name if self.adapter and not heads else ""
        engine.use_adapter(sequence, await self.adapter_number(lesson=bool(heads)))
        engine.use_head_adapter(sequence, heads[0].number if heads else 0)
        async with aclosing(self._reading(sequence, prompt, timings)) as reading:  # type: ignore[type-var]
            async for progress in reading:
                yield progress
        if stop.is_stopped:
            yield Done("stopped")
            return
        begins = known.start if known else len(prompt)
        ids = ids_of_learned(engine, sequence, heads, max_tokens, timings) if heads else None
        thinks = opens_thought(self.model.tokenizer, prompt[:begins])
        shape = sampling.grammar
        if shape and thinks:
            sampling = replace(sampling, grammar=behind_thought(shape, self.model.tokenizer))
        stream = TextStream(
            self.model, sequence, max_tokens, sampling, timings, end_at_loops=shape is None, ids=ids,
            begun=prompt[begins:], text=known.text if known else None,
        )  # fmt: skip
        splitter, begin, thought_until = ThoughtSplitter(thinks), time.perf_counter(), 0.0
        splitter.go_on(stream.text)
        whole: str | None = None  # the text of a lesson from which the model has departed
        shown = analysis.begun if analysis is not None else ""
        try:
            async with aclosing(stream.pieces()) as pieces:  # type: ignore[type-var]
                async for text_piece in pieces:
                    if analysis is not None:
                        if (whole := analysis.whole(stream.text, is_over=False)) is not None:
                            break
                        text_piece = analysis.settled(stream.text)[len(shown) :]
                    if taught is not None and not taught.startswith(stream.text.lstrip()):
                        whole = taught
                        break
                    shown = f"{shown}{text_piece}" if analysis is not None else stream.text.lstrip()
                    for piece in splitter.push(text_piece):
                        if piece.is_thought:
                            thought_until = time.perf_counter()
                        yield Thought(piece.text) if piece.is_thought else Delta(piece.text)
                    if sequence.canvas:
                        yield Canvas(self._texts(sequence.canvas))
                    if stop.is_stopped and timings.reason not in ("end", "loop"):
                        timings.reason = "stopped"
                        break
            if whole is None and timings.reason != "loop":
                for piece in splitter.flush():
                    yield Thought(piece.text) if piece.is_thought else Delta(piece.text)
            if taught is not None and timings.reason in ("end", "loop"):
                whole = taught  # the model may have ended before
            if analysis is not None and whole is None and timings.reason in ("end", "loop"):
                whole = analysis.whole(stream.text, is_over=True)
            if whole is not None:
                timings.reason = "end"
                if rest := whole[len(shown) :]:
                    yield Delta(rest)
        finally:
            # The user has seen this text, so it belongs to the chat, even if the caller stopped or the device was lost.
            thought, answer = split_thought(stream.text, thinks) if whole is None else ("", whole)
            if stream.text or timings.reason == "end":
                self.messages = [*messages, assistant_message(answer)]
                self._forgotten = forgotten
                self._open = PartialAnswer(
                    tuple(sequence.tokens), begins, forgotten, sequence, tuple(messages), answer, thought
                )
        if timings.reason == "loop" or known is not None:
            yield Replacement(answer, thought)
        done = done_of(timings, answer)
        seconds = thought_until - begin if thought_until else 0.0
        yield replace(
            done, forgotten_turns=forgotten, thought=thought, thought_seconds=seconds, adapter=self._answers_with
        )

    def _texts(self, canvas: Sequence[int | None]) -> list[str | None]:
        decode = self.model.tokenizer.decode
        return [None if token is None else decode([token], skip_special=True) for token in canvas]

    async def _say_with_tools(
        self, tools: ToolUse, messages: list[Message], reads: list[Message], opening: str, sampling: SamplingParams,
        max_tokens: int, file: int,
    ) -> AsyncIterator[AnswerEvent]:  # fmt: skip
        """messages: what joins the conversation. reads: what the model reads instead. file: tokens of files in it."""
        from app.generation.tool_loop import ToolLoop  # late: few answers have tools

        if self._stop.is_stopped:
            yield Done("stopped")
            return
        sequence = self.sequence = self._sequence
        self._answers_with = self.adapter.name if self.adapter else ""
        self.model.engine.use_adapter(sequence, await self.adapter_number(lesson=False))
        self.model.engine.use_head_adapter(sequence, 0)
        loop = ToolLoop(self.model, self._window, sequence, tools, sampling, max_tokens, self._stop, self.shelf)
        try:
            saying = loop.events(reads, self._left_out_of(messages), opening, file)
            async with aclosing(saying) as events:  # type: ignore[type-var]
                async for event in events:
                    if loop.context is not None:
                        self.context = loop.context
                    yield replace(event, adapter=self._answers_with) if isinstance(event, Done) else event
        finally:
            if loop.said:
                self.messages = [*messages, *loop.said]
                self._forgotten, self._open = loop.forgotten, None

    async def read(
        self, text: str, facts: Sequence[tuple[str, str]], reader: LoraAdapter, stop: StopToken | None = None
    ) -> tuple[int, Done] | None:
        """Let the model read facts, (question, answer) each, with an adapter that was trained for that, and answer a
        message from them. Returns the number of the fact whose answer it gives, word by word. `give` says it.

        Returns None if it says something else, or was stopped; the model ends at the first word that is in no fact.
        Like a lesson's answer it is given without the conversation before, and is always the likeliest. Raises
        BackendError, ContextFullError.
        """
        stop = self._stop = stop or StopToken()
        engine, answers = self.model.engine, [answer for _, answer in facts]
        longest = max(len(self.model.tokenizer.encode(answer)) for answer in answers) + BEYOND
        window = PromptWindow(self.model, SYSTEM_PROMPT, engine.context_length - longest)
        message = user_message(reading_message(text, [fact_of(*fact) for fact in facts]))
        prompt, _ = await window.fit([message], 0)
        sequence = self._alone = self._alone or engine.new_sequence()
        timings = Timings()
        engine.use_adapter(sequence, await self.adapters.number(self.adapters.with_learned(reader) or reader))
        engine.use_head_adapter(sequence, 0)
        async with aclosing(self._reading(sequence, prompt, timings)) as reading:  # type: ignore[type-var]
            async for _ in reading:
                pass
        if stop.is_stopped:
            return None
        stream = TextStream(self.model, sequence, longest, LEARNED_SAMPLING, timings)
        async with aclosing(stream.pieces()) as pieces:  # type: ignore[type-var]
            async for _ in pieces:
                if stop.is_stopped or answer_in(stream.text, answers, whole=False) is None:
                    return None
        found = answer_in(stream.text, answers) if timings.reason == "end" else None
        if found is None:
            return None
        self.sequence = sequence
        return found, done_of(timings, answers[found])

    async def give(self, text: str, done: Done, before: Sequence[Message] | None = None) -> AsyncIterator[AnswerEvent]:
        """Answer a message with what `read` found. before: as in `respond`."""
        said = self.messages if before is None else before
        self.messages = [*said, user_message(text), assistant_message(done.text)]
        yield Delta(done.text)
        yield done

    def use_settings(self, settings: AnswerSettings) -> None:
        """Answer as the user wants, from the next message on. Answers of lessons stay as they were learned."""
        if settings.instructions != self._settings.instructions:
            system = "\n".join(filter(None, (SYSTEM_PROMPT, settings.instructions)))
            self._window = PromptWindow(self.model, system, self._limit)
        self._settings = settings

    def stop(self) -> None:
        """End the running answer after its present tokens."""
        self._stop.stop()

    def go_to(self, messages: Sequence[Message]) -> None:
        """Continue another branch of the conversation. What it shares with the branch before is not read again."""
        self._forgotten = self._left_out_of(messages)
        self.messages = list(messages)

    def _left_out_of(self, messages: Sequence[Message]) -> int:
        """Return how many of these messages the earlier prompts left out."""
        left_out = self._forgotten
        return left_out if list(messages[:left_out]) == self.messages[:left_out] else 0

    def reset(self, messages: Sequence[Message] = ()) -> None:
        """Start a new conversation, or continue the one with these messages. The model forgets the messages before."""
        if self._bringing is not None:
            self._bringing.cancel()
        self.messages = list(messages)
        self._forgotten = 0
        for sequence in self._sequences:
            self.model.engine.truncate(sequence, 0)

    async def keep_pages(self) -> None:
        """Put what the model has read of the conversation on the shelf, while the device is idle."""
        if self.shelf is not None:
            await self.model.engine.pages.keep(self._sequence, self.shelf)

    def bring_back(self) -> asyncio.Task[None]:
        """Bring what the model has read of the conversation from the shelf back to the model, before the next message
        comes. What is not on the shelf is not read. Ends if a message comes, also before it has begun."""
        self._bringing = asyncio.create_task(self._bring_back())
        return self._bringing

    async def _bring_back(self) -> None:
        shelf = self.shelf
        if shelf is None or not self.messages:
            return
        with contextlib.suppress(BackendError, ContextFullError):
            # What two messages have in common comes before any message.
            ends = [[*self.messages, user_message(text)] for text in ("?", "1")]
            one, other = [(await self._window.fit(end, self._forgotten))[0] for end in ends]
            engine, sequence = self.model.engine, self._sequence
            engine.use_adapter(sequence, await self.adapter_number(lesson=False))
            await engine.bring(sequence, one[: shared_length(one, other)], shelf, _BROUGHT_AHEAD)

    async def _leave_off(self) -> None:
        """End `bring_back`; the pages that it has brought stay."""
        if self._bringing is not None:
            self._bringing.cancel()
            await asyncio.wait([self._bringing])

    def close(self) -> None:
        """Give back what the model keeps of the conversation. No more answers follow."""
        for sequence in self._sequences:
            self.model.engine.free(sequence)

    @property
    def _sequences(self) -> list[TokenSequence]:
        return [self._sequence, self._alone] if self._alone else [self._sequence]

    def _reading(self, sequence: TokenSequence, prompt: list[int], timings: Timings) -> AsyncIterator[Reading]:
        shelf = self.shelf if sequence is self._sequence else None
        return read_prompt(self.model.engine, sequence, prompt, timings, self._stop, shelf)


def done_of(timings: Timings, text: str) -> Done:
    return Done(
        timings.reason, text, timings.prompt_tokens, timings.new_tokens, timings.prefill_tok_s, timings.decode_tok_s,
        prefill_seconds=timings.prefill_seconds, decode_seconds=timings.decode_seconds,
        reused_tokens=timings.reused_tokens,
    )  # fmt: skip
