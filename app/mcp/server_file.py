"""The file of tool servers, in the form that other programs use:

{"mcpServers": {"files": {"command": "npx", "args": [...], "env": {}}, "wiki": {"url": "https://...", "headers": {}}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py_core.display import shown, why_not_json

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_FORM = '{"mcpServers": {"NAME": {"command": "...", "args": [...]}}}, or {"url": "https://..."} for a server on the web'


@dataclass(frozen=True)
class ServerEntry:
    """A server by its command, or by its address; the other is ""."""

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def read_server_file(path: Path) -> list[ServerEntry]:
    """Read the servers of a file, without those that are `disabled`. Raises ValueError, with the place of a mistake;
    OSError."""
    try:
        given = json.loads(path.read_text("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {why_not_json(error)}.") from None
    servers = given.get("mcpServers") if isinstance(given, dict) else None
    if not isinstance(servers, dict):
        raise ValueError(f"{path} has no servers. Its form is {_FORM}.")
    return [_entry(path, name, told) for name, told in servers.items() if not _is_disabled(told)]


def _is_disabled(told: Any) -> bool:
    return isinstance(told, dict) and told.get("disabled") is True


def _entry(path: Path, name: str, told: Any) -> ServerEntry:
    place = f"{path}, server {shown(name)}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"{place}: a name has up to 40 letters, digits, _, - and dots.")
    if not isinstance(told, dict) or isinstance(told.get("command"), str) == isinstance(told.get("url"), str):
        raise ValueError(f"{place}: give either a command or a url. The form is {_FORM}.")
    if told.get("type") == "sse":
        raise ValueError(f"{place}: the transport sse is out of date and not supported. Use the server's HTTP address.")
    if "url" in told:
        address = urlsplit(told["url"])
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"{place}: {shown(told['url'])} is not an http or https address.")
        return ServerEntry(name, url=told["url"], headers=_texts(place, told, "headers"))
    arguments, folder = told.get("args", []), told.get("cwd")
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise ValueError(f"{place}: args is a list of texts.")
    if folder is not None and not isinstance(folder, str):
        raise ValueError(f"{place}: cwd is the path of a folder.")
    return ServerEntry(name, told["command"], tuple(arguments), _texts(place, told, "env"), folder)


def _texts(place: str, told: dict[str, Any], key: str) -> dict[str, str]:
    values = told.get(key, {})
    if not isinstance(values, dict) or not all(isinstance(one, str) for one in values.values()):
        raise ValueError(f"{place}: {key} is an object of texts.")
    return values
