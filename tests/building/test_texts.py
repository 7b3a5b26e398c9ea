"""The texts of the page: each language covers all of the English."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.building.common import ROOT
from app.building.node import node_path

WEB = ROOT / "web"
TOLD = "import * as all from './{name}.js'; console.log(JSON.stringify(Object.values(all)[0]))"

# Texts that are allowed in the code, and why, besides the English of a message (test_engine_texts.py).
ALLOWED = {
    "api/": "said to programs, in English",
    "memory/relocation.js": "said to Python",
    "common/own_script.js": "a mistake in a program",
    "language_model.js": "said to programs, in English",
    "mcp/": "said to the model, in English",
    "sonata.js": "said to programs, in English",
    "sw.js": "said to programs, in English, or to nobody",
    "tools/": "said to the model, in English",
    "turn/turn_view.js": "an opinion, for code",
}

Catalogue = dict[str, dict[str, str | dict[str, str]]]


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Catalogue]:
    folder = tmp_path_factory.mktemp("texts") / "i18n"
    shutil.copytree(WEB / "i18n", folder)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    found = {}
    for path in sorted(folder.glob("??.js")):
        (folder / "tell.js").write_text(TOLD.format(name=path.stem), encoding="utf-8")
        told = subprocess.run([node_path(), folder / "tell.js"], capture_output=True, text=True, check=True)
        found[path.stem] = json.loads(told.stdout)
    return found


def entries(catalogue: Catalogue) -> dict[str, str | dict[str, str]]:
    return {f"{section}.{key}": entry for section, keys in catalogue.items() for key, entry in keys.items()}


def names_in(entry: str | dict[str, str]) -> set[str]:
    texts = [entry] if isinstance(entry, str) else list(entry.values())
    return {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}


def used_keys() -> dict[str, Path]:
    """Keys that the page's files name in full."""
    used = {}
    for path in [*WEB.rglob("*.js"), *WEB.rglob("*.html")]:
        source = path.read_text(encoding="utf-8")
        for key in re.findall(r"""\bt\(\s*['"](\w+\.\w+)['"]|data-t(?:-[a-z-]+)?="(\w+\.\w+)\"""", source):
            used["".join(key)] = path
    return used


def test_each_language_has_the_keys_of_english(catalogues: dict[str, Catalogue]) -> None:
    assert "de" in catalogues
    for language, catalogue in catalogues.items():
        assert entries(catalogue).keys() == entries(catalogues["en"]).keys(), language


def test_each_sentence_takes_the_same_values_in_each_language(catalogues: dict[str, Catalogue]) -> None:
    english = entries(catalogues["en"])
    for language, catalogue in catalogues.items():
        for key, entry in entries(catalogue).items():
            assert isinstance(entry, dict) == isinstance(english[key], dict), (language, key)
            assert names_in(entry) == names_in(english[key]), (language, key)


def test_no_sentence_is_empty_and_a_plural_has_both_forms(catalogues: dict[str, Catalogue]) -> None:
    for language, catalogue in catalogues.items():
        for key, entry in entries(catalogue).items():
            texts = {"": entry} if isinstance(entry, str) else entry
            assert all(text.strip() == text and text for text in texts.values()), (language, key)
            assert isinstance(entry, str) or entry.keys() == {"one", "other"}, (language, key)


def test_each_key_that_the_page_uses_is_there(catalogues: dict[str, Catalogue]) -> None:
    used = used_keys()
    assert {key: path.name for key, path in used.items() if key not in entries(catalogues["en"])} == {}


def test_each_section_stands_in_the_same_file_of_each_language(catalogues: dict[str, Catalogue]) -> None:
    places = {
        language: {
            (path.name, section)
            for path in (WEB / "i18n" / language).glob("*.js")
            for section in re.findall(r"^export const (\w+) = \{$", path.read_text(encoding="utf-8"), re.M)
        }
        for language in catalogues
    }
    for language, catalogue in catalogues.items():
        assert places[language] == places["en"], language
        assert {section for _, section in places[language]} == set(catalogue), language
        assert len(places[language]) == len(catalogue), "two files have a section of the same name"


@cache
def texts_in_code() -> list[dict[str, str]]:
    """`path`, `line` and `text` of each text in the page's JavaScript, with {} for a value."""
    script = Path(__file__).with_name("texts_in_code.cjs")
    told = subprocess.run([node_path(), "--expose-internals", script, WEB], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)  # type: ignore[no-any-return]


def test_each_text_of_the_code_is_in_the_catalogue() -> None:
    found = [text for text in texts_in_code() if not text["path"].startswith(tuple(ALLOWED))]
    assert found == [], "use t(), and add these to web/i18n/en and web/i18n/de"


def test_numbers_and_dates_are_written_by_the_page_s_format() -> None:
    own = ("i18n/", "common/format.js", "backends/", "downloads/", "storage/", *ALLOWED)  # workers know no language
    by_hand = re.compile(r"\.toFixed\(|\.toLocale\w*String\(|\.to(Date|Time)String\(\)\}|Intl\.(Number|DateTime)Format")
    found = {
        name
        for path in WEB.rglob("*.js")
        if not (name := path.relative_to(WEB).as_posix()).startswith(own)
        and by_hand.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"sidebar/groups.js"}, "use common/format.js; groups.js names months"


class Markup(HTMLParser):
    """The texts of index.html: `named` by a key, and `bare` ones without."""

    def __init__(self) -> None:
        super().__init__()
        self.named: dict[str, str] = {}
        self.bare: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("title", "placeholder", "aria-label"):
            if text := values.get(name):
                self._see(text, values.get(f"data-t-{name}"))
        if tag not in {"meta", "link", "img", "input", "use", "br"}:
            self._open.append((tag, values))

    def handle_endtag(self, tag: str) -> None:
        if tag in (name for name, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        inside = [tag for tag, _ in self._open]
        if re.search("[A-Za-z]{2}", data) and not {"noscript", "title", "script"} & set(inside):
            self._see(data.strip(), self._open[-1][1].get("data-t"))

    def _see(self, text: str, key: str | None) -> None:
        is_silent = any(tag == "dialog" or values.get("lang") for tag, values in self._open[1:])
        if key:
            self.named[key] = text
        elif text != "Sonata" and not is_silent:
            self.bare.append(text)


def test_each_text_of_the_markup_is_that_of_the_catalogue(catalogues: dict[str, Catalogue]) -> None:
    page = Markup()
    page.feed((WEB / "index.html").read_text(encoding="utf-8"))
    assert page.bare == []
    english = entries(catalogues["en"])
    assert {key: english.get(key) for key in page.named} == page.named
