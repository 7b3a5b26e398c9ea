"""One byte range of one address, over HTTP, in pieces. Standard library only."""

from __future__ import annotations

import glob
import http.client
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.paths import ROOT

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
CHUNK = 262_144
_LENGTH = "[0-9]{1,15}"
"""Largest plausible file size in a header, in bytes: a thousand terabytes cannot be a file."""


class SourceError(Exception):
    """A source cannot give the file; the message is a short reason ("HTTP 404")."""


class Unreachable(SourceError):
    """No server answers: no network, a wrong name, a closed port."""


class ConnectionBroken(SourceError):
    """The server answered but stopped before the end, or is busy; trying again may help."""


class NoRanges(SourceError):
    """The server only gives whole files."""


class Refused(SourceError):
    """The server redirects to an address that is not allowed."""


class NotThere(SourceError):
    """The server has nothing at this address."""


@dataclass
class Reply:
    """The bytes from `start` on; `total` is the size of the whole file if the server states it.

    `version` is the server's name for these contents (a strong ETag), "" if it gives none.
    """

    start: int
    total: int | None
    length: int | None
    body: http.client.HTTPResponse = field(repr=False)
    version: str = ""

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces. Raises ConnectionBroken if it ends early."""
        left = self.length
        try:
            while chunk := self.body.read1(CHUNK):
                if left is not None:
                    left -= len(chunk)
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionBroken(f"the connection broke ({_words(error)})") from error
        finally:
            self.body.close()
        if left:
            raise ConnectionBroken("the connection ended too early")


def open_range(
    url: str, start: int, stop: int | None, allows: Callable[[str], bool] | None = None, version: str = ""
) -> Reply:
    """Ask for the bytes [start, stop) of `url`; stop None means to the end.

    A server without ranges answers with the whole file: then the reply's `start` is 0. So does a server whose file no
    longer has this `version`. `allows` is asked before a redirect is followed. Raises Unreachable, ConnectionBroken,
    NoRanges (the range lies outside the file), Refused, NotThere or SourceError.
    """
    headers = {"User-Agent": "sonata", "Accept-Encoding": "identity"}
    if start or stop is not None:
        headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        if version:
            headers["If-Range"] = version
    request = urllib.request.Request(url, headers=headers)
    request.allows = allows  # type: ignore[attr-defined]
    try:
        body = _opener().open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise NoRanges("HTTP 416") from error
        if error.code == 429 or error.code >= 500:
            raise ConnectionBroken(f"HTTP {error.code}") from error
        if error.code in (404, 410):
            raise NotThere(f"HTTP {error.code}") from error
        raise SourceError(f"HTTP {error.code}") from error
    except urllib.error.URLError as error:
        raise Unreachable(f"no connection: {_words(error.reason)}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionBroken(f"the connection broke ({_words(error)})") from error
    told = body.headers["Content-Length"]
    if told and not re.fullmatch(_LENGTH, told.strip()):
        body.close()
        raise SourceError("it tells a length that no file has")
    length = int(told) if told else None
    tag = body.headers.get("ETag", "")
    found = "" if tag.startswith("W/") else tag  # a weak ETag does not promise the same bytes
    if getattr(body, "status", 200) != 206:
        return Reply(0, length, length, body, found)
    match = re.fullmatch(rf"bytes ({_LENGTH})-({_LENGTH})/({_LENGTH}|\*)", body.headers.get("Content-Range", ""))
    if not match or int(match[1]) != start:
        body.close()
        raise NoRanges("it answered with another range than the one asked for")
    return Reply(start, None if match[3] == "*" else int(match[3]), length, body, found)


def size_of(url: str) -> int:
    """Bytes of the file at `url`. Raises NoRanges when the server cannot send parts of it."""
    reply = open_range(url, 0, 1)
    reply.body.close()
    if reply.total is None or reply.length != 1:
        raise NoRanges("the server only gives whole files")
    return reply.total


def read_range(url: str, start: int, stop: int) -> bytes:
    """The bytes [start, stop) of `url`, all of them."""
    for attempt in range(3):
        reply = open_range(url, start, stop)
        if reply.start != start or reply.length != stop - start:
            reply.body.close()
            raise NoRanges("the server only gives whole files")
        try:
            return b"".join(reply.chunks())
        except ConnectionBroken:
            if attempt == 2:
                raise
    raise AssertionError("unreachable")


def _words(error: object) -> str:
    """The error in words, without class names and numbers."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to an allowed address."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        allows = getattr(req, "allows", None)
        if allows and not allows(newurl):
            raise Refused(f"it sends on to {urlsplit(newurl).netloc}, which is not on the list of hosts")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following:
            following.allows = allows  # type: ignore[attr-defined]
        return following


def _opener() -> urllib.request.OpenerDirector:
    global _shared_opener
    if _shared_opener is None:
        context = ssl.create_default_context()
        # On macOS Python may lack the system's certificates but have pip's; a user who set PIP_CERT needs it here, too.
        extra = [
            os.environ.get("PIP_CERT", ""),
            *glob.glob(str(ROOT / ".venv/**/pip/_vendor/certifi/*.pem"), recursive=True),
        ]
        for path in extra:
            if path and Path(path).is_file():
                context.load_verify_locations(path)
        _shared_opener = urllib.request.build_opener(_Redirects, urllib.request.HTTPSHandler(context=context))
    return _shared_opener


_shared_opener: urllib.request.OpenerDirector | None = None
