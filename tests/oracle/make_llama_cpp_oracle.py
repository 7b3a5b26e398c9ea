"""Writes tests/oracle/NAME.json: what llama.cpp says with a larger model, in float32.

    python build.py models 0.5b 1.5b
    python -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python==0.3.36   # compiles for 15 minutes
    /tmp/llama/bin/python tests/oracle/make_llama_cpp_oracle.py ~/.cache/sonata/models/qwen2.5-coder-0.5b.gguf

llama.cpp dequantizes the file's weights to float32 (four bytes a weight, in the temporary folder). Keys and values are
float32, too. For each prompt: its ids, `TOKENS` greedy ids, each with the lead of its logit over the second best, and
every `STRIDE`th logit after the prompt. Nothing of Sonata is imported.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

TOKENS, STRIDE = 48, 64
SYSTEM = "You are a helpful assistant."
QUESTIONS = (
    "Write a Python function that returns the n-th Fibonacci number.",
    "What is the capital of France?",
    "Warum ist der Himmel blau? Antworte in zwei Sätzen.",
    "Extract the names as a JSON list: Ann met Bob in Rome, and Eve stayed at home.",
    "Rewrite politely: give me the report now, it is late already!",
)


def prompt_of(question: str) -> str:
    return f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def float_file(path: Path, folder: str) -> Path:
    """The same model with float32 weights."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = llama_cpp.LLAMA_FTYPE_ALL_F32, True
    made = Path(folder, path.name)
    if llama_cpp.llama_model_quantize(str(path).encode(), str(made).encode(), params):
        raise RuntimeError(f"llama.cpp could not dequantize {path}")
    return made


def record(model: llama_cpp.Llama, question: str) -> dict[str, object]:
    prompt = prompt_of(question)
    ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
    model.reset()
    model.eval(ids)
    greedy, leads, first = [], [], None
    for _ in range(TOKENS):
        logits = np.array(model.scores[model.n_tokens - 1])
        first = logits if first is None else first
        second, best = np.sort(logits)[-2:]
        greedy.append(int(logits.argmax()))
        leads.append(round(float(best - second), 5))
        model.eval([greedy[-1]])
    assert first is not None
    return {
        "prompt": prompt, "prompt_ids": ids, "greedy_ids": greedy, "top2_margin": leads,
        "logits": [round(float(one), 5) for one in first[::STRIDE]],
    }  # fmt: skip


def main() -> None:
    path = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        model = llama_cpp.Llama(
            str(float_file(path, folder)), n_ctx=256, logits_all=True, verbose=False, flash_attn=False,
            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
        )  # fmt: skip
        prompts = [record(model, question) for question in QUESTIONS]
    target = Path(__file__).with_name(f"{path.stem}.json")
    about = {"file": path.name, "llama_cpp_python": llama_cpp.__version__, "stride": STRIDE}
    target.write_text(json.dumps(about | {"prompts": prompts}), "utf-8")


if __name__ == "__main__":
    main()
