"""Tools that a model may call, and that run here: functions of Python with a schema, each answering in a short text.

`py_core.tools` is something else: the exact answers, which recognise a question of the person and answer it before a
model is asked. Here the model decides what is called, and with which arguments; `py_core.tool_calls` reads its calls.
"""

from app.tools.functions import tool
from app.tools.model_tool import MOST_RESULT, Tool, ToolFailure, needs_in_words, tools_by_name

__all__ = ["MOST_RESULT", "Tool", "ToolFailure", "needs_in_words", "tool", "tools_by_name"]
