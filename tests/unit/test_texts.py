"""The texts of the page: each language says all that English says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app.building.common import ROOT
from app.building.node import node_path

WEB = ROOT / "web"
TOLD = "import * as all from './{name}.js'; console.log(JSON.stringify(Object.values(all)[0]))"

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
