"""The formats of strings that are kept, each as a regular expression of whole texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

_MONTHS = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])"
_LEAP = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = rf"(?:(?:[1-9]\d{{3}}|0[1-9]\d\d|00[1-9]\d|000[1-9])-(?:{_MONTHS})|{_LEAP}-02-29)"
_OFFSET = r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_PCHAR_NO_COLON = r"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})"
_REG = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_USER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"


def _ipv6() -> str:
    """RFC 4291: eight groups, of which a run of zeros may be left out, or six and an IPv4 address."""
    group = "[0-9A-Fa-f]{1,4}"
    forms = [f"(?:{group}:){{7}}{group}", f"(?:{group}:){{6}}{_IPV4}"]
    for before in range(8):
        head = "" if before == 0 else group if before == 1 else f"{group}(?::{group}){{{before - 1}}}"
        after = 7 - before
        tail = f"(?:{group}(?::{group}){{0,{after - 1}}})?" if after else ""
        forms.append(f"{head}::{tail}")
        if before <= 5:
            forms.append(f"{head}::(?:{group}:){{0,{5 - before}}}{_IPV4}")
    return "(?:" + "|".join(forms) + ")"


def _uri(relative: bool) -> str:
    """RFC 3986."""
    future = r"[vV][0-9A-Fa-f]+\.[0-9A-Za-z._~!$&'()*+,;=:-]+"
    host = rf"(?:\[(?:{_ipv6()}|{future})\]|{_REG}*)"
    authority = rf"//(?:{_USER}*@)?{host}(?::\d*)?(?:/{_PCHAR}*)*"
    absolute = rf"/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
    rootless = rf"{_PCHAR}+(?:/{_PCHAR}*)*"
    noscheme = rf"{_PCHAR_NO_COLON}+(?:/{_PCHAR}*)*"
    rest = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
    full = rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{authority}|{absolute}|{rootless})?{rest}"
    if not relative:
        return full
    return rf"(?:{full}|(?:{authority}|{absolute}|{noscheme})?{rest})"


_OTHERS = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr(plane + (0x1000 if plane == 0xE0000 else 0))}-{chr(plane + 0xFFFD)}"
    for plane in range(0x10000, 0xF0000, 0x10000)
)
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _iri(relative: bool) -> str:
    """RFC 3987: characters that are not ASCII stand for themselves."""
    uri = _uri(relative).replace("[A-Za-z0-9._~", f"[A-Za-z0-9._~{_OTHERS}")
    return uri.replace(r"(?:\?(?:(?:[", rf"(?:\?(?:(?:[{_PRIVATE}")


def _uri_template() -> str:
    """RFC 6570."""
    escaped = "%[0-9A-Fa-f]{2}"
    text = rf"(?:[!#$&'()*+,./0-9:;=?@A-Z\[\]_a-z~{_OTHERS}{_PRIVATE}-]|{escaped})"
    name = rf"(?:[A-Za-z0-9_]|{escaped})(?:\.?(?:[A-Za-z0-9_]|{escaped}))*(?::[1-9]\d{{0,3}}|\*)?"
    return rf"(?:{text}|\{{[+#./;?&=,!@|]?{name}(?:,{name})*\}})*"


def _duration() -> str:
    """RFC 3339, appendix A: what follows a unit are smaller ones without gaps."""
    second, day = r"\d+S", r"\d+D"
    minute = rf"\d+M(?:{second})?"
    hour = rf"\d+H(?:{minute})?"
    time = rf"T(?:{hour}|{minute}|{second})"
    month = rf"\d+M(?:{day})?"
    year = rf"\d+Y(?:{month})?"
    return rf"P(?:\d+W|(?:{day}|{month}|{year})(?:{time})?|{time})"


def _time() -> str:
    """RFC 3339. A leap second ends a day in UTC. Each offset to UTC needs states of its own for it: only the offsets of
    whole and half hours have them."""
    day, last, leap = 24 * 60, 23 * 60 + 59, r"60(?:\.\d+)?"
    forms = [rf"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?{_OFFSET}", f"23:59:{leap}[Zz]"]
    for ahead in range(0, day, 30):
        there = (last + ahead) % day
        forms.append(rf"{_clock(there)}:{leap}(?:\+{_clock(ahead)}|-{_clock((last - there) % day)})")
    return f"(?:{'|'.join(forms)})"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


_POINTER = r"(?:/(?:[^/~]|~[01])*)*"
_MADE: dict[str, Callable[[], str]] = {
    "date": lambda: _DATE,
    "time": _time,
    "date-time": lambda: rf"{_DATE}[Tt]{_time()}",
    "duration": _duration,
    "email": lambda: (
        rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*")'
        rf"@(?:{_LABEL}(?:\.{_LABEL})*|\[{_IPV4}\]|\[IPv6:{_ipv6()}\])"
    ),
    "hostname": lambda: rf"{_LABEL}(?:\.{_LABEL})*",
    "ipv4": lambda: _IPV4,
    "ipv6": _ipv6,
    "uri": lambda: _uri(False),
    "uri-reference": lambda: _uri(True),
    "iri": lambda: _iri(False),
    "iri-reference": lambda: _iri(True),
    "uri-template": _uri_template,
    "uuid": lambda: "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "json-pointer": lambda: _POINTER,
    "relative-json-pointer": lambda: rf"(?:0|[1-9]\d*)(?:#|{_POINTER})",
}
UNKEPT = frozenset({"idn-email", "idn-hostname", "regex"})
"""Formats of the specification that no expression here is exact for. All others are annotations."""


@lru_cache(64)
def format_pattern(name: str) -> str | None:
    """The regular expression of the whole texts of a format; None if the format is an annotation."""
    make = _MADE.get(name)
    return make() if make else None
