"""llama.cpp, natively by llama-cpp-python: the process that tests/bench/engine/beside_llama_cpp.py starts.

    PYTHON-WITH-LLAMA-CPP tests/bench/peers/llama_cpp_peer.py MODEL.gguf THREADS wall|cpu

A request a line comes in, its answer a line goes out, both JSON: {"call": NAME, ...arguments}, where NAME is a method
of `Peer`. Times are taken here, by either clock, so what passes between the two processes is in none of them. Tokens
come as ids: of the same file both programs have the same. Nothing of Sonata is imported.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

BATCH = 512
"""Tokens of a pass over a prompt, llama.cpp's own choice."""

GREEDY = {"temp": 0.0, "repeat_penalty": 1.0}


class Together:
    """Several conversations in one context, by the batch API: each pass has a row of each."""

    def __init__(
        self, model: Any, prompts: list[list[int]], tokens: int, threads: int, clock: Callable[[], float],
        settings: dict[str, Any],
    ) -> None:  # fmt: skip
        self._prompts, self._clock = prompts, clock
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        params = llama_cpp.llama_context_default_params()
        longest = max(len(prompt) for prompt in prompts) + tokens
        params.n_ctx = len(prompts) * (-(-longest // 256) * 256)  # its attention takes 256 positions at a time
        params.n_batch = params.n_ubatch = BATCH
        params.n_seq_max = len(prompts)
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = settings["unified"]
        params.flash_attn_type = int(settings["flash"])
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise RuntimeError("llama.cpp could not make a context for the conversations")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def _run(self, rows: list[tuple[int, int, int]], logits: bool) -> None:
        """A pass over rows of token, position and conversation."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for row, (token, position, sequence) in enumerate(rows):
            batch.token[row], batch.pos[row] = token, position
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
            batch.logits[row] = logits
        if code := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {code}")

    def read(self) -> float:
        """Read all prompts but their last tokens. Returns tokens a second."""
        begin = self._clock()
        for sequence, prompt in enumerate(self._prompts):
            rows = [(token, position, sequence) for position, token in enumerate(prompt[:-1])]
            for first in range(0, len(rows), BATCH):
                self._run(rows[first : first + BATCH], False)
        llama_cpp.llama_synchronize(self._context)
        return sum(len(prompt) - 1 for prompt in self._prompts) / (self._clock() - begin)

    def answer(self, tokens: int) -> tuple[float, list[list[int]]]:
        """Return the seconds for `tokens` tokens of each sequence, once the prompts have been read, and the tokens."""
        ends = [len(prompt) for prompt in self._prompts]
        for sequence, end in enumerate(ends):
            llama_cpp.llama_memory_seq_rm(self._memory, sequence, end - 1, -1)
        self._run([(prompt[-1], len(prompt) - 1, number) for number, prompt in enumerate(self._prompts)], True)
        said: list[list[int]] = [[] for _ in ends]
        begin = self._clock()
        for step in range(tokens):
            pointer = llama_cpp.llama_get_logits(self._context)
            logits = np.ctypeslib.as_array(pointer, shape=(len(ends) * self._vocabulary,)).reshape(len(ends), -1)
            newest = logits.argmax(axis=1).tolist()
            for one, token in zip(said, newest, strict=True):
                one.append(token)
            if step + 1 < tokens:
                self._run([(token, ends[number] + step, number) for number, token in enumerate(newest)], True)
        return self._clock() - begin, said

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)


class Peer:
    """Answers the requests of beside_llama_cpp.py. Models are opened when they are first needed, and stay open."""

    def __init__(self, path: str, threads: int, clock: Callable[[], float]) -> None:
        self._path, self._threads, self._clock = path, threads, clock
        self._models: dict[tuple[Any, ...], llama_cpp.Llama] = {}
        self._together: dict[tuple[Any, ...], Together] = {}

    def _model(self, context: int, flash: bool, guesses: int = 0) -> llama_cpp.Llama:
        key = (context, flash, guesses)
        if key not in self._models:
            self._models[key] = llama_cpp.Llama(
                self._path, n_ctx=context, n_batch=BATCH, n_ubatch=BATCH, n_threads=self._threads,
                n_threads_batch=self._threads, flash_attn=flash, verbose=False,
                draft_model=LlamaPromptLookupDecoding(num_pred_tokens=guesses) if guesses else None,
            )  # fmt: skip
        return self._models[key]

    def about(self) -> dict[str, Any]:
        """Return the version of llama.cpp, and the processor features that it uses."""
        return {
            "version": llama_cpp.__version__,
            "system": llama_cpp.llama_print_system_info().decode().strip(),
            "threads": self._threads,
        }

    def first_token(self, tokens: list[int], context: int, flash: bool) -> float:
        """Return the ms from a prompt to the first token. A prefix shared with the last prompt is not read again."""
        model = self._model(context, flash)
        begin = self._clock()
        next(model.generate(tokens, **GREEDY))
        return 1000 * (self._clock() - begin)

    def answer(
        self, prompt: list[int], tokens: int, end: list[int], context: int, flash: bool, guesses: int
    ) -> dict[str, Any]:
        """An answer with or without guesses; the end token counts as one of its tokens."""
        model = self._model(context, flash, guesses)
        model.reset()
        begin = self._clock()
        model.eval(prompt)
        read, said = self._clock(), list[int]()
        for token in model.generate(prompt, **GREEDY):
            said.append(token)
            if token in end or len(said) == tokens:
                break
        return {"tokens": said, "prefill_seconds": read - begin, "seconds": self._clock() - read}

    def read(self, prompts: list[list[int]], tokens: int, **settings: Any) -> float:
        """Open a context for conversations with these prompts and read them; tokens a second."""
        model = self._model(BATCH, False)
        key = (len(prompts), *sorted(settings.items()))
        self._together[key] = Together(model.model, prompts, tokens, self._threads, self._clock, settings)
        return self._together[key].read()

    def together(self, count: int, tokens: int, **settings: Any) -> dict[str, Any]:
        """Return the answers of `count` conversations that `read` has read."""
        seconds, said = self._together[(count, *sorted(settings.items()))].answer(tokens)
        return {"seconds": seconds, "tokens": said}

    def close(self) -> None:
        """Close the contexts, then their models."""
        for one in self._together.values():
            one.close()
        for model in self._models.values():
            model.close()


def main() -> None:
    # llama.cpp may write to the standard output, where only answers belong.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[sys.argv[3]]
    peer = Peer(sys.argv[1], int(sys.argv[2]), clock)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(peer, request.pop("call"))(**request)), file=answers, flush=True)
    peer.close()


if __name__ == "__main__":
    main()
