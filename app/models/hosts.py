"""The hosts that a model may come from; the page has the same rules (web/downloads/model_hosts.js). No packages needed.

An entry is a host ("huggingface.co"), every host below one ("*.hf.co"), either with a port, or, for tests and
developers, an address of this machine with http ("http://localhost:8123").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from py_core.display import shown

_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?")
_LOCAL = re.compile(r"http://(localhost|127\.0\.0\.1):\d{1,5}")


class HostError(ValueError):
    """An address that models may not come from, or an entry that is not a host; the message says what to do."""


class Hosts:
    """The allowed hosts. Raises HostError if an entry is not a host."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.entries = tuple(entry.strip().lower() for entry in entries)
        for entry in self.entries:
            if not (_LOCAL.fullmatch(entry) or (_HOST.fullmatch(entry) and "." in entry.lstrip("*."))):
                raise HostError(
                    f"{shown(entry)} is not a host that models can come from: "
                    'write it like "huggingface.co" or "*.hf.co".'
                )

    def __add__(self, more: Iterable[str]) -> Hosts:
        return Hosts([*self.entries, *more])

    def allows(self, url: str) -> bool:
        """True if a model may come from this address: https, and a host of the list."""
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        if not host or parts.username is not None or parts.password is not None:
            return False
        if parts.scheme == "http":
            return f"http://{host}:{port or 80}" in self.entries
        if parts.scheme != "https":
            return False
        suffix = "" if port in (None, 443) else f":{port}"
        names = [host, *(f"*{host[at:]}" for at, sign in enumerate(host) if sign == ".")]
        return any(name + suffix in self.entries for name in names)

    def check(self, url: str) -> None:
        """Raises HostError, with what to do, if models may not come from an address."""
        if self.allows(url):
            return
        parts = urlsplit(url)
        if parts.scheme != "https":
            raise HostError(f"Models come over https only, not from {url}.")
        raise HostError(
            f"{parts.netloc} is not on the list of hosts that models may come from. If you trust it, "
            f"add it: --allow-host {parts.netloc}, or $SONATA_MODEL_HOSTS."
        )
