"""`sonata compute`: the answer of the exact tools to a message, without a model."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.markup import escape

from app.cli.terminal import console, say


def compute(
    message: Annotated[str, typer.Argument(help="A message as in a chat: 17*23, or: days until Christmas.")],
) -> None:
    """Compute the answer to a message without a model: arithmetic, dates, units, counting, in English or German."""
    from py_core.tools.toolbox import answer_exactly

    exact = answer_exactly(message, datetime.now())
    if exact is None:
        console(stderr=True).print("No exact tool recognises what to compute here. In a chat the model answers this.")
        raise typer.Exit(1)
    say(exact.words)
    console().print(f"[dim]{escape(exact.working)}[/dim]", soft_wrap=True)
