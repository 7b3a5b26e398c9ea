"""Modules of the page that need no page, run by node."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from app.building.common import ROOT
from app.building.node import node_path

CALL = """
import { readFileSync } from 'node:fs';
const [source, name, given] = JSON.parse(readFileSync(0, 'utf8'));
const module = await import(`data:text/javascript,${encodeURIComponent(source)}`);
console.log(JSON.stringify(given.map((values) => module[name](...values))));
"""


def called(path: str, name: str, given: Sequence[Sequence[Any]]) -> list[Any]:
    """What a function of a module without imports gives, for each list of arguments."""
    told = json.dumps([Path(ROOT / "web" / path).read_text("utf-8"), name, given])
    command = [node_path(), "--input-type=module", "-e", CALL]
    return json.loads(subprocess.run(command, input=told, capture_output=True, text=True, check=True).stdout)


def test_only_a_clearly_larger_model_is_offered_what_the_shipped_one_cannot_do() -> None:
    sizes = [None, 0, 134_515_008, 494_032_768, 1_100_048_384, 1_235_814_400, 3_085_938_688]
    unknown, nothing, shipped, half, small, *larger = called(
        "chat/cards.js", "cardsFor", [[size, "en"] for size in sizes]
    )
    assert unknown is nothing is shipped is half is small is None  # the cards of index.html
    for cards in larger:
        assert [card["name"] for card in cards] == ["summarise", "rewrite", "code", "plan"]
        # What needs the user's text waits for it, with the cursor behind it.
        assert [card.get("isDraft", False) for card in cards] == [True, True, False, False]


def test_where_the_shipped_model_does_not_know_the_language_its_cards_are_not_offered() -> None:
    small, large = called("chat/cards.js", "cardsFor", [[134_515_008, "de"], [3_085_938_688, "de"]])
    assert [card["name"] for card in small] == ["compute", "convert", "days", "teach"]
    assert [card["name"] for card in large] == ["summarise", "rewrite", "code", "plan"]


def test_a_difference_by_words_gives_both_texts_back_and_marks_as_little_as_it_can() -> None:
    texts = [
        ("", ""), ("", "One two"), ("One two", ""), ("It is called  Sandholm.", "It is called the Grey Heron."),
        ("a b c a b b a", "c b a b a c"), ("Ein Wort\nnoch eins", "Ein anderes Wort\nnoch eins"),
    ]  # fmt: skip
    for (before, after), pieces in zip(texts, called("common/word_diff.js", "wordDiff", texts), strict=True):
        for kind, text in (("gone", before), ("new", after)):
            kept = "".join(piece["text"] for piece in pieces if piece["kind"] in ("same", kind))
            assert kept.split() == text.split()
        assert all(one["kind"] != other["kind"] for one, other in pairwise(pieces))
    *_, ferry, letters, inserted = called("common/word_diff.js", "wordDiff", texts)
    assert [(piece["kind"], piece["text"].strip()) for piece in ferry] == [
        ("same", "It is called"), ("gone", "Sandholm."), ("new", "the Grey Heron."),
    ]  # fmt: skip
    assert sum(len(piece["text"].split()) for piece in letters if piece["kind"] == "same") == 4
    assert [piece["kind"] for piece in inserted] == ["same", "new", "same"]


def test_keys_of_an_input_method_are_nobody_elses() -> None:
    for path in sorted(Path(ROOT / "web").rglob("*.js")):
        text = path.read_text("utf-8")
        listens = re.findall(r"(?:addEventListener|\blisten)\(.*'key(?:down|up|press)'|@key(?:down|up|press)=", text)
        assert text.count("ownKeys(") >= len(listens), path.name
