"""Decodes a file to text, in any encoding, or gives a sentence if it is not text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from app.files.encoding import decoded
from py_core.display import is_blank, whole_end
from py_core.messages import Message, UserError

MOST_BYTES = 4_000_000
MOST_CHARACTERS = 1_000_000
"""Some 500 pages. A record of the memory holds no more."""
LONGEST_NAME = 150
PDF = "application/pdf"

_MARKS = (  # the longer first: that of UTF-32 begins as that of UTF-16
    (b"\xff\xfe\0\0", "utf-32-le"), (b"\0\0\xfe\xff", "utf-32-be"), (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"),
)  # fmt: skip
_KNOWN = (
    (
        b"%PDF-",
        Message(
            "files.is-pdf",
            "Only Sonata's page reads PDF; here, run `pdftotext FILE.pdf` and attach the text file that it writes.",
        ),
    ),
    (
        b"PK\x03\x04",
        Message("files.is-archive", "It is an archive or an office document: save it as text, CSV or PDF."),
    ),
    (b"\xd0\xcf\x11\xe0", Message("files.is-office", "It is an office document: save it as text, CSV or PDF.")),
    (b"\x89PNG", Message("files.is-picture", "Sonata cannot read pictures.")),
    (b"\xff\xd8\xff", Message("files.is-picture", "Sonata cannot read pictures.")),
    (b"GIF8", Message("files.is-picture", "Sonata cannot read pictures.")),
    (b"GGUF", Message("files.is-model", "It is a model: open it in Settings, Model.")),
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]")
_BINARY = re.compile("[\x00-\x07\x0e-\x19\x7f]")
"""Control characters that no text contains; those of terminals and forms do not count."""
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""An escape sequence of a terminal: a colour, a position, a title or a picture with its data."""
_SAMPLE = 100_000
MOST_CONTROLS = 0.02
"""The share of control characters in a text: some files have one here and there, machine code has many."""


class FileError(UserError, ValueError):
    """A file cannot be attached; the message says why, and what to do."""


def text_of(name: str, data: bytes, type: str = "") -> str:
    """The text of a file, with Unix line breaks. type: its MIME type; for a PDF, data is the text of its pages,
    separated by form feeds.

    UTF-8, UTF-16 and UTF-32 are recognised, and legacy encodings by the text that they give (encoding.py). A terminal's
    colours are left out. Raises FileError.
    """
    shown = shown_name(name)
    if len(data) > MOST_BYTES:
        raise FileError(too_large(shown, len(data)))
    if not data:
        raise FileError("files.empty", "{name} is empty.", name=shown)
    for mark, advice in _KNOWN:
        if data.startswith(mark):
            raise FileError("files.no-text-but", "{name} is not text. {advice}", name=shown, advice=advice)
    text = _marked_or_wide(data)
    if text is None and not _is_binary(data.decode("latin-1")):
        text = decoded(data)
        if text is None:
            raise FileError(
                "files.unknown-encoding",
                "{name} is in an encoding that Sonata does not recognise. Save it as UTF-8.",
                name=shown,
            )
    if text is None or _is_binary(text):
        if type == PDF:
            raise FileError(
                "files.no-letters",
                "{name} has no text: its fonts do not say which letters they draw. Run text recognition (OCR) on it "
                "first.",
                name=shown,
            )
        raise FileError(
            "files.no-text", "{name} is not text. Sonata reads text, Markdown, code, CSV and PDF.", name=shown
        )
    text = _without_backspaces(_ESCAPE.sub("", text))
    text = _CONTROLS.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))
    if is_blank(text):
        if type == PDF:
            raise FileError(
                "files.only-pictures",
                "{name} has no text: its pages are pictures. Run text recognition (OCR) on it first.",
                name=shown,
            )
        raise FileError("files.empty", "{name} is empty.", name=shown)
    if len(text) > MOST_CHARACTERS:
        raise FileError(
            "files.too-long",
            "{name} is too long: it has {length} characters, and a file may have {most}. Attach a part of it.",
            name=shown,
            length=f"{len(text):,}",
            most=f"{MOST_CHARACTERS:,}",
        )
    return text


def too_large(shown: str, size: int) -> Message:
    """A sentence about a file of this size."""
    return Message(
        "files.too-large",
        "{name} is too large: it has {size} MB, and a file may have 4 MB. Attach a part of it.",
        name=shown,
        size=f"{size / 1e6:,.1f}",
    )


def shown_name(name: str) -> str:
    """A file's name without folders and unprintable characters, at most LONGEST_NAME characters."""
    last = re.split(r"[/\\]", name)[-1]
    plain = "".join(character for character in last if character.isprintable())
    plain = " ".join(unicodedata.normalize("NFC", plain).split())
    if is_blank(plain):
        return "file"
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: whole_end(plain, LONGEST_NAME - 1)]}…"


def _is_binary(text: str) -> bool:
    """True if it is binary, by its control characters or a 0."""
    sample = _ESCAPE.sub("", text[:_SAMPLE])
    return "\0" in text or len(_BINARY.findall(sample)) > MOST_CONTROLS * len(sample)


def _without_backspaces(text: str) -> str:
    """Applies backspaces, each of which removes the previous character: progress bars, or text underlined for a
    printer."""
    if "\b" not in text:
        return text
    kept = list[str]()
    for character in text:
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def _marked_or_wide(data: bytes) -> str | None:
    """The text of data that begin with a byte order mark, or are UTF-16 or UTF-32; None otherwise."""
    encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), None)
    mark, name = encoding or (b"", _wide_encoding(data))
    try:
        return data[len(mark) :].decode(name) if name else None
    except UnicodeDecodeError:
        return decoded(data[len(mark) :]) if name == "utf-8" else None


def _wide_encoding(data: bytes) -> str | None:
    """Detects UTF-32 or UTF-16 without a mark. In UTF-16 nearly every other byte is 0, or a value that all letters of a
    script share (0 for spaces)."""
    sample = data[: _SAMPLE & ~3]
    for name, first, second in (("utf-32-le", 3, 2), ("utf-32-be", 0, 1)):
        if len(data) % 4 == 0 and not any(sample[first::4]) and max(sample[second::4], default=0) <= 3:
            return name
    units = len(sample) / 2
    for name, at in (("utf-16-le", 1), ("utf-16-be", 0)):
        high, low = sample[at::2], sample[1 - at :: 2]
        if len(data) % 2 or low.count(0) > 0.02 * units or high.count(0) < 0.02 * units:
            continue
        spaces = sum(one in b" \n" for above, one in zip(high, low, strict=True) if not above)
        is_of_one_script = sum(count for _, count in Counter(high).most_common(2)) >= 0.9 * units
        if high.count(0) >= 0.4 * units or (is_of_one_script and spaces >= 0.02 * units):
            return name
    return None
