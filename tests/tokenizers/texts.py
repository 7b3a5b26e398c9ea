"""Texts of every kind, to try tokenizers on."""

from __future__ import annotations

import random

from hypothesis import strategies as st

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    ["the", "and", "of", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are"],
    "0123456789",
    "٠١٢٣٤٥٦٧٨٩०१२३४५६७८९໑໒໓ⅣⅫ²³½⑦㊿𝟘𝟙𝟚𑁦",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяЁЇЄ",
    "αβγδεζηθικλμνξοπρστυφχψωάέήΰ",
    "漢字仮名交じり文日本語中文简体繁體\uff0c。「」、",
    "العربية مكتوبة من اليمينًٌٍَُِّْ",
    "עברית נקודות שָׁלוֹם",
    "देवनागरी लिपि क्षत्रिय",
    "ภาษาไทยไม่มีช่องว่าง",
    "한국어 조선말 가각갂각",
    ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🇫🇷", "🏳️‍🌈", "❤️", "🫠"],
    ["e\u0301", "a\u0308\u0323", "\u0301", "n\u0303o", "Z͑ͫ̓a̴l͟g̷o͠"],
    "\x00\x01\x02\x03\x07\x08\x0e\x0f\x1b\x1c\x1d\x1e\x1f\x7f\x80\x85\x9f\xad\u200b\u200d\u200e\u2060\ufeff\ufffe\uffff",
    " \t\n\r\v\f\xa0\u1680\u2000\u2003\u2009\u2028\u2029\u202f\u205f\u3000",
    [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "        "],
    ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ll", "\u2019s", "'\u017f", "'", "'sx", " 's"],
    ["def f(x):\n    return x**2\n", "{\"a\": [1, 2.5e-3]}", "</div>", "a->b", "!=", "//", "\\n"],
    "!\"#$%&()*+,-./:;<=>?@[]^_`{|}~",
    ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|im_", "|>", "<repo_name>"],
    "ŠšĐđŁłßẞĳﬁﬂ" + "\u0345\u2071ªº\U00020000\U0002f800\U0001f1e6\U000e0001\U000f0000\U0010ffff",
    ["a" * 40, "=" * 60, " " * 50, "\n" * 30, "1" * 30, "ab" * 60, "漢" * 40, "-" * 100],
]  # fmt: skip


def random_text(rng: random.Random) -> str:
    """A few runs, each from one alphabet; now and then one character from anywhere in Unicode."""
    out: list[str] = []
    for _ in range(rng.randint(1, 8)):
        alphabet = rng.choice(ALPHABETS)
        out += rng.choices(alphabet, k=rng.choice((1, 1, 2, 4, 8)))
        if rng.random() < 0.15:
            out.append(chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))))
        if rng.random() < 0.4:
            out.append(rng.choice((" ", "  ", "\n")))
    return "".join(out)


any_text = st.text(st.characters(exclude_categories=["Cs"]))
