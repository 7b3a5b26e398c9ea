"""The English of the repository is free of a few turns of phrase that make sentences hard to read. Data and texts of
other languages are not searched."""

from __future__ import annotations

import re
import subprocess

import pytest

from app.building.common import ROOT

SEARCHED = (".py", ".js", ".mjs", ".cjs", ".md", ".wgsl", ".c", ".h", ".css")
OTHERS = ("web/i18n/de/", "tests/passages/texts/", "docs/licenses/", "tests/building/test_english.py")
REFUSED = {
    "a docstring begins with its noun": r'(?:"""|/\*\* ?)(?:Of|What|Whether) ',
    "say *again*": r"\banew\b",
    "say *instead of*": r"\bin place of\b",
    "say *if*": r"\b[Ww]here (?:there (?:is|are) (?:no|none)\b|nobody\b|(?:this|that) (?:is|does)\b)",
    "name the noun": r"\b(?:[Oo]f|[Oo]nly|[Aa]fter|[Ff]or|[Tt]han|[Ww]ith) so (?:many|much)\b(?! (?:more|as|that)\b)",
    "say *is not a*": r"(?<![Tt]here )\bis no (?:file|part|name|number|text|key|host|JSON|GGUF|model|adapter|table)\b",
    "a program is *it*": r"\b(?:who|whoever) (?:works|waits|begins|reads|writes|needs|holds)\b",
}


def searched() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name.endswith(SEARCHED) and not name.startswith(OTHERS)]
    return {name: path.read_text(encoding="utf-8") for name in names if (path := ROOT / name).is_file()}


def faults(text: str) -> list[str]:
    """The rules that a text breaks, with the lines."""
    return [
        f"{text.count(chr(10), 0, found.start()) + 1}: {advice}: {found[0]}"
        for advice, pattern in REFUSED.items()
        for found in re.finditer(pattern, text)
    ]


def test_no_file_has_a_turn_of_phrase_that_is_refused() -> None:
    texts = searched()
    assert len(texts) > 1000
    found = [f"{name}:{fault}" for name, text in texts.items() if name != "CHANGELOG.md" for fault in faults(text)]
    assert not found, "reword these lines (docs/develop/contributing.md):\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("refused", "better"),
    [
        ('"""Of a run: its time."""', '"""The time of a run."""'),
        ("/** What a model takes. */", "/** The memory that a model takes. */"),
        ('"""Whether it runs."""', '"""True if it runs."""'),
        ("It is made anew.", "It is made again."),
        ("An index in place of a scan.", "An index instead of a scan."),
        ("It is 0 where there is none.", "It is 0 if there is none. It stays where it is."),
        ("It ends after so many.", "It ends after `count` steps. There are so many that it ends."),
        ("The value is no number.", "The value is not a number. There is no number."),
        ("Who waits gives its slot to whoever needs it.", "A waiting sequence gives up its slot."),
    ],
)
def test_a_rule_refuses_its_phrase_and_allows_the_better_one(refused: str, better: str) -> None:
    assert faults(refused) != []
    assert faults(better) == []
