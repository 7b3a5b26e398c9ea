"""The chat in a terminal: it reads a line and streams the answer. Ctrl-C ends the answer, not the program."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from app.chat.conversation import Conversation
from app.cli import terminal
from app.cli.attachments import attach_file, cited_words
from app.cli.home import with_passphrase
from app.cli.memory import SHORT_ID
from app.cli.python_runs import PythonRuns
from app.cli.tool_calls import call_line
from app.cli.waiting_line import line_meanwhile
from app.files.text import FileError
from app.generation.answer_adapters import AnswerAdapters
from app.generation.assistant import Assistant
from app.generation.tool_loop import ToolUse
from app.interpreter.child import InterpreterError
from app.lessons.feedback import Feedback
from app.lessons.imprints import LessonError
from app.protocol import (
    Card,
    Changed,
    Citations,
    Computation,
    Delta,
    Done,
    Event,
    Offer,
    Reading,
    Recall,
    Route,
    Taught,
    Thought,
    ToolCalled,
    ToolReturned,
)  # fmt: skip
from app.routing.agent_choice import UNROUTED
from app.runtime import Runtime
from app.stage import State
from py_core.adapters.lora import LoraAdapter
from py_core.backend_errors import BackendError
from py_core.display import plain
from py_core.loading import Model
from py_core.messages import Words
from py_core.routing.agents import AgentError
from py_core.routing.embedder import EmbedderError
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError

with contextlib.suppress(ImportError):  # not on Windows
    import readline  # noqa: F401  - gives input() editing and history

COMMANDS = {
    "/new": "starts over",
    "/retry": "answers the last message once more",
    "/continue": "resumes an answer that was cut off",
    "/undo": "takes back what you last taught or made it forget",
    "/remember": "gives the last answer whenever you ask the same",
    "/agent NAME": "sends messages like the last one to another agent",
    "/adapter NAME": "answers with an adapter; /adapter alone with none",
    "/file PATH": "attaches a file",
    "/analyse QUESTION": "answers a question about the attached table by Python, and runs it, with --python",
    "/run": "runs the Python of the last answer, if the chat was started with --python",
    "/exit": "ends the chat (or Ctrl-D); Ctrl-C stops an answer",
}
HELP = "\n".join(f"{command:19}{what}" for command, what in COMMANDS.items())
HINT = "/help lists the commands."
_COMMAND = re.compile(r"/[^\W\d_]+")
"""A line that is meant as a command: only a slash and letters. All other lines are messages."""
INDEXING_PATIENCE = 3.0
"""Seconds that the next message waits for a file to be indexed; a long file continues in the background."""
DELETED = "This conversation was deleted by another program. A new one begins."
ADDED = "Another program added messages to this conversation. The answer takes them into account."


def run_chat(
    runner: asyncio.Runner, model: Model, sampling: SamplingParams | None, max_tokens: int, runtime: Runtime,
    open_adapter: Callable[[str], LoraAdapter], adapter: str | None = None, adapters: AnswerAdapters | None = None,
    files: Sequence[Path] = (), python: bool = False, tools: ToolUse | None = None,
) -> None:  # fmt: skip
    """Run until the user leaves. open_adapter: opens one by a name or file, raises AdapterError or OSError; `adapter`:
    the first. adapters: the learned adapters that answers use. files: attached to the first conversation. python:
    allow /run. tools: that answers may call."""
    console = terminal.console()
    code = PythonRuns(console) if python else None

    async def offered(session: str | None) -> ToolUse | None:
        return tools

    conversation = Conversation(Assistant(model, sampling, max_tokens, adapters), runtime, offered)
    if adapter is not None:
        runner.run(conversation.assistant.use_adapter(open_adapter(adapter)))
    last: list[Route] = []
    changes: list[Taught | Card] = []
    _unlock(runner, runtime, console)
    if left_out := conversation.assistant.leaves_out:
        _warn(console, str(left_out))
    warned: Words | None = None
    capabilities = model.engine.capabilities
    runs_on = escape(f"{capabilities.backend} ({capabilities.adapter})")
    answers_with = f" with {escape(adapter)}" if adapter else ""
    console.print(f"[bold]{escape(model.config.name)}[/bold]{answers_with} on {runs_on}")
    console.print(f"[dim]{HINT}[/dim]")
    for path in files:
        _attach(runner, runtime, conversation, console, path)
    while True:
        if runtime.problem and runtime.problem != warned:
            warned = runtime.problem
            _warn(console, str(warned))
        try:
            text = line_meanwhile(runner, "\n> ")
        except KeyboardInterrupt:
            console.print(f"\n[dim]{HELP}[/dim]")
            continue
        except EOFError:
            console.print()
            break
        command = text.strip().lower()
        if command in ("/exit", "/quit"):
            break
        if command == "/new":
            conversation.reset()
            console.print("[dim]A new conversation.[/dim]")
        elif command == "/help":
            console.print(f"[dim]{HELP}[/dim]")
        elif command == "/undo":
            try:
                console.print(f"[dim]{escape(runner.run(_undo(runtime, changes)))}[/dim]")
            except StoreError as error:
                _warn(console, str(error))
        elif command == "/remember":
            try:
                console.print(f"[dim]{escape(runner.run(_remember(runtime, conversation)))}[/dim]")
            except (BackendError, EmbedderError, LessonError, StoreError) as error:
                _warn(console, str(error))
        elif command.partition(" ")[0] == "/adapter":
            try:
                said = runner.run(_use_adapter(conversation, open_adapter, text.strip().partition(" ")[2].strip()))
                console.print(f"[dim]{escape(said)}[/dim]")
            except (BackendError, ValueError, OSError) as error:
                _warn(console, str(error))
        elif command.partition(" ")[0] == "/file":
            given = text.strip().partition(" ")[2].strip().strip("'\"")
            _attach(runner, runtime, conversation, console, Path(given).expanduser())
        elif command.partition(" ")[0] == "/analyse":
            question = text.strip().partition(" ")[2].strip()
            table = runner.run(_last_table(runtime, conversation))
            if code is None or table is None or not question:
                _warn(console, "Start the chat with --python, attach a CSV file, and write a question behind /analyse.")
                continue
            try:
                events = conversation.respond(question, table=table)
                runner.run(_answer(conversation, events, console, last, changes))
                runner.run(code.run(runtime, conversation))
            except (BackendError, InterpreterError, StoreError, ValueError) as error:
                _warn(console, str(error))
        elif command == "/run":
            if code is None:
                _warn(console, "Start the chat with --python to run code.")
                continue
            try:
                runner.run(code.run(runtime, conversation))
            except (InterpreterError, StoreError) as error:
                _warn(console, str(error))
        elif command.partition(" ")[0] == "/agent":
            try:
                said = runner.run(_correct(runtime, last, command.partition(" ")[2].strip()))
                console.print(f"[dim]{escape(said)}[/dim]")
            except (AgentError, EmbedderError, StoreError) as error:
                _warn(console, str(error))
        elif command:
            again = {"/retry": conversation.retry, "/continue": conversation.continue_answer}.get(command)
            if again is None and _COMMAND.fullmatch(command):
                _warn(console, f"There is no {text.strip()}. {HINT}")
                continue
            try:
                events = again() if again else conversation.respond(text)
                runner.run(_answer(conversation, events, console, last, changes))
            except (BackendError, ValueError) as error:
                console.print(f"[red]{escape(str(error))}[/red]", soft_wrap=True)
    if code is not None:
        runner.run(code.close())


def _warn(console: Console, message: str) -> None:
    console.print(f"[yellow]{escape(message)}[/yellow]", soft_wrap=True)


def _unlock(runner: asyncio.Runner, runtime: Runtime, console: Console) -> None:
    """Without the passphrase the chat continues without the memory."""
    if runtime.memory_stage.state == State.LOCKED:
        try:
            runner.run(with_passphrase(runtime.unlock, "the memory (empty to continue without it)"))
        except (StoreError, KeyboardInterrupt) as error:
            _warn(console, str(error) or "The memory stays locked.")


async def _correct(runtime: Runtime, last: list[Route], agent: str) -> str:
    """Correct the last route; returns a sentence about it. Raises AgentError, EmbedderError, StoreError."""
    if runtime.routing is None:
        return "Messages are not sent to agents here."
    if not last or not agent:
        known = ", ".join(runtime.routing.agents)
        return f"Type /agent NAME after a message. The agents are {known}."
    if last[-1].reason in UNROUTED:
        return "This message was not routed automatically, so there is nothing to correct."
    await runtime.routing.correct(last[-1].id, last[-1].text, agent)
    return f"Similar messages will go to {runtime.routing.agents[agent].title}."


def _attach(runner: asyncio.Runner, runtime: Runtime, conversation: Conversation, console: Console, path: Path) -> None:
    """Attach a file, or say why not. Ctrl-C stops that; indexing continues in the background."""
    attached = False

    async def attach() -> None:
        nonlocal attached
        session = await attach_file(runtime.files, conversation.session_id, path)
        attached = True
        if session != conversation.session_id:
            await conversation.resume(session)
        indexing = asyncio.ensure_future(runtime.files.indexed(session))
        await asyncio.wait([indexing], timeout=INDEXING_PATIENCE)

    try:
        with contextlib.suppress(KeyboardInterrupt):
            runner.run(attach())
    except (FileError, StoreError) as error:
        _warn(console, str(error))
    else:
        said = "is attached. Ask about it." if attached else "is not attached: you stopped it."
        console.print(f"[dim]{escape(path.name)} {said}[/dim]")


async def _last_table(runtime: Runtime, conversation: Conversation) -> str | None:
    """The id of the table that was attached last; None if there is none."""
    session = conversation.session_id
    for file in reversed(await runtime.files.files(session) if session else ()):
        if await runtime.files.table(file["id"]) is not None:
            return file["id"]
    return None


async def _undo(runtime: Runtime, changes: list[Taught | Card]) -> str:
    """Take back what was taught or forgotten last; returns a sentence about it. Raises StoreError."""
    learning = runtime.learning
    if not changes or learning is None:
        return "Nothing was taught or forgotten in this chat, so there is nothing to take back."
    change = changes.pop()
    if isinstance(change, Taught):
        await learning.undo(change.id)
        return f"Forgotten: {change.question}"
    for lesson in change.originals:
        await learning.restore(lesson)
    return f"Remembered again: {', '.join(lesson.question for lesson in change.lessons)}"


async def _remember(runtime: Runtime, conversation: Conversation) -> str:
    """Keep the last answer as a lesson; returns a sentence about it. Raises LessonError, EmbedderError, StoreError,
    BackendError."""
    if len(conversation.turns) < 2:
        return "There is no answer yet to remember."
    question, answer = conversation.turns[-2:]
    if answer.details.get("lesson") or answer.details.get("taught"):
        return "You taught this, so it is already remembered."
    feedback = Feedback(runtime)
    learned = await feedback.remember_answer(answer.details.get("request", ""), question.content, answer.content)
    return (
        f"When you ask \u201c{learned.lesson.question}\u201d, you get this answer. `sonata memory undo` takes it back."
    )


async def _use_adapter(conversation: Conversation, open_adapter: Callable[[str], LoraAdapter], given: str) -> str:
    """Use another adapter from the next message on, or none; returns a sentence about it."""
    await conversation.assistant.use_adapter(open_adapter(given) if given else None)
    said = f"The next answers use {given}." if given else "The next answers use no adapter."
    return f"{said} {conversation.assistant.leaves_out}".strip()


async def _answer(
    conversation: Conversation, events: AsyncIterator[Event], console: Console, last: list[Route],
    changes: list[Taught | Card],
) -> None:  # fmt: skip
    """Show an answer. last, changes: receive the route, and the lessons that were taught or forgotten."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends the program there
        loop.add_signal_handler(signal.SIGINT, conversation.stop)
    status = console.status("")
    thinks = False
    routed: Route | None = None
    card: Card | None = None
    try:
        async for event in events:
            if thinks and isinstance(event, Delta | Done):
                console.print("\n")
            thinks = isinstance(event, Thought)
            if not isinstance(event, Reading):
                status.stop()
            if isinstance(event, Route):
                last.append(event)
                routed = event
            elif routed is not None and not isinstance(event, Recall):
                console.print(f"[dim]{escape(_who_answers(routed))}[/dim]")
                routed = None
            if isinstance(event, Citations):
                console.print(f"[dim]{escape(_read(event))}[/dim]")
            elif isinstance(event, Recall):
                routed = None  # the lesson answers, and no agent
                sure = f"{event.confidence:.0%} sure"
                how = "Read from what you taught me" if event.read else "As you taught me"
                console.print(f"[dim]{how}: {escape(event.question)} ({sure})[/dim]")
            elif isinstance(event, Computation):
                console.print(f"[dim]Computed: {escape(event.working)}[/dim]")
            elif isinstance(event, Taught):
                changes.append(event)
                console.print(f"[dim]Learned in {(event.ms or 0) / 1000:.1f} s; /undo takes it back.[/dim]")
            elif isinstance(event, Card):
                card = event
                if event.kind == "forgotten":
                    changes.append(event)
                    console.print("[dim]/undo brings it back.[/dim]")
            elif isinstance(event, Offer):
                console.print("[dim]To have this remembered, write it again after \u201cremember that\u201d.[/dim]")
            elif isinstance(event, Reading):
                status.update(_ReadingLine(event))
                status.start()
            elif isinstance(event, ToolCalled):
                console.print(f"[dim]{escape(plain(call_line(event.name, event.arguments)))}[/dim]", soft_wrap=True)
            elif isinstance(event, ToolReturned):
                console.print(Text(f"→ {plain(event.result)}", "yellow" if event.failed else "dim"), soft_wrap=True)
            elif isinstance(event, Thought):
                console.print(Text(event.text, "dim"), end="", soft_wrap=True)
            elif isinstance(event, Delta):
                terminal.say(event.text, end="")
            elif isinstance(event, Changed):
                console.print(f"[dim]{DELETED if event.gone else ADDED}[/dim]")
            elif isinstance(event, Done):
                terminal.say("")
                for line in [_summary(event), *_card_lines(card)]:
                    if line:
                        console.print(f"[dim]{escape(line)}[/dim]")
    finally:
        status.stop()
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


def _card_lines(card: Card | None) -> list[str]:
    """The lessons that an answer shows: taught ones, or candidates for a choice."""
    if card is None or card.kind == "forgotten":
        return []
    lines = [f"{lesson.id[:SHORT_ID]}  {lesson.question} {lesson.answer}" for lesson in card.originals]
    return [*lines, "Give more of its words, or use `sonata memory forget ID`."] if card.kind == "choose" else lines


class _ReadingLine:
    """Shows how much of the prompt is read. The seconds count down until the next report."""

    def __init__(self, reading: Reading) -> None:
        self._words = f"Reading {reading.done:,} of {reading.total:,} tokens"
        self._until = time.monotonic() + (reading.seconds_left or 0.0)

    def __rich__(self) -> Text:
        left = round(self._until - time.monotonic())
        return Text(f"{self._words}, {left} s left" if left > 0 else self._words)


def _who_answers(route: Route) -> str:
    """The router's confidence does not apply to the plain assistant, or to an agent that was not decided again."""
    decided = route.reason in ("examples", "wording", "correction")
    sure = f" (chosen with {route.confidence:.0%} certainty; /agent NAME corrects it)" if decided else ""
    return f"{route.title}{sure}"


def _read(citations: Citations) -> str:
    """Says which passages of the files the model reads."""
    if not citations.passages:
        return (
            "Nothing of the files was read: they are still being indexed, and no word of your message was found in them"
        )
    return f"From {cited_words(citations.passages)}" + (
        " (found by words: the file is still being indexed)" if citations.found == "words" else ""
    )


def _summary(done: Done) -> str:
    """An answer's time, and why it ended; "" if no model wrote it."""
    parts = [f"{done.new_tokens} tokens, {done.decode_tok_s:.1f} tok/s"] if done.new_tokens else []
    if done.reason == "stopped":
        parts.append("stopped; /continue resumes it")
    elif done.reason == "length":
        parts.append("stopped at the length limit (--max-tokens); /continue resumes it")
    elif done.reason == "loop":
        parts.append("stopped because the answer repeated itself; /retry gives another one")
    elif done.reason == "calls":
        parts.append("it called tools several times, and then had to answer")
    elif done.reason == "context":
        parts.append("stopped because the chat is as long as the model can read; /new starts over")
    if done.forgotten_turns:
        parts.append(f"the model no longer sees the first {done.forgotten_turns} messages: the chat is too long")
    return "; ".join(parts)
