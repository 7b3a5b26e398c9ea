"""The quality of a model's predictions of given texts: the figures of `sonata perplexity`.

Perplexity is exp(nats / tokens), where nats are the sum of -log p over the scored tokens. Log-probabilities are
computed on the model's device (`Backend.token_logprobs`).
"""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.lessons.rows import HALF, is_whole
from py_core.backend_errors import BackendError
from py_core.display import shown, why_not_json
from py_core.engine.engine import ReadProgress
from py_core.loading import Model
from py_core.token_sequence import TokenSequence
from py_core.tokenizers.prompts import encode_text


@dataclass(frozen=True)
class MeasuredText:
    """A text of a file, and its line number."""

    line: int
    text: str


@dataclass(frozen=True)
class Score:
    """For one text or several: the number of scored tokens, and the sum of -log p over them."""

    tokens: int
    nats: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nats / self.tokens, 700.0))

    def facts(self) -> dict[str, Any]:
        return {"perplexity": self.perplexity, "tokens": self.tokens, "nats": self.nats}


@dataclass(frozen=True)
class Window:
    """Tokens that are read together; tokens from `start` on are scored."""

    tokens: list[int]
    start: int


def read_texts(path: Path) -> list[MeasuredText]:
    """The texts of a file of JSON lines {"text": "..."}; empty lines are skipped. Raises ValueError, OSError."""
    wanted = 'should be JSON like {"text": "Once upon a time"}'
    found: list[MeasuredText] = []
    # Not splitlines: a text may contain other characters that Unicode counts as the end of a line.
    for number, line in enumerate(path.read_bytes().removeprefix(BOM_UTF8).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError:
            raise ValueError(f"Line {number} of {path} is not text in UTF-8. Save the file as UTF-8.") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Line {number} of {path} {wanted}: {why_not_json(error)}.") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise ValueError(f"Line {number} of {path} {wanted}; this one is {shown(line.decode().strip())}.")
        if not row["text"]:
            raise ValueError(f"The text in line {number} of {path} is empty. Leave the line out.")
        if not is_whole(row["text"]):
            raise ValueError(f"The text in line {number} of {path} {HALF}")
        found.append(MeasuredText(number, row["text"]))
    if not found:
        raise ValueError(f"{path} has no texts: each line {wanted}.")
    return found


def encode_texts(model: Model, texts: Sequence[MeasuredText]) -> list[list[int]]:
    """The tokens of each text, with BOS and EOS if the model's file wants them; special tokens in it are plain text.

    Raises ValueError if a text has nothing to score.
    """
    found = []
    for one in texts:
        ids = encode_text(model.tokenizer, one.text, bos=model.bos)
        if len(ids) < 2:
            raise ValueError(
                f"The text in line {one.line} has one token, and the first token is never scored, as nothing comes "
                "before it. Leave the line out, or make the text longer."
            )
        found.append(ids)
    return found


def windows_of(ids: Sequence[int], most: int, bos: int | None) -> list[Window]:
    """The windows of at most `most` tokens in which a text is read. Each of its tokens but the first is scored once.

    If there are several, each begins half a window after the previous one, and scores the tokens beyond its end: so at
    least half a window comes before such a token. A text that begins with `bos` has it at the start of each window.

    Raises ValueError if a window has no room for that.
    """
    if len(ids) <= most:
        return [Window(list(ids), 1)]
    head = list(ids[:1]) if bos is not None and ids[0] == bos else []
    body, room = ids[len(head) :], most - len(head)
    step = room // 2
    if not step:
        raise ValueError(f"A context of {most} is too short to read a text. Raise it with --context.")
    found, scored = [], 0
    for first in range(0, len(body), step):
        tokens = [*head, *body[first : first + room]]
        found.append(Window(tokens, max(1, len(head) + scored - first)))
        scored = first + room
        if scored >= len(body):
            break
    return found


async def score_texts(
    model: Model, texts: Sequence[MeasuredText], adapter: int = 0, on_progress: ReadProgress = lambda done, total: None,
    head_of: Callable[[str], Awaitable[int]] | None = None,
) -> list[Score]:  # fmt: skip
    """Each text's score. adapter: the number of the set of LoRA matrices to run with (`Engine.add_adapter`).

    head_of: returns the number of the adapter at the head's input with which a text is read, 0 for none. `on_progress`
    gets the number of tokens that were read, and the total. Raises ValueError as `encode_texts` and `windows_of`,
    BackendError if the model gives no probabilities.
    """
    bos = model.tokenizer.bos_id
    work = [windows_of(ids, model.engine.context_length, bos) for ids in encode_texts(model, texts)]
    total = sum(len(window.tokens) for windows in work for window in windows)
    done = 0

    def on_pass(stored: int, of: int) -> None:
        on_progress(done + stored, total)

    sequence = model.engine.new_sequence()
    model.engine.use_adapter(sequence, adapter)
    scores = []
    try:
        for text, windows in zip(texts, work, strict=True):
            tokens, nats = 0, 0.0
            model.engine.use_head_adapter(sequence, await head_of(text.text) if head_of else 0)
            for window in windows:
                found = await _score(model, sequence, window, on_pass)
                done += len(window.tokens)
                tokens, nats = tokens + found.tokens, nats + found.nats
            if not math.isfinite(nats):
                raise BackendError(
                    "cli.no-probabilities",
                    "The model gives no probabilities for the text in line {line}: its numbers "
                    "are not finite. Its file, or the adapter's, may be damaged.",
                    line=text.line,
                )
            scores.append(Score(tokens, nats))
    finally:
        model.engine.free(sequence)
    return scores


async def _score(model: Model, sequence: TokenSequence, window: Window, on_pass: Callable[[int, int], None]) -> Score:
    found = await model.engine.token_logprobs(sequence, window.tokens, window.start, on_pass)
    return Score(len(found), -float(found.sum(dtype="float64")))


def joined(scores: Sequence[Score]) -> Score:
    """The score of all texts together."""
    return Score(sum(one.tokens for one in scores), math.fsum(one.nats for one in scores))
