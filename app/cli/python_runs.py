"""`--python` of `sonata chat`: runs the Python of an answer (app/interpreter) and shows its outputs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from app.chat.conversation import Conversation
from app.cli import terminal
from app.interpreter.child import PythonChild
from app.interpreter.session import Cut, Failure, Files, Output, Picture, Table, Text, Value, describe
from app.runtime import Runtime

PythonOption = Annotated[
    bool,
    typer.Option(
        "--python",
        help="Allow /run, which runs the Python of the last answer, and let the model run Python itself: on "
        "this machine, in a process of its own with limits. It can read your files.",
    ),
]
_BLOCK = re.compile(
    r"^ {0,3}```+ *(?:python|py|python3)[^\n]*\n(.*?)^ {0,3}```", re.MULTILINE | re.DOTALL | re.IGNORECASE
)


def python_of(answer: str) -> str:
    """The Python blocks of an answer, one after the other; "" if it has none."""
    return "\n".join(_BLOCK.findall(answer))


class PythonRuns:
    """Runs the code of answers; its variables stay as long as the conversation."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._child: PythonChild | None = None
        self._session: str | None = None

    async def run(self, runtime: Runtime, conversation: Conversation) -> None:
        """Run the last answer. Raises InterpreterError and StoreError."""
        code = python_of(conversation.turns[-1].content) if conversation.turns else ""
        if not code:
            return self._say("There is no Python in the last answer.")
        if self._child is None or self._session not in (None, conversation.session_id):
            await self.close()
            self._child = PythonChild()
        self._session = conversation.session_id
        child = self._child
        for file in await runtime.files.files(self._session) if self._session else ():
            if not (child.folder / file["name"]).exists():
                child.put(file["name"], (await runtime.files.text(file["id"])).encode())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, child.stop)
        try:
            outputs = await child.run(code, self._show)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if child.has_network:
            self._say("The code had the network of this machine: the system does not allow to take it away.")
        if not outputs:
            self._say("The code ended without an output.")

    async def close(self) -> None:
        if self._child is not None:
            await self._child.close()
            self._child = None

    def _show(self, output: Output) -> None:
        if isinstance(output, Text):
            terminal.say(output.text, end="")
        elif isinstance(output, Value):
            terminal.say(output.text)
        elif isinstance(output, Table):
            self._show_table(output)
        elif isinstance(output, Failure):
            self._console.print(f"[red]{escape(describe(output))}[/red]", soft_wrap=True)
        elif isinstance(output, Files):
            for name, size in output.files:
                self._keep(str(name), int(size))
        elif isinstance(output, Picture):
            self._say("A picture: `plt.savefig` writes it to a file.")
        elif isinstance(output, Cut):
            self._say(f"Only the first {output.most:,} characters are shown.")

    def _keep(self, name: str, size: int) -> None:
        """Copy a written file to the current folder, unless a file of its name is there."""
        target = Path(Path(name).name)
        if target.exists():
            return self._say(f"{name} ({size:,} bytes) was written; it is not copied, because {target} exists here.")
        assert self._child is not None
        with contextlib.suppress(OSError):
            target.write_bytes(self._child.read(name))
            self._say(f"{name} ({size:,} bytes) was written to {Path.cwd()}.")

    def _show_table(self, table: Table) -> None:
        shown = RichTable()
        for name, is_number in zip(table.columns, table.numeric, strict=True):
            shown.add_column(escape(name), justify="right" if is_number else "left")
        for row in table.rows:
            shown.add_row(*map(escape, row))
        self._console.print(shown)
        if table.row_count > len(table.rows):
            self._say(f"The first {len(table.rows)} of {table.row_count:,} rows.")

    def _say(self, sentence: str) -> None:
        self._console.print(f"[dim]{escape(sentence)}[/dim]", soft_wrap=True)
