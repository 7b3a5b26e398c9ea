"""Writes expected/NAME/: an adapter that `peft` trained on a tiny model, and the logits of `transformers` with it.

python -m venv /tmp/expected && /tmp/expected/bin/pip install ".[expected]"
/tmp/expected/bin/python -m tests.adapters.make_expected [NAME ...]

adapter_config.json and adapter_model.safetensors are PEFT's own. logits.npz has `theirs` float32 (LAST, vocabulary),
the logits of the last positions with that adapter, and `ours`, those with an adapter of ours (`drawn_for` of the
test) that `peft` has loaded from our export. Nothing is written unless our export of PEFT's adapter gives PEFT the
same logits, and each possible mistake of a reader is visible.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import peft
import torch

from py_core.adapters.files import export_peft, read_adapter
from py_core.adapters.peft import CONFIG_FILE, WEIGHTS_FILE
from tests.adapters.adapter_models import described, drawn
from tests.adapters.peft_cases import CASES, LAST, Case
from tests.models.architectures.make_expected import logits_of, model_of, smallest_cosine, tokens
from tests.tiny.models import PERMUTED, neighbours_rotate

EXPECTED = Path(__file__).parent / "expected"
STEPS = 8
SHOWS = 0.99
"""A mistake lowers the cosine of some position's logits below this."""


def trained(case: Case) -> peft.PeftModel:
    """A few steps of AdamW at a high rate: enough for every matrix to count."""
    torch.manual_seed(0)
    model = peft.get_peft_model(model_of(case.variant), peft.LoraConfig(task_type="CAUSAL_LM", **case.settings))
    matrices = [values for values in model.parameters() if values.requires_grad]
    optimizer = torch.optim.AdamW(matrices, lr=0.1)
    ids = torch.from_numpy(tokens(case.variant).astype(np.int64))[None]
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
    for values in matrices:
        values.data = values.data.to(getattr(torch, case.dtype))
    return model.eval()


def said(model: torch.nn.Module, case: Case) -> np.ndarray:
    return logits_of(model.double(), case.variant)[-LAST:]


def loaded(case: Case, folder: Path) -> peft.PeftModel:
    return peft.PeftModel.from_pretrained(model_of(case.variant), folder).eval()


def written(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def mistakes(case: Case, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The logits of readers that make a mistake."""
    yield "no adapter", said(model_of(case.variant), case)
    model = loaded(case, folder)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, peft.tuners.lora.Linear)}
    plain = case.settings["lora_alpha"] / case.settings["r"]
    scales = {name: layer.scaling["default"] for name, layer in layers.items()}
    if set(scales.values()) != {plain}:
        for layer in layers.values():
            layer.scaling["default"] = plain
        yield "one scale for all", said(model, case)
        for name, layer in layers.items():
            layer.scaling["default"] = scales[name]
    if case.variant.architecture == "qwen35":
        for name, layer in layers.items():
            if name.endswith("in_proj_z"):
                rows = layer.lora_B["default"].weight
                grouped = rows.data.reshape(case.variant.config["linear_num_key_heads"], 2, -1, rows.shape[1])
                rows.data = grouped.transpose(0, 1).reshape(rows.shape)
        yield "heads of v in the order of the file", said(model, case)
        return
    heads = {"q_proj": case.variant.config["num_attention_heads"], "k_proj": case.variant.config["num_key_value_heads"]}
    turned = [(layer.lora_B["default"].weight, heads[part]) for name, layer in layers.items()
              if (part := name.rpartition(".")[2]) in heads]  # fmt: skip
    for rows, count in turned:
        rows.data = torch.from_numpy(neighbours_rotate(rows.data.numpy(), count).reshape(rows.shape).copy())
    if turned:
        permuted = case.variant.architecture in PERMUTED
        yield f"rows of q and k {'as the file has them' if permuted else 'permuted'}", said(model, case)


def make(case: Case, scratch: Path) -> bool:
    name = case.variant.name
    folder = scratch / "theirs"
    model = trained(case)
    model.save_pretrained(folder)
    theirs = said(model, case)
    config, graph = described(name)
    read = read_adapter(
        (folder / WEIGHTS_FILE).read_bytes(), config, graph, peft_config=(folder / CONFIG_FILE).read_bytes()
    )
    again = said(loaded(case, written(export_peft(read, config, graph), scratch / "again")), case)
    np.testing.assert_allclose(again, theirs, atol=1e-6 * np.abs(theirs).max())
    own = export_peft(drawn(graph, 5, rank=2), config, graph)
    ours = said(loaded(case, written(own, scratch / "ours")), case)
    good = True
    for what, wrong in mistakes(case, folder):
        cosine = smallest_cosine(theirs, wrong)
        good &= cosine < SHOWS
        print(f"{name:16} {cosine:8.5f} {what}{'' if cosine < SHOWS else '   DOES NOT SHOW'}", flush=True)
    if good:
        target = EXPECTED / name
        target.mkdir(parents=True, exist_ok=True)
        for file in (CONFIG_FILE, WEIGHTS_FILE):
            shutil.copy(folder / file, target / file)
        np.savez_compressed(target / "logits.npz", theirs=theirs, ours=ours)
        print(f"{name:16} {sum(path.stat().st_size for path in target.iterdir()):8} bytes", flush=True)
    return good


def main(names: list[str]) -> int:
    warnings.filterwarnings("ignore", module="peft")
    made = []
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            made.append(make(CASES[name], Path(scratch)))
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
