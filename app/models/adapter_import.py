"""Turns a user's files into an adapter in Sonata's own format: for `sonata adapters import`, and for the page."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from py_core.adapters.compression import compress
from py_core.adapters.files import read_adapter
from py_core.adapters.lora import BASE_TITLE, AdapterError, LoraAdapter, check_adapter, check_base
from py_core.adapters.peft import CONFIG_FILE, WEIGHTS_FILE
from py_core.display import shown
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph

LOST = "lost"
"""Key in an adapter's metadata: the cost of smaller ranks, as the relative Frobenius error of all its changes
("0.021")."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,58}[a-z0-9])?")


@dataclass(frozen=True)
class BaseModel:
    """The model that adapters are for. sha256: of its file, "" if unknown."""

    config: ModelConfig
    graph: Graph
    sha256: str
    title: str


def adapter_of_files(files: Mapping[str, bytes], base: BaseModel, name: str = "") -> LoraAdapter:
    """An adapter for the model, from one file, or from PEFT's two, by their names; `name` is used if the files state
    none.

    Raises AdapterError, with what to do, if it is damaged, of another kind or for another model.
    """
    configs = [one for one in files if one.lower().endswith(".json")]
    weights = [one for one in files if one not in configs]
    if len(weights) != 1 or len(configs) > 1:
        raise AdapterError(
            "adapter.which-files",
            "An adapter is one file (.safetensors or .gguf), or {weights} and {config}, but these are {files}. "
            "Choose the files of one adapter.",
            weights=WEIGHTS_FILE,
            config=CONFIG_FILE,
            files=", ".join(map(shown, files)) or "none",
        )
    config = files[configs[0]] if configs else None
    adapter = read_adapter(files[weights[0]], base.config, base.graph, peft_config=config, name=name)
    check_base(adapter, base.sha256)
    title = {BASE_TITLE: base.title} if base.title else {}
    return replace(adapter, base_sha256=base.sha256, metadata={**adapter.metadata, **title})


def lost_of(metadata: Mapping[str, str]) -> float:
    """The cost of smaller ranks, from 0 to 1; 0 if it is not stated, or is not such a number."""
    try:
        lost = float(metadata.get(LOST, 0))
    except ValueError:
        return 0.0
    return lost if 0 <= lost <= 1 else 0.0


def check_name(name: str) -> str:
    """Raises AdapterError if it is not a valid name for a kept adapter."""
    if not _NAME.fullmatch(name):
        raise AdapterError(
            "adapter.bad-name",
            "{name} cannot be the name of an adapter: use up to 60 lower-case letters, digits, dots, - and _, with a "
            "letter or a digit at both ends.",
            name=shown(name),
        )
    return name


def name_of(title: str, taken: Collection[str] = ()) -> str:
    """A name for an adapter: its title in lower case, with a number if that is taken."""
    base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:50].strip("-") or "adapter"
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 10_000))) if name not in taken)


def fitted(adapter: LoraAdapter, base: BaseModel, rank: int | None = None) -> LoraAdapter:
    """The adapter as backends can use it with the model. Raises AdapterError if they cannot.

    rank: the largest that it may have; its metadata then state the cost of a smaller one.
    """
    if rank is not None and adapter.rank > rank:
        made = compress(adapter, rank)
        before = lost_of(adapter.metadata)
        # The part that is left out now is orthogonal to the parts left out before.
        lost = math.sqrt(before**2 + (1 - before**2) * made.error**2)
        adapter = replace(made.adapter, metadata={**adapter.metadata, LOST: f"{lost:.6f}"})
    check_adapter(adapter, base.graph)
    return adapter
