"""Writes tests/oracle/tokenizers.json: llama.cpp's ids of texts, with small vocabularies of each kind.

    PYTHONPATH=. .venv/bin/python tests/oracle/make_tokenizer_oracle.py PROGRAM

PROGRAM prints llama_tokenize's ids of standard input, called as llama.cpp's llama-tokenize is. (That one adds EOS
only where it adds BOS; here it is added, as the function does.) The current file is from llama.cpp 0c1e57098. The
vocabularies are trained here, on Sonata's own documents.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from py_core.formats.gguf_writer import write_gguf
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR
from py_core.tokenizers.pretokenizers import PRE_TOKENIZERS

TARGET = Path(__file__).with_name("tokenizers.json")
PAGES = ("README.md", "docs/develop/contributing.md", "docs/results/cpu.md")
DOCUMENTS = [TARGET.parents[2] / name for name in PAGES]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, _, BYTE = range(1, 7)
BPE_SPECIAL = {
    "<|begin|>": CONTROL, "<|im_end|>": NORMAL, "<|x|>": CONTROL, "|>y<|x": CONTROL, "<tool>": USER_DEFINED,
    "<tool>s": USER_DEFINED, "<unk>": UNKNOWN,
}  # fmt: skip
SPM_SPECIAL = {
    "<|user|>": CONTROL, "<|end|>": CONTROL, "<|endoftext|>": CONTROL, "<tool>": USER_DEFINED, "  ": USER_DEFINED,
    "   ": USER_DEFINED, "\n\n": USER_DEFINED, "\n\n\n": USER_DEFINED,
}  # fmt: skip
TEXTS = [
    "", " ", "  ", "Hello world", "  two  spaces   and more ", "a\n\n\nb\r\n\r\n c\t d \n",
    "I've we'LL 'S it's '\u017fx 're'RE don'T", "1 12 123 1234 12345 a1b22c333 ٣٤٥٦ ²³ Ⅻ",
    "CamelCaseWord ALLCAPS miXed ÀÉcole fooÉcole İstanbul ŐŰ", "x=y+z; if (a<b) { return `c`; } // $5 ^ ~ | @#%&*",
    "漢字かな交じり文、句読点。中文字符\u3000한국어 조선말", "हिन्दी में क्षत्रिय ภาษาไทยไม่มี e\u0301a\u0308 Z͑ͫ̓a̴l͟",
    "Привет, мир! Ёлка Ελληνικά عربيٌ עברית שָׁלוֹם", "😀👩‍👩‍👧‍👦👍🏽🇫🇷 ok", "\x00\x01\x1c\x7f\x85\xa0\u2003\u200b\ufeff",
    "https://x.org/a_b?c=d&e=1.5e-3 <a href='#'>", "the model and the tokenizer of the model are in the model's file",
    "<|x|>a<|x|>y<|x|> <|im_end|>\n<|begin|>", "<tool>s and <tool> s<unk>", "a <s> b </s>  c<s>\n\n<unk> d",
    "<|user|>\nHi<|end|> \n\t there<|endoftext|> \n end<tool>  \n x", "\u2581under\u2581 line", "<0x41><0x0A>",
    "...!?\"'), ([{ -- --- ==== ////\n////", "tail white space \t \n ", "\U00020000\U0001d7d8\ue000\ufffd",
]  # fmt: skip


def trained(spaces: pre_tokenizers.PreTokenizer, alphabet: list[str], size: int) -> tuple[list[str], list[str]]:
    """Tokens and merges of a BPE model over the documents."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = spaces
    made.train_from_iterator(
        [path.read_text(encoding="utf-8") for path in DOCUMENTS],
        trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False),
    )
    model = json.loads(made.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].get), merges


def bpe() -> dict[str, Any]:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), byte_level])
    _, merges = trained(words, list(BYTE_TO_CHAR.values()), 500)
    rng = random.Random(1)
    bytes_ = list(BYTE_TO_CHAR.values())
    # Some more that cross the borders of pre-tokenizers, and tokens that no merge makes.
    crossing = [f"{rng.choice(bytes_)} {rng.choice(bytes_)}" for _ in range(200)]
    crossing += ["Ġ 1", "1 2", "2 3", "Ġ Ġ", "Ċ Ċ", "Ġ '", "' s", "s Ċ", ") ;", ". Ċ", "Ġ (", "a 1", "L L", "e R"]
    merges = list(dict.fromkeys([*merges, *crossing]))
    rng.shuffle(merges)
    tokens = dict.fromkeys(bytes_)
    for merge in sorted(merges, key=len):
        tokens |= dict.fromkeys([*merge.split(" "), merge.replace(" ", "")])
    tokens |= dict.fromkeys(["Hello", "Ġworld", "tokenizer", "12", "123", "Ġfile", *BPE_SPECIAL])
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": [BPE_SPECIAL.get(token, NORMAL) for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": list(tokens).index("<|begin|>"),
        "tokenizer.ggml.eos_token_id": list(tokens).index("<|im_end|>"),
    }


def spm() -> dict[str, Any]:
    pieces, _ = trained(pre_tokenizers.Metaspace(), [], 400)
    types = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL} | {f"<0x{byte:02X}>": BYTE for byte in range(256)}
    types |= dict.fromkeys(["\u2581", "\u2581\u2581", "\u2581\u2581\u2581\u2581"], NORMAL)
    types |= dict.fromkeys(pieces, NORMAL) | SPM_SPECIAL
    scores = [-float(index) for index in range(len(types))]
    random.Random(2).shuffle(scores)  # so that their ids do not reveal them
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(types),
        "tokenizer.ggml.token_type": list(types.values()),
        "tokenizer.ggml.scores": [
            0.0 if kind != NORMAL else score for kind, score in zip(types.values(), scores, strict=True)
        ],
    }


def cases() -> dict[str, dict[str, Any]]:
    """Metadata by name: "vocabulary" names one of the two above, the rest changes it."""
    out: dict[str, dict[str, Any]] = {
        name: {"vocabulary": "bpe", "tokenizer.ggml.pre": name} for name in PRE_TOKENIZERS
    }
    shown: dict[tuple[Any, ...], str] = {}
    for name in list(out):  # one of each rule is enough
        rule = PRE_TOKENIZERS[name]
        if shown.setdefault((rule, name in ("olmo", "command-r")), name) != name:
            del out[name]
    out["no rules"] = {"vocabulary": "bpe"}
    out["bos and eos"] = {
        "vocabulary": "bpe", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
    }  # fmt: skip
    out["llama-bpe without bos"] = {
        "vocabulary": "bpe", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False
    }  # fmt: skip
    out["llama"] = {"vocabulary": "spm"}
    out["phi-3"] = {"vocabulary": "spm", "general.name": "Tiny Phi-3"}
    out["gemma"] = {"vocabulary": "spm", "tokenizer.ggml.add_space_prefix": False}
    out["llama with eos, without bos"] = {
        "vocabulary": "spm", "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True
    }  # fmt: skip
    return out


def main(program: str) -> None:
    vocabularies = {"bpe": bpe(), "spm": spm()}
    made: dict[str, Any] = {"vocabularies": vocabularies, "texts": TEXTS, "cases": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, changes in cases().items():
            changes = dict(changes)
            vocabulary = changes.pop("vocabulary")
            path = Path(folder) / "vocabulary.gguf"
            named = {"general.architecture": "llama", "general.name": "tiny"}
            write_gguf(path, {**named, **vocabularies[vocabulary], **changes}, {})

            def ids(*flags: str, path: Path = path) -> list[list[int]]:
                command = [program, "-m", str(path), "--ids", "--stdin", "--no-escape", "--log-disable", *flags]
                runs = [subprocess.run(command, input=text.encode(), capture_output=True, check=True) for text in TEXTS]
                return [json.loads(run.stdout) for run in runs]

            made["cases"][name] = {
                "vocabulary": vocabulary, "changes": changes, "plain": ids("--no-bos", "--no-parse-special"),
                "prompt": ids(),
            }  # fmt: skip
    TARGET.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
