"""How a text is cut into words before byte-pair merging: one entry a pre-tokenizer, named as in GGUF files.

The patterns are those of llama.cpp (src/llama-vocab.cpp) and of the models' tokenizer.json. They are written with
\\p{L}, \\p{N} and \\s inside brackets, and run on Python's `re` with those classes spelled out, so a result depends
neither on the `regex` package nor on the Unicode version of the interpreter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from py_core.tokenizers import unicode_ranges

_OTHERS_AND_SPACE = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+"
# The contractions ignore case; U+017F (long s) is the one character outside ASCII that folds to a letter of theirs.
_ANY_CASE_CONTRACTIONS = r"'(?:[sS\u017ftTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"


@dataclass(frozen=True)
class PreTokenizer:
    """A pattern whose successive matches are the words.

    `whole_words`: a word that is in the vocabulary is taken as it is, without merging ("ignore_merges" elsewhere).
    """

    pattern: str
    whole_words: bool = False


PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": PreTokenizer(r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s])|[\s]+"),
    # GPT-2's rule after splitting off each digit: a digit takes no space with it, and white space before it is cut
    # as at the end of the text.
    "smollm": PreTokenizer(r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+|[\p{N}]| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s\p{N}])|[\s]+"),
    "qwen2": PreTokenizer(_ANY_CASE_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}]+|[\p{N}]" + _OTHERS_AND_SPACE),
    "llama-bpe": PreTokenizer(
        _ANY_CASE_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}]+|[\p{N}]{1,3}" + _OTHERS_AND_SPACE, whole_words=True
    ),
}
# Other names that GGUF files use for the same rules.
PRE_TOKENIZERS |= {
    "default": PRE_TOKENIZERS["gpt-2"],
    "llama3": PRE_TOKENIZERS["llama-bpe"],
    "llama-v3": PRE_TOKENIZERS["llama-bpe"],
    "deepseek-r1-qwen": PRE_TOKENIZERS["qwen2"],
}


@cache
def _class_ranges(letter: str, last: int) -> str:
    """The inside of a bracket for class `letter`, up to the code point `last`."""
    table = {"L": unicode_ranges.LETTERS, "N": unicode_ranges.NUMBERS, "s": unicode_ranges.SPACES}[letter]
    out = []
    for item in table.split():
        low, _, high = item.partition("-")
        first, end = int(low, 16), min(int(high or low, 16), last)
        if first <= last:
            out.append(f"\\U{first:08x}-\\U{end:08x}")
    return "".join(out)


@cache
def compiled(name: str, last: int = 0x10FFFF) -> re.Pattern[str]:
    """The pattern of pre-tokenizer `name`, for texts without a character above `last`.

    A text of ASCII, or of the basic plane, runs on a smaller and faster pattern that splits it the same way.
    Raises KeyError for an unknown name.
    """
    pattern = PRE_TOKENIZERS[name].pattern
    pattern = re.sub(r"\\p\{([LN])\}", lambda match: _class_ranges(match[1], last), pattern)
    return re.compile(pattern.replace(r"\s", _class_ranges("s", last)))


_BEYOND_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")


def split(name: str, text: str) -> list[str]:
    """`text` cut into words; joined, they are the text again."""
    if text.isascii():
        return compiled(name, 0x7F).findall(text)
    return compiled(name, 0x10FFFF if _BEYOND_BASIC_PLANE.search(text) else 0xFFFF).findall(text)
