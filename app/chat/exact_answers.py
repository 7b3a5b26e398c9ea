"""Answers that are computed before the model guesses (py_core/tools): recognised here, said instead of the model's
answer.

The tools are imported with the first message that could be for one: the page starts without them.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from app.chat.help_answers import help_answer
from py_core.store.errors import StoreError

if TYPE_CHECKING:
    from app.runtime import Runtime
    from py_core.tools.question import Exact

EXACT_POLICY = "tools.exact"
"""The policy that switches exact answers on and off."""


def exact_answer(runtime: Runtime, text: str) -> Exact | None:
    """Return a tool's answer to a message, by the local time of this device, or what Sonata says about itself. None if
    the message is for the model, or the user has turned the tools off."""
    if (said := help_answer(text)) is not None:
        return said
    from py_core.tools.first_look import may_be_for_a_tool

    if not may_be_for_a_tool(text) or not runtime.is_on(EXACT_POLICY):
        return None
    from py_core.tools.toolbox import answer_exactly

    return answer_exactly(text, datetime.now())


async def exact_answer_of_tables(runtime: Runtime, session: str | None, text: str) -> Exact | None:
    """Answer a message from the tables (CSV, TSV) of a conversation. None if the message is not surely about one of
    them. Never fails: errors go to the runtime."""
    if runtime.memory_if_open is None or session is None or not runtime.is_on(EXACT_POLICY):
        return None
    try:
        tables = await runtime.files.tables(session)
    except StoreError as error:
        runtime.trouble(error)
        return None
    if not tables:
        return None
    from py_core.tools.question import question_of
    from py_core.tools.table_answers import answer

    return answer(question_of(text, datetime.now()), tables)
