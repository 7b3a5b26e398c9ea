"""A folder with any settings and any tokenizer is converted, or refused with a sentence without leaving a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from app.models.converting.converter import convert_folder
from app.models.converting.folder import ConvertError
from tests.fuzz.harness import found_before, fuzzed, hostile, read_or_refused
from tests.models.converting.folders import FOLDERS

CASES = {case.name: case for case in FOLDERS}
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
WRITTEN_OUT = ("vocab", "merges")
"""Lists of a tokenizer whose items are not changed one by one."""
ROOM_OF_NAMES = 128 << 20
"""The package gguf makes a table of every tensor's names in all architectures, for 1,024 layers at most."""

numbers = st.sampled_from([float("nan"), float("inf"), 10**400, -1, 0, 0.5, 1 << 40, 1e300])
values = hostile | numbers | st.dictionaries(st.sampled_from(["type", "factor", "content", "id"]), hostile, max_size=2)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside of a JSON object."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        if key not in WRITTEN_OUT:
            yield from places(inner, (*at, key))


def convert(name: str, changes: Mapping[str, Any]) -> None:
    """The folder `name` with other values: by "FILE PLACE", in which a place is a number of `places`, or a new key
    for a value that is not there yet."""
    with tempfile.TemporaryDirectory() as base:
        folder, out = CASES[name].write(Path(base)), Path(base) / "out.gguf"
        for where, value in changes.items():
            file, place = where.split(" ", 1)
            described = inner = json.loads((folder / file).read_text(encoding="utf-8"))
            ways = list(places(described))
            *way, last = ways[int(place) % len(ways)] if place.isdigit() and ways else (place,)
            for key in way:
                inner = inner[key]
            inner[last] = value
            (folder / file).write_text(json.dumps(described), encoding="utf-8")
        with read_or_refused(ConvertError, room=ROOM_OF_NAMES):
            convert_folder(folder, out, lambda done, total: None)
        assert out.exists() or [path.name for path in Path(base).iterdir()] == [name]


@found_before("folders")
def test_folders_that_were_found_before(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    convert(found["folder"], found["changes"])


@fuzzed(
    st.sampled_from(sorted(CASES)),
    st.dictionaries(
        st.tuples(st.sampled_from(FILES), st.integers(0, 300).map(str)).map(" ".join), values, min_size=1, max_size=3
    ),
    share=0.3,
)
def test_any_folder_is_converted_or_refused(name: str, changes: Mapping[str, Any]) -> None:
    convert(name, changes)
