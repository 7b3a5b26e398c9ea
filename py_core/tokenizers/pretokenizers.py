"""Cuts a text into words before byte-pair merging: one entry per pre-tokenizer, named as in GGUF files.

The patterns are those of llama.cpp (src/llama-vocab.cpp), which made the files. If a model's own tokenizer.json cuts
differently, the file was still tested with llama.cpp's rules. (The rules of `_by_case` are those of the tokenizer.json,
which distinguishes capitals from small letters; llama.cpp's engine treats every letter as both.) Several patterns run
in sequence: each cuts what the previous ones have left; its matches and the text between them become separate words.

They are written with \\p{...} and \\s inside brackets, and run on Python's `re` with these classes spelled out. So the
result depends neither on the `regex` package nor on the Unicode version of the interpreter.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from py_core.tokenizers import unicode_ranges


@dataclass(frozen=True)
class Thousands:
    """A step that cuts runs of digits into threes from their right end. A pattern would look ahead from each digit to
    the end of its run, which is quadratic in the run's length.

    runs: a pattern of the runs. apart: True if a run is a separate word; otherwise it is only cut before each three.
    """

    runs: str
    apart: bool


@dataclass(frozen=True)
class PreTokenizer:
    """`patterns` run in this order. If there is only one, it must cover every text.

    `whole_words`: a word in the vocabulary is used without merging (called "ignore_merges" elsewhere).
    `adds_bos`: a prompt begins with BOS if the file does not say.
    """

    patterns: tuple[str | Thousands, ...]
    whole_words: bool = False
    adds_bos: bool = False


_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s])|[\s]+"
# GPT-2's rule after splitting off each digit: a digit takes no space with it, and white space before it is cut as at
# the end of the text.
_DIGITS_THEN_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+|[\p{N}]| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s\p{N}])|[\s]+"
_CONTRACTIONS = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_SPACE_AT_END = r"|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+"
_OTHERS_AND_SPACE = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACE_AT_END
_LLAMA_3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}]+|[\p{N}]{1,3}" + _OTHERS_AND_SPACE
_QWEN_2 = _LLAMA_3.replace("{1,3}", "")


def _cased(digits: str, suffix: str = "") -> str:
    """Words that change from capitals to small letters once, as in "CamelCase". Letters beyond ASCII count as both."""
    begin, capitals, small = r"[^\r\n\p{L}\p{N}]?", r"[A-Z\p{WideL}]", r"[a-z\p{WideL}]"
    words = f"{begin}{capitals}*{small}+{suffix}|{begin}{capitals}+{small}*{suffix}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + _SPACE_AT_END


# The letters that have an upper and a lower case, and the ideographs and syllables, as DeepSeek's tokenizer lists them.
_DEEPSEEK_CASED = """
41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5
3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15
1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC
1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D
212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B
A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB
10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943
"""
_DEEPSEEK_PUNCTUATION = "21-2F 3A-7E 2018-201F 3001-3002 FF01-FF0F FF1A-FF5E"
_DEEPSEEK_ASIAN = "800-167F 1681-1FFF 200B-2027 202A-202E 2030-205E 2060-2FFF 3001-9FA5 AC00-D7FF"


def _by_case(digits: str, newlines: str = "/", without: str = "") -> str:
    """Like `_cased`, with each letter's own case; letters without a case count as both, and so do marks.

    without: a class whose letters are excluded.
    """
    inside = f"(?!{without})" if without else ""
    begin, capital, small = r"[^\r\n\p{L}\p{N}]?", rf"{inside}[\p{{Capital}}]", rf"{inside}[\p{{Small}}]"
    suffix = f"(?:{_CONTRACTIONS})?"
    words = f"{begin}(?:{capital})*(?:{small})+{suffix}|{begin}(?:{capital})+(?:{small})*{suffix}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n{newlines}]*" + _SPACE_AT_END


_BLOOM_ENDS = r"(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)"
"""Bloom's words end before these; the text between two words is a word, too."""
_BLOOM = rf" ?[^{_BLOOM_ENDS}]+|[{_BLOOM_ENDS}]+?(?= ?[^{_BLOOM_ENDS}]|\Z)"
_WHOLE_NUMBERS = r"(?<![\p{Nd}])[\p{Nd}]++(?![\p{Word}])"
_YOUTU_SCRIPTS = (
    r"[\uac00-\ud7a3\u3131-\u318e]+|"
    r"[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    r"[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u30ff]+"
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": PreTokenizer((_GPT_2,)),
    # For files without a name: more than GPT-2's rule.
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT_2, r"[\p{N}]+", "[0-9][0-9][0-9]")),
    "smollm": PreTokenizer((_DIGITS_THEN_GPT_2,)),
    "qwen2": PreTokenizer((_QWEN_2,)),
    "qwen35": PreTokenizer(
        (_QWEN_2.replace(r"?[\p{L}]+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}"),)
    ),
    "llama-bpe": PreTokenizer((_LLAMA_3,), whole_words=True, adds_bos=True),
    "smaug-bpe": PreTokenizer((_LLAMA_3,)),
    "tekken": PreTokenizer((_cased(r"[\p{N}]"),), whole_words=True, adds_bos=True),
    "gpt-4o": PreTokenizer((_cased(r"[\p{N}]{1,3}", f"(?:{_CONTRACTIONS})?"),)),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            r"[\s]?[\p{DeepSeekCased}]+",
            r"[\s]?[\p{DeepSeekPunctuation}]+",
            r"[\s]+\Z",
            r"[\p{DeepSeekAsian}]+",
            r"[\p{N}]+",
        )
    ),
    "deepseek-coder": PreTokenizer(
        (r"[\r\n]", r"[\s]?[\p{L}]+", r"[\s]?[\p{P}]+", r"[\p{DeepSeekAsian}]+", r"[\p{N}]")
    ),
    "deepseek-v3": PreTokenizer(
        (
            r"[\p{N}]{1,3}",
            r"[\u4e00-\u9fa5\u3040-\u30ff]+",
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + _SPACE_AT_END,
        )
    ),
    "falcon": PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT_2, "[0-9][0-9][0-9]")),
    "bloom": PreTokenizer((_BLOOM,)),
    "viking": PreTokenizer((_BLOOM, r"[\p{N}]")),
    "seed-coder": PreTokenizer((_QWEN_2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+"),)),
    "superbpe": PreTokenizer((r"[\p{N}]+", Thousands(r"[\p{Nd}]+", apart=False))),
    "minicpm5": PreTokenizer((r"[\p{N}]{1,3}", _LLAMA_3.replace("{1,3}", "+")), whole_words=True),
    "ufakzeka": PreTokenizer((_QWEN_2.removeprefix(_CONTRACTIONS + "|"),)),
    "kimi-k2": PreTokenizer((r"[\p{Han}]+|" + _by_case(r"[\p{N}]{1,3}", newlines="", without=r"[\p{Han}]"),)),
    "tiny_aya": PreTokenizer((Thousands(_WHOLE_NUMBERS, apart=True), _by_case(r"[\p{N}]{1,3}"))),
    "youtu": PreTokenizer((_YOUTU_SCRIPTS, _by_case(r"[\p{N}]")), whole_words=True),
}


def _alias(same_rule: str, *names: str) -> dict[str, PreTokenizer]:
    return dict.fromkeys(names, PRE_TOKENIZERS[same_rule])


PRE_TOKENIZERS |= {
    **_alias("gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "exaone4", "gigachat", "a.x-4.0", "mellum"),
    **_alias("gpt-2", "granite-docling", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert"),
    **_alias("smollm", "command-r", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"),
    **_alias("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
    **_alias("smaug-bpe", "dbrx", "chatglm-bpe", "glm4"),
    **_alias("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2", "kormo", "solar-open"),
    **_alias("qwen2", "bailingmoe", "bailingmoe2", "llada-moe", "f2llmv2"),
    **_alias("gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"),
    **_alias("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
    **_alias("bloom", "poro-chat", "gpt3-finnish"),
    **_alias("tiny_aya", "cohere2moe"),
}


def _class_ranges(table: str, last: int) -> str:
    """The inside of a bracket for a class of characters, up to the code point `last`."""
    out = []
    for item in table.split():
        low, _, high = item.partition("-")
        first, end = int(low, 16), min(int(high or low, 16), last)
        if first <= last:
            out.append(f"\\U{first:08x}-\\U{end:08x}")
    return "".join(out) or "\\U0010ffff"  # a bracket must not be empty; this code point is no character


@cache
def _of_case(other: str) -> str:
    """The table of letters and marks without letters of case `other`, "Lu" or "Ll" (Unicode keeps these stable)."""
    ranges: list[list[int]] = []
    for item in unicode_ranges.LETTERS.split():
        low, _, high = item.partition("-")
        for code in range(int(low, 16), int(high or low, 16) + 1):
            if unicodedata.category(chr(code)).replace("Lt", "Lu") == other:
                continue
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return " ".join([*(f"{first:X}-{last:X}" for first, last in ranges), unicode_ranges.MARKS])


_CLASSES = {
    "L": unicode_ranges.LETTERS,
    "WideL": unicode_ranges.LETTERS.replace("41-5A 61-7A ", "", 1),
    "N": unicode_ranges.NUMBERS,
    "P": unicode_ranges.PUNCTUATION,
    "S": unicode_ranges.SYMBOLS,
    "M": unicode_ranges.MARKS,
    "s": unicode_ranges.SPACES,
    "Nd": unicode_ranges.DIGITS,
    "Han": unicode_ranges.HAN,
    "Word": " ".join((unicode_ranges.LETTERS, unicode_ranges.MARKS, unicode_ranges.DIGITS, unicode_ranges.OTHER_WORD)),
    "DeepSeekCased": _DEEPSEEK_CASED,
    "DeepSeekPunctuation": _DEEPSEEK_PUNCTUATION,
    "DeepSeekAsian": _DEEPSEEK_ASIAN,
}
_OTHER_CASE = {"Capital": "Ll", "Small": "Lu"}


@cache
def _spelled_class(name: str, last: int) -> str:
    if name in _OTHER_CASE:
        return _class_ranges(_of_case(_OTHER_CASE[name]), last)
    return _class_ranges(_CLASSES[name], last)


@dataclass(frozen=True)
class _ThousandsStep:
    runs: re.Pattern[str]
    apart: bool

    def split(self, text: str) -> list[str]:
        """Like `re.split`: some of the parts may be empty."""
        parts, at = [], 0
        for match in self.runs.finditer(text):
            first, end = match.start() + len(match[0]) % 3, match.end()
            cuts = [*range(first, end, 3)]
            for cut in [match.start(), *cuts, end] if self.apart else cuts:
                parts.append(text[at:cut])
                at = cut
        return [*parts, text[at:]]


@cache
def compiled(name: str, last: int = 0x10FFFF) -> tuple[re.Pattern[str] | _ThousandsStep, ...]:
    """The steps of pre-tokenizer `name`, for texts without a character above `last`.

    A text within ASCII or the basic plane runs on smaller and faster patterns that split it the same way.
    Raises KeyError for an unknown name.
    """

    def step(one: str | Thousands) -> re.Pattern[str] | _ThousandsStep:
        if isinstance(one, Thousands):
            return _ThousandsStep(re.compile(_spelled(one.runs, last)), one.apart)
        pattern = _spelled(one, last)
        return re.compile(f"({pattern})" if len(steps) > 1 else pattern)  # a group: re.split keeps what it cuts at

    steps = PRE_TOKENIZERS[name].patterns
    return tuple(map(step, steps))


def _spelled(pattern: str, last: int) -> str:
    pattern = re.sub(r"\\p\{(\w+)\}", lambda match: _spelled_class(match[1], last), pattern)
    return pattern.replace(r"\s", _spelled_class("s", last))


_BEYOND_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")


def split(name: str, text: str) -> list[str]:
    """Cut `text` into words; joined, they give the text again."""
    if text.isascii():
        patterns = compiled(name, 0x7F)
    else:
        patterns = compiled(name, 0x10FFFF if _BEYOND_BASIC_PLANE.search(text) else 0xFFFF)
    if isinstance(patterns[0], re.Pattern) and len(patterns) == 1:
        return patterns[0].findall(text)
    words = [text]
    for pattern in patterns:
        words = [part for word in words for part in pattern.split(word) if part]
    return words
