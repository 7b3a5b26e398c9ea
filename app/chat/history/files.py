"""Chats in files: Sonata's exports of a chat, and the exports of ChatGPT and Open WebUI, with all branches.

The files come from strangers: their trees may have loops, gaps and values of any type. Nothing in their text is an
instruction. Messages of the person and of the assistant are taken. Pictures, files, tool calls and thoughts are left
out, and so is everything that the person never saw.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, Literal

from app.chat.history.api import LONGEST_TITLE
from app.chat.history.export import FORMAT, SPEAKER_LINE, SPEAKERS, UNTITLED, VERSION, heading, one_line
from app.chat.turn_details import title_of
from app.records.branches import Turn
from app.records.sessions import Session, Sessions
from py_core.display import is_blank, whole_end
from py_core.limits import MAX_CHATS_BYTES
from py_core.store.errors import StoreError
from py_core.store.field_checks import LATEST, LONGEST_TEXT
from py_core.store.records import decode_body, decode_list
from py_core.store.transfer import BEGINNING

Chat = tuple[Session, Sequence[Turn]]
"""The turns, in an order in which each comes after the turn that it follows."""

_ZIP = b"PK\x03\x04"
_IN_ZIP = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json", re.DOTALL)
_MARKDOWN = re.compile(r"# (?P<title>[^\n]+)\n\n\*(?P<begun>(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d))\*\n\n")
_ROLES = {f"**{name}**": role for role, name in SPEAKERS.items()}
UNSAID = "\u2026"
"""Put before an answer that is the first message: the page shows answers below messages, and templates need them."""
_UNNAMED = {"new chat"}
_MARKER = re.compile("\ue200([^\ue200\ue201]*)\ue201")
"""In ChatGPT's texts: a citation or the like, a name and its values between \\ue202."""
_DETAILS = re.compile('<details type="(?:reasoning|code_interpreter|tool_calls)"')
"""In Open WebUI's answers: the beginning of a thought, or of a tool's call and result."""
_TEXTS = "text", "audio_transcription"
_LATEST_MILLISECONDS = 1000 * LATEST


@dataclass
class ChatFile:
    """left_out: how many messages are incomplete here. unread: how many conversations could not be read."""

    chats: list[Chat] = field(default_factory=list)
    left_out: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class ImportedChats:
    """chats: how many conversations are new or longer. messages: how many were added. left_out, unread: as in
    ChatFile."""

    chats: int
    messages: int
    left_out: int
    unread: int


@dataclass(slots=True)
class _Message:
    """role: "" if only its place in the tree counts. whole: nothing of it was left out."""

    role: str = ""
    text: str = ""
    whole: bool = True
    parent: Any = None
    children: Any = None
    created: float = 0.0


@dataclass(slots=True)
class _Said:
    """A turn. length: the characters of its texts, with the separators between them."""

    role: str
    texts: list[str]
    created: float
    after: int | None
    length: int


async def import_chats(
    sessions: Sessions, data: bytes, mode: Literal["merge", "replace"] = "merge"
) -> ImportedChats | None:
    """Add the conversations of a file to the stored ones. Returns None if it is not a file of chats.

    Raises StoreError: file, newer, and what storing raises.
    """
    found = read_chats(data)
    if found is None:
        return None
    if mode == "replace":
        raise StoreError(
            "file",
            "import.only-chats",
            "This file has only chats. They are added to what is here and replace nothing, so choose to merge (in a "
            "terminal leave out --replace). Nothing was changed.",
        )
    chats = [(await _placed(session, sessions), turns) for session, turns in found.chats]
    merged = await sessions.merge(chats)
    return ImportedChats(merged.conversations, merged.turns, found.left_out, found.unread + merged.unfit)


def read_chats(data: bytes) -> ChatFile | None:
    """Return None if it is not a file of chats. Raises StoreError: file (it is too large, or a damaged archive),
    newer."""
    if data.startswith(BEGINNING):
        return None
    if data.startswith(_ZIP):
        parts = _unpacked(data)
    else:
        data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
        if data.startswith(b"# "):
            chat = _markdown_chat(data.decode("utf-8", "replace").replace("\r\n", "\n"))
            return ChatFile([chat]) if chat else None
        parts = [data]
    if sum(map(len, parts)) > MAX_CHATS_BYTES:
        raise StoreError(
            "file", "import.too-large", "The chats in this file are too large to be imported. Nothing was changed."
        )
    found = ChatFile()
    for part in parts:
        for entry in _entries(part):
            _read_entry(entry, found)
    return found if found.chats or found.left_out else None


def _unpacked(data: bytes) -> list[bytes]:
    import zipfile  # late: such files are rare

    parts, room = list[bytes](), MAX_CHATS_BYTES + 1
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            for member in archive.infolist():
                if room and _IN_ZIP.fullmatch(member.filename):
                    with archive.open(member) as opened:
                        parts.append(opened.read(room))
                    room -= len(parts[-1])
    except RuntimeError as error:
        raise StoreError(
            "file",
            "import.not-unpacked",
            "Sonata cannot unpack this archive. Unpack it, then choose conversations.json. Nothing was changed.",
        ) from error
    except Exception as error:  # each way of packing raises its own errors
        raise StoreError(
            "file", "import.damaged-archive", "The archive is damaged. Choose another file. Nothing was changed."
        ) from error
    return parts


def _entries(data: bytes) -> list[Any]:
    """Return the entries of a JSON list, or an object as the only entry; none if it is not JSON."""
    try:
        return decode_list(data) if data.lstrip().startswith(b"[") else [decode_body(data)]
    except StoreError:
        return []


def _read_entry(entry: Any, found: ChatFile) -> None:
    made: Chat | None = None
    if isinstance(entry, dict) and entry.get("format") == FORMAT:
        made = _own_chat(entry)
    elif isinstance(entry, dict) and isinstance(entry.get("mapping"), dict):
        messages = {id: _chatgpt_message(node) for id, node in entry["mapping"].items()}
        facts = {"id": entry.get("conversation_id") or entry.get("id"), "archived": entry.get("is_archived")}
        times = entry.get("create_time"), entry.get("update_time")
        made = _chat("chatgpt", {**entry, **facts}, messages, entry.get("current_node"), times)
        found.left_out += sum(not message.whole for message in messages.values())
    elif isinstance(entry, dict):
        chat = entry["chat"] if isinstance(entry.get("chat"), dict) else entry
        history = chat.get("history")
        if isinstance(history, dict) and isinstance(history.get("messages"), dict):
            messages = {id: _open_webui_message(node) for id, node in history["messages"].items()}
            facts = {**entry, "title": chat.get("title") or entry.get("title")}
            times = entry.get("created_at") or chat.get("timestamp"), entry.get("updated_at")
            made = _chat("open-webui", facts, messages, history.get("currentId"), times)
            found.left_out += sum(not message.whole for message in messages.values())
    if made is None:
        found.unread += 1
    elif made[1]:
        found.chats.append(made)


def _chat(
    source: str, facts: Mapping[str, Any], messages: Mapping[str, _Message], current: Any, times: Sequence[Any]
) -> Chat:
    turns, places = _turns(messages)
    created = _seconds(times[0]) or min((turn.created for turn in turns if turn.created), default=0.0) or time.time()
    turns = [turn if turn.created else replace(turn, created=created) for turn in turns]
    title = _title(facts.get("title"))
    first = next((turn.content for turn in turns if turn.content != UNSAID), "")
    session = Session(
        _id(source, facts.get("id"), title, times[0], first),
        title or title_of(first),
        leaf=places.get(current) if isinstance(current, str) else None,
        pinned=facts.get("pinned") is True,
        archived=facts.get("archived") is True,
        titled="user" if title else "",
        said=_seconds(times[1]) or max((turn.created for turn in turns), default=created),
        created=created,
    )
    return session, turns


def _turns(messages: Mapping[str, _Message]) -> tuple[list[Turn], dict[str, int]]:
    """Return the messages that were said, and the number of the turn at or above the place of each message.

    On each path the person and the assistant take turns, because the templates of models demand it. Messages of one
    speaker that follow each other without siblings become one turn; with siblings they become variants.
    """
    parents = _parents(messages)
    followers: dict[str | None, list[str]] = {id: [] for id in (None, *messages)}
    for id, parent in parents.items():
        followers[parent].append(id)
    for id, message in messages.items():
        named = [child for child in _texts_of(message.children) if parents.get(child) == id]
        followers[id] = list(dict.fromkeys([*named, *followers[id]]))
    said, places, seen = list[_Said](), dict[str, int](), set[str]()
    for start in (*followers[None], *messages):  # at last messages that follow each other in a circle
        waiting: list[tuple[str, int | None, bool]] = [(start, None, False)]
        while waiting:
            id, above, alone = waiting.pop()
            if id in seen:
                continue
            seen.add(id)
            message = messages[id]
            if message.role:
                above, alone = _say(message, said, above, alone), True
            if above is not None:
                places[id] = above
            alone = alone and len(followers[id]) == 1
            waiting += [(follower, above, alone) for follower in reversed(followers[id])]
    turns = [
        Turn(one.role, "\n\n".join(one.texts), one.created, number=number, after=one.after)
        for number, one in enumerate(said)
    ]
    return turns, places


def _parents(messages: Mapping[str, _Message]) -> dict[str, str | None]:
    """Return for each message its parent: the one that it names, or else one that names it; None if neither exists."""
    named_by = dict[str, str]()
    for id, message in messages.items():
        for child in _texts_of(message.children):
            named_by.setdefault(child, id)
    found = dict[str, str | None]()
    for id, message in messages.items():
        parent = message.parent if isinstance(message.parent, str) and message.parent in messages else named_by.get(id)
        found[id] = None if parent == id else parent
    return found


def _say(message: _Message, said: list[_Said], above: int | None, alone: bool) -> int:
    """Put a message after the turn `above`. Returns the number of its turn."""
    after = above
    if above is not None and said[above].role == message.role:
        if alone and said[above].length + len(message.text) <= LONGEST_TEXT:
            said[above].texts.append(message.text)
            said[above].length += len(message.text) + 2
            return above
        after = said[above].after
    if after is None and message.role == "assistant":
        said.append(_Said("user", [UNSAID], message.created, None, 0))
        after = len(said) - 1
    said.append(_Said(message.role, [message.text], message.created, after, len(message.text) + 2))
    return len(said) - 1


def _chatgpt_message(node: Any) -> _Message:
    node = _object(node)
    message, place = _object(node.get("message")), {"parent": node.get("parent"), "children": node.get("children")}
    metadata, content = _object(message.get("metadata")), _object(message.get("content"))
    if not message or metadata.get("is_visually_hidden_from_conversation"):
        return _Message(**place)
    texts, others = _pieces(content.get("parts"))
    kind = content.get("content_type")
    role = _object(message.get("author")).get("role")
    if kind not in ("text", "multimodal_text") or message.get("recipient") not in ("all", None):
        role, others = "", True
    text = _MARKER.sub(_marked, "\n\n".join(texts))
    return _message(role, text, bool(others or metadata.get("attachments")), message.get("create_time"), place)


def _open_webui_message(node: Any) -> _Message:
    node = _object(node)
    texts, others = _pieces(node.get("content"))
    text, details = "\n\n".join(texts), False
    if node.get("role") == "assistant":
        text, details = _without_details(text)
    place = {"parent": node.get("parentId"), "children": node.get("childrenIds")}
    others = others or details or bool(node.get("files"))
    return _message(node.get("role"), text, others, node.get("timestamp"), place)


def _message(role: Any, text: str, others: bool, created: Any, place: Mapping[str, Any]) -> _Message:
    """others: it has more than its text."""
    text = text.strip()
    is_said = role in ("user", "assistant") and 0 < len(text) <= LONGEST_TEXT
    whole = not others and (is_said or not text)
    if not is_said:
        return _Message(whole=whole, **place)
    return _Message(role, text, whole, created=_seconds(created), **place)


def _pieces(content: Any) -> tuple[list[str], bool]:
    """Return the texts of a content, and True if there is something else in it."""
    if content is None:
        return [], False
    texts, others = list[str](), False
    for part in content if isinstance(content, list) else [content]:
        text = part
        if isinstance(part, dict) and (part.get("type") or part.get("content_type")) in _TEXTS:
            text = part.get("text")
        if not isinstance(text, str):
            others = True
        elif text.strip():
            texts.append(text)
    return texts, others


def _marked(marker: re.Match[str]) -> str:
    """Return what ChatGPT shows of a marker in a text: the name of a thing, a link, or nothing readable."""
    name, *values = marker[1].split("\ue202")
    if name == "url" and values:
        return f"[{values[0]}]({values[1]})" if len(values) > 1 and values[1].startswith("http") else values[0]
    if name == "entity" and values:
        try:
            told = json.loads(values[0])
        except (ValueError, RecursionError):
            return ""
        return told[1] if isinstance(told, list) and len(told) > 1 and isinstance(told[1], str) else ""
    return ""


def _without_details(text: str) -> tuple[str, bool]:
    """Return the text without Open WebUI's details of thoughts and tools, and True if there were any."""
    kept, start = list[str](), 0
    while (found := _DETAILS.search(text, start)) and (end := text.find("</details>", found.end())) >= 0:
        kept.append(text[start : found.start()])
        start = end + len("</details>")
    return "".join([*kept, text[start:]]), bool(kept)


def _own_chat(entry: Mapping[str, Any]) -> Chat | None:
    """Read a chat that as_json wrote. Raises StoreError("newer")."""
    if entry.get("version") != VERSION:
        raise StoreError(
            "newer", "import.newer", "A newer version of Sonata made this file. Update Sonata to import it."
        )
    turns = dict[int, Turn]()
    told = entry.get("turns")
    for one in told if isinstance(told, list) else ():
        turn = _object(one)
        number, after, content = turn.get("number"), turn.get("after"), turn.get("content")
        if type(number) is not int or not isinstance(content, str) or turn.get("role") not in tuple(SPEAKERS):
            return None
        if number in turns or (after is not None and (type(after) is not int or after >= number)):
            return None
        turns[number] = Turn(
            turn["role"], content, _seconds(turn.get("created")), _object(turn.get("details")), number, after
        )
    ordered, known = list[Turn](), dict[int | None, int | None]({None: None})
    for number in sorted(turns):  # a turn that follows a lost one follows the turn before, as in branches.py
        known[number] = number
        before = ordered[-1].number if ordered else None
        ordered.append(replace(turns[number], after=known.get(turns[number].after, before)))
    if not isinstance(entry.get("id"), str) or not isinstance(entry.get("title"), str):
        return None
    leaf, title = entry.get("leaf"), "" if is_blank(entry["title"]) else entry["title"]
    created = _seconds(entry.get("created")) or time.time()
    return Session(
        _id(FORMAT, entry["id"]), title, leaf=leaf if type(leaf) is int else None,
        pinned=entry.get("pinned") is True, archived=entry.get("archived") is True, titled="user" if title else "",
        said=_seconds(entry.get("said")) or created, created=created,
    ), ordered  # fmt: skip


def _markdown_chat(text: str) -> Chat | None:
    """Read a chat that as_markdown wrote. It has no id, because Markdown has none."""
    found = _MARKDOWN.match(text)
    if found is None:
        return None
    try:
        year, month, day, hour, minute = map(int, found.groups()[2:])
        created = time.mktime((year, month, day, hour, minute, 0, 0, 0, -1))
    except (ValueError, OverflowError):
        return None
    turns, lines = list[Turn](), list[str]()
    role = ""

    def end() -> None:
        if role:
            content = SPEAKER_LINE.sub(lambda line: line[0][:-1], "\n".join(lines).strip())
            turns.append(Turn(role, content, created, number=len(turns), after=len(turns) - 1 if turns else None))

    for line in text[found.end() :].split("\n"):
        if line in _ROLES:
            end()
            role, lines = _ROLES[line], []
        else:
            lines.append(line)
    end()
    title = "" if found["title"] == UNTITLED else found["title"]
    made = Session("", title, leaf=len(turns) - 1, titled="user" if title else "", said=created, created=created)
    return (made, turns) if turns else None


async def _placed(session: Session, sessions: Sessions) -> Session:
    """Return the session with an id. If it has none, it gets the id of a conversation with the same beginning in
    Markdown, or a new one."""
    if session.id:
        return session
    same = (one.id for one in await sessions.all() if heading(one) == heading(session))
    return replace(session, id=next(same, uuid.uuid4().hex))


def _id(source: str, id: Any, *facts: Any) -> str:
    """Return the source's id if it looks like one of ours; otherwise an id that is the same each time."""
    if isinstance(id, str) and re.fullmatch("[0-9a-f][0-9a-f-]{7,63}", id.lower()):
        return id.lower()
    told = json.dumps([source, id, *(() if id else facts)])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _title(title: Any) -> str:
    words = one_line(title) if isinstance(title, str) else ""
    words = words[: whole_end(words, LONGEST_TITLE)]
    return "" if is_blank(words) or words.lower() in _UNNAMED else words


def _seconds(value: Any) -> float:
    """Return seconds since 1970, from seconds or milliseconds; 0 if it is not a time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LATEST_MILLISECONDS:
        return 0.0
    return float(value if value <= LATEST else value / 1000)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts_of(values: Any) -> Iterable[str]:
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, str))
