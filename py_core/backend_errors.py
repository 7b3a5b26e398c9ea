"""The errors of the backends, which what lies below them raises, too."""

from __future__ import annotations

from py_core.messages import Message, UserError


class BackendError(UserError, RuntimeError):
    """A backend cannot continue; the message is a sentence for the user that says what to do."""


class DeviceLostError(BackendError):
    """The GPU went away (driver reset, sleep, another program). Everything on it is gone."""


class WorkersRestartedError(Exception):
    """A worker died or never answered, and the pool was restarted over the same memory. Work in flight is lost."""


class ContextFullError(BackendError):
    """The tokens do not fit into the model's context."""


def too_long(tokens: int, context_length: int) -> Message:
    return Message(
        "engine.too-long",
        "The text is {length} tokens long, but the model reads at most {most}. Shorten it.",
        length=tokens,
        most=context_length,
    )
