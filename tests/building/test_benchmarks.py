"""Each benchmark still runs: one round, as small as its options allow."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.building.common import ROOT
from tests.bench.__main__ import benchmarks

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
_NAME = re.compile(r"tests\.bench (\w+)")
NAMED = sorted({name for page in PAGES for name in _NAME.findall(page.read_text("utf-8"))})
SIZES = "--shape smollm2-135m --layers 1 --hidden 64 --heads 2 --kv-heads 1 --ffn 256 --vocabulary 512 --format Q8_0"
OPTIONS = {
    "answer_settings": "--backend wasm --kinds plans --settings plain",
    "analyst": "--model smollm2-135m-instruct --only missing",
    "analyst_page": "--model smollm2-135m-instruct",
    "adapters": "--engine wasm --rounds 1 --prompt 8 --tokens 2",
    "beside_llama_cpp": "--task parallel --rounds 1 --conversations 2 --prompt 16 --tokens 2",
    "api_bodies": "--rounds 1",
    "api_load": "--backend wasm --rounds 1 --tokens 2 --clients 1 --connections 40",
    "big_file": "--layers 1 --context 64",
    "browser_decode": "--rounds 1 --tokens 2 --only sonata-fast-1",
    "chat_templates": "--turns 2",
    "consolidation": "--split dev --facts 1 --more 0",
    "eight_hours": "--hours 1 --chats 3 --messages 2",
    "embedder": "--rounds 8 --patience 0",
    "exact_tools": "",
    "extraction": "--only addresses",
    "few_rows": "--rows 1,2 --position 8 --rounds 1",
    "function_calls": "--limit 1 --category irrelevance --backend wasm --max-tokens 8",
    "gate": "--splits dev --stored 24",
    "gpu_browser": "here --query rounds=1&peer=0&prompts=16&tokens=2&profile=0",
    "grammar_masks": "{cases}",
    "grammar_peers": "--rounds 1 --tokens 8 --workers 1",
    "hnsw": "--size 100 --kind clustered --dimension 16 --queries 4",
    "hostile_schemas": "--only itself",
    "idle_learning": "--rounds 1",
    "instant": "--facts 1",
    "instant_page": "--facts 1",
    "interleavings": "--seconds 3",
    "interpreter_start": "--rounds 1",
    "kept_model": "--model smollm2-135m-instruct --turns 1",
    "kv_tiers": "--at 64 --scored 8 --steps 1 --rounds 1",
    "languages": "",
    "learning_open": "--rounds 1 --tokens 2",
    "llama_cpp_logits": "",
    "many_chats": "--conversations 24 --turns 50 --browser --rounds 1",
    "markdown": "--characters 500 --messages 4 --only prose",
    "matvec": "--sizes 64x256 --formats Q4_K",
    "mcp_conformance": "--only tools-list",
    "memory": "--records 400 --conversations 2",
    "open_conversations": "--conversations 2 --tokens 4 --asked 1",
    "page_load": "--rounds 1 --server plain",
    "page_object": "--rounds 1 --characters 20",
    "page_phases": "--rounds 1",
    "diffusion_passes": "--rounds 1 --places 8 --prompt 16",
    "parallel_sequences": "--conversations 2 --prompt 16 --tokens 2 --rounds 1",
    "passages": "",
    "persistent_kernels": "--model {model} --tried 1x64 --positions 8,16 --runs 2 --kernels",
    "random_gguf": f"{{folder}}/random.gguf {SIZES}",
    "resume": "--tokens 40 --rounds 1",
    "resume_page": "--words 200 --rounds 1 --wait 0",
    "schema_suite": "",
    "screenshots": "--out {folder} --tokens 4",
    "shell_sizes": "",
    "speculation": "--rounds 1 --tokens 2",
    "tabs": "--tabs 2",
    "titles": "",
    "training": "--backend wasm --rounds 1 --sequences 1 --tokens 8 --rank 1",
    "training_kernels": "{model} --rank 1 --sequences 1 --tokens 4",
    "trajectories": "--answers 2 --tokens 64 --prompt 210 --long 270 --rounds 1",
    "wasm_scaling": "--rounds 1 --tokens 2 --long 64 --precision fast",
    "worker_cost": "--tokens 2",
}
"""The options that make each small. {model}: a file of random weights of these SIZES; {folder}: an empty one;
{cases}: a file of CASES."""
CASES = '{"name": "a word", "schema": {"type": "string"}, "tests": [{"valid": true, "data": "yes"}]}\n'
NEEDS = {"analyst": "pandas", "beside_llama_cpp": "llama_cpp", "llama_cpp_logits": "llama_cpp"}
"""Packages that are not part of the project."""


def test_each_benchmark_that_the_docs_name_is_there_and_has_a_small_run() -> None:
    known = benchmarks()
    missing = [name for name in {*NAMED, *OPTIONS} if name not in known or name not in OPTIONS]
    assert not missing, f"say in {Path(__file__).name} which options make them small: {', '.join(missing)}"


@pytest.mark.all
@pytest.mark.parametrize("name", OPTIONS)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    if (needed := NEEDS.get(name)) and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    model = tmp_path / "model.gguf"
    if "{model}" in OPTIONS[name]:
        run("random_gguf", f"{model} {SIZES}")
    cases = tmp_path / "cases.jsonl.gz"
    if "{cases}" in OPTIONS[name]:
        cases.write_bytes(gzip.compress(CASES.encode()))
    run(name, OPTIONS[name].format(folder=tmp_path, model=model, cases=cases))


def run(name: str, options: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench", name, *options.split()], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
