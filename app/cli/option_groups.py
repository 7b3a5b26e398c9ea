"""Options that several commands have, as a dataclass whose fields are typer's options."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

Command = Callable[..., None]


def option_group(name: str, group: type, offered: Collection[str] | None = None) -> Callable[[Command], Command]:
    """Give a command the options of a group in the place of its parameter of this name, which then has the group's
    class: all of them, or those with the offered names."""
    chosen = [field for field in fields(group) if offered is None or field.name in offered]
    hints = get_type_hints(group, include_extras=True)
    of_group = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in chosen
    ]

    def decorated(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            options = group(**{field.name: given.pop(field.name) for field in chosen})
            command(**{name: options}, **given)

        parameters = list[Parameter]()
        for own in signature(command, eval_str=True).parameters.values():
            parameters += of_group if own.name == name else [own.replace(kind=Parameter.KEYWORD_ONLY)]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorated
