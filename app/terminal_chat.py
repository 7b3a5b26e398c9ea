"""The chat in a terminal: a line in, an answer streaming out. Ctrl-C ends the answer, not the program."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from rich.console import Console
from rich.markup import escape

from app.assistant import Assistant, Delta, Done
from py_core.backends.base import BackendError
from py_core.engine.sampling import SamplingParams
from py_core.model import Model

with contextlib.suppress(ImportError):  # not on Windows
    import readline  # noqa: F401  - gives input() editing and history

HELP = "/new starts over, /exit or Ctrl-D ends, Ctrl-C stops an answer."


def run_chat(runner: asyncio.Runner, model: Model, sampling: SamplingParams, max_tokens: int) -> None:
    """Until the user leaves."""
    console = Console(highlight=False)
    assistant = Assistant(model, sampling, max_tokens)
    capabilities = model.backend.capabilities
    runs_on = escape(f"{capabilities.backend} ({capabilities.adapter})")
    console.print(f"[bold]{escape(model.config.name)}[/bold] on {runs_on}")
    console.print(f"[dim]{HELP}[/dim]")
    while True:
        try:
            text = input("\n> ")
        except KeyboardInterrupt:
            console.print(f"\n[dim]{HELP}[/dim]")
            continue
        except EOFError:
            console.print()
            return
        command = text.strip().lower()
        if command in ("/exit", "/quit"):
            return
        if command == "/new":
            assistant.reset()
            console.print("[dim]A new conversation.[/dim]")
        elif command == "/help":
            console.print(f"[dim]{HELP}[/dim]")
        elif command:
            try:
                runner.run(_answer(assistant, text, console))
            except (BackendError, ValueError) as error:
                console.print(f"[red]{escape(str(error))}[/red]", soft_wrap=True)


async def _answer(assistant: Assistant, text: str, console: Console) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends the program there
        loop.add_signal_handler(signal.SIGINT, assistant.stop)
    try:
        async for event in assistant.respond(text):
            if isinstance(event, Delta):
                # Plain print: the model's text is no markup.
                print(event.text, end="", flush=True)
            else:
                print()
                console.print(f"[dim]{_summary(event)}[/dim]")
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


def _summary(done: Done) -> str:
    parts = [f"{done.new_tokens} tokens, {done.decode_tok_s:.1f} tok/s"]
    if done.reason == "stopped":
        parts.append("stopped")
    elif done.reason == "length":
        parts.append("cut at the longest answer allowed (--max-tokens)")
    elif done.reason == "context":
        parts.append("the model's context is full: /new starts over")
    if done.forgotten_turns:
        parts.append(f"the first {done.forgotten_turns} messages no longer fit and were left out")
    return "; ".join(parts)
