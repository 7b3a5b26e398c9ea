"""Each benchmark that README and docs name still runs: a round of it, as small as its options allow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.building.common import ROOT

BENCH = ROOT / "tests" / "bench"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_NAME = re.compile(r"tests[./]bench[./](\w+)")
NAMED = sorted(
    {
        name
        for page in PAGES
        for name in _NAME.findall(page.read_text("utf-8"))
        if not (BENCH / name).is_dir() and (page.parent.name != "decisions" or (BENCH / f"{name}.py").is_file())
    }
)
"""A decision names the command of its day, which may be gone."""
SIZES = (
    "--shape smollm2-135m --layers {layers} --hidden 64 --heads 2 --kv-heads 1 --ffn 256 --vocabulary 512 --format Q8_0"
)
OPTIONS = {
    "adapters": "--engine wasm --rounds 1 --prompt 8 --tokens 2",
    "agent_instructions": "--fresh --placements none --requests 1 --max-tokens 2",
    "beside_llama_cpp": "--task parallel --rounds 1 --conversations 2 --prompt 16 --tokens 2",
    "big_file": "--layers 1 --context 64",
    "branches": "--rounds 1",
    "browser_decode": "--rounds 1 --tokens 2 --only sonata-fast-1",
    "candidate_trees": "--tokens 8",
    "chat_templates": "--turns 2",
    "consolidation": "--split dev --facts 1 --more 0",
    "draft_cost": "{model} {draft} --backend wasm --tokens 2 --rounds 1",
    "eight_hours": "--hours 1 --chats 3 --messages 2",
    "embedder": "--rounds 8 --patience 0",
    "exact_tools": "",
    "few_rows": "--rows 1,2 --position 8 --rounds 1",
    "gate": "--splits dev --stored 24",
    "gpu_browser": "here --query rounds=1&peer=0&prompts=16&tokens=2&profile=0",
    "head": "--rounds 1 --prompt 8 --tokens 2",
    "hnsw": "--size 100 --kind clustered --dimension 16 --queries 4",
    "idle_learning": "--rounds 1",
    "instant": "--facts 1",
    "instant_page": "--facts 1",
    "interleavings": "--seconds 3",
    "kv_tiers": "--at 64 --scored 8 --steps 1 --rounds 1",
    "learning_open": "--rounds 1 --tokens 2",
    "llama_cpp_logits": "",
    "long_chat": "--messages 10",
    "many_chats": "--conversations 24 --turns 50 --browser --rounds 1",
    "markdown": "--characters 500 --messages 4 --only prose",
    "matvec": "--sizes 64x256 --formats Q4_K",
    "memory": "--records 400 --conversations 2",
    "open_conversations": "--conversations 2 --tokens 4 --asked 1",
    "page_load": "--rounds 1 --server plain",
    "page_phases": "--rounds 1",
    "passages": "",
    "random_gguf": f"{{folder}}/random.gguf {SIZES.format(layers=1)}",
    "resume": "--tokens 40 --rounds 1",
    "resume_page": "--words 200 --rounds 1 --wait 0",
    "screenshots": "--out {folder} --tokens 4",
    "shell_sizes": "",
    "speculation": "--rounds 1 --tokens 2",
    "tabs": "--tabs 2",
    "teaching": "",
    "titles": "",
    "training": "--backend wasm --rounds 1 --sequences 1 --tokens 8 --rank 1",
    "training_kernels": "{model} --rank 1 --sequences 1 --tokens 4",
    "trajectories": "--answers 2 --tokens 64 --prompt 210 --long 270 --rounds 1",
    "wasm_scaling": "--rounds 1 --tokens 2 --long 64 --precision fast",
    "window_memory": "",
    "worker_cost": "--tokens 2",
}
"""What makes each small. {model}, {draft}: files of random weights of these SIZES; {folder}: an empty one."""
LAYERS = {"model": 4, "draft": 1}
NEEDS = {"beside_llama_cpp": "llama_cpp", "llama_cpp_logits": "llama_cpp"}
"""What is no part of the project."""


def test_each_benchmark_that_is_named_is_there_and_has_a_small_run() -> None:
    missing = [name for name in NAMED if not (BENCH / f"{name}.py").is_file() or name not in OPTIONS]
    assert not missing, f"say in {Path(__file__).name} which options make them small: {', '.join(missing)}"


@pytest.mark.all
@pytest.mark.parametrize("name", NAMED)
def test_a_benchmark_that_is_named_runs(name: str, tmp_path: Path) -> None:
    if (needed := NEEDS.get(name)) and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    files = {part: tmp_path / f"{part}.gguf" for part in LAYERS if f"{{{part}}}" in OPTIONS[name]}
    for part, file in files.items():
        run("random_gguf", f"{file} {SIZES.format(layers=LAYERS[part])}")
    run(name, OPTIONS[name].format(folder=tmp_path, **files))


def run(name: str, options: str) -> None:
    ran = subprocess.run(
        [sys.executable, BENCH / f"{name}.py", *options.split()],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
