"""The page's settings of how the model runs: read from localStorage, checked, and overridden by the address."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.building.common import ROOT
from app.building.node import node_path

PAGE = """
const kept = new Map(Object.entries(%s));
globalThis.localStorage = {
  getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value),
  removeItem: (key) => kept.delete(key),
};
globalThis.location = new URL('http://localhost/%s');
globalThis.history = { replaceState: (state, title, url) => { globalThis.location = new URL(url); } };
const { RunSettings } = await import('./panels/settings/run_settings.js');
let loads = 0;
const number = (name) => Number(location.searchParams.get(name)) || null;
const run = new RunSettings({
  backend: location.searchParams.get('backend'), precision: location.searchParams.get('precision'),
  context: number('context'), memory: number('memory'), workers: number('workers'),
}, () => { loads += 1; });
%s
console.log(JSON.stringify({
  choice: run.choice, values: run.values, kept: Object.fromEntries(kept), loads, search: location.search,
  said: ['backend', 'context', 'memory', 'workers'].map((name) => run.inAddress(name)),
}));
"""
USUAL = {"backend": "auto", "precision": "precise", "context": None, "memory": None, "workers": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("panels/settings/run_settings.js", "chat/address.js", "common/web_storage.js"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / "web" / name, tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    return tmp_path


def told(folder: Path, kept: dict[str, str], address: str = "", actions: str = "") -> dict[str, Any]:
    (found,) = told_of_each(folder, [kept], address, actions)
    return found


def told_of_each(
    folder: Path, pages: Sequence[dict[str, str]], address: str = "", actions: str = ""
) -> list[dict[str, Any]]:
    """One page after the other, in one process. pages: the stored settings of each."""
    script = folder / "page.mjs"
    blocks = ("{%s}" % (PAGE % (json.dumps(kept), address, actions)) for kept in pages)
    script.write_text("\n".join(blocks), encoding="utf-8")
    ran = subprocess.run([node_path(), script], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_what_was_chosen_is_read(folder: Path) -> None:
    kept = {"sonata.backend": "wasm-fast", "sonata.context": "4096", "sonata.memory": "2000", "sonata.workers": "3"}
    assert told(folder, {})["choice"] == USUAL
    chosen = {"backend": "wasm", "precision": "fast", "context": 4096, "memory": 2000, "workers": 3}
    assert told(folder, kept)["choice"] == chosen


NO_CHOICES = [
    {"sonata.backend": "numpy"}, {"sonata.backend": "constructor"}, {"sonata.backend": ""},
    {"sonata.context": "0"}, {"sonata.context": "-5"}, {"sonata.context": "1e3"}, {"sonata.context": "4096.5"},
    {"sonata.context": "99999999999"}, {"sonata.context": "2000000"}, {"sonata.context": "NaN"},
    {"sonata.memory": "0"}, {"sonata.memory": "2GB"}, {"sonata.memory": "2000000"},
    {"sonata.workers": "17"}, {"sonata.workers": " 2"}, {"sonata.workers": "two"},
]  # fmt: skip


def test_what_is_no_choice_counts_as_none(folder: Path) -> None:
    found = told_of_each(folder, NO_CHOICES)
    taken = [(kept, one["choice"]) for kept, one in zip(NO_CHOICES, found, strict=True) if one["choice"] != USUAL]
    assert taken == []


def test_the_address_comes_first_until_something_is_chosen(folder: Path) -> None:
    kept = {"sonata.backend": "webgpu", "sonata.context": "4096"}
    address = "?backend=wasm&precision=fast&context=512&memory=900&routing=off"
    before = told(folder, kept, address)
    values = {"context": 512, "memory": 900, "workers": None}
    assert before["values"] == {"backend": "wasm-fast"} | values
    assert before["choice"] == {"backend": "wasm", "precision": "fast"} | values
    assert before["said"] == ["backend=wasm&precision=fast", "context=512", "memory=900", None]

    choices = "run.choose('context', 2048); run.choose('backend', 'auto'); run.choose('memory', 1000);"
    after = told(folder, kept, address, choices)
    assert after["choice"] == USUAL | {"context": 2048, "memory": 1000}
    assert after["kept"] == {"sonata.context": "2048", "sonata.memory": "1000"}
    assert after["said"] == [None, None, None, None]
    assert after["search"] == "?routing=off"
    assert after["loads"] == 3


def test_a_length_is_forgotten_with_the_model_but_not_that_of_the_address(folder: Path) -> None:
    reset = told(folder, {"sonata.context": "4096", "sonata.workers": "2"}, "", "run.reset('context');")
    assert reset["choice"] == USUAL | {"workers": 2}
    assert (reset["kept"], reset["loads"]) == ({"sonata.workers": "2"}, 0)
    assert told(folder, {}, "?context=512", "run.reset('context');")["choice"]["context"] == 512


def test_the_cpu_for_now_is_not_remembered(folder: Path) -> None:
    now = told(folder, {"sonata.backend": "webgpu"}, "?backend=webgpu", "run.useCpu();")
    assert now["choice"]["backend"] == "wasm"
    assert now["kept"] == {"sonata.backend": "webgpu"}
    again = told(folder, {"sonata.backend": "webgpu"}, "", "run.useCpu(); run.reread();")
    assert again["choice"]["backend"] == "webgpu"
