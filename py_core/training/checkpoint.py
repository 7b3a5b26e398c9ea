"""A file (safetensors) with everything that a training needs to resume as if it had not been interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from py_core.adapters.parameters import ParameterLayout
from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.training.session import VECTORS, TrainingState

_KIND = "sonata training 1"


class CheckpointError(ValueError):
    """The file is damaged, or of another training; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state between two steps. `step` is the next one: with the seed it determines the examples."""

    state: TrainingState
    step: int = 0
    halvings: int = 0
    """How often the rate was halved."""
    dropped: int = 0
    """How many of the last steps were dropped in a row."""

    def next_task(self) -> Checkpoint:
        """The start of a training on something else: see `TrainingState.next_task`."""
        return Checkpoint(self.state.next_task())


@dataclass(frozen=True)
class Origin:
    """The identity of a training: a choice of matrices, a model, and the recipe (any text that identifies it)."""

    layout: ParameterLayout
    base_sha256: str
    recipe: str

    def texts(self) -> dict[str, str]:
        layout = self.layout
        slots = {name: (slot.rows, slot.columns) for name, slot in layout.slots.items()}
        described = json.dumps([layout.rank, layout.scale, slots])
        return {
            "layout": hashlib.sha256(described.encode()).hexdigest(),
            "base_sha256": self.base_sha256,
            "recipe": self.recipe,
        }


def write_checkpoint(checkpoint: Checkpoint, origin: Origin) -> bytes:
    """The file's bytes. The same content gives the same bytes."""
    state = checkpoint.state
    vectors = dict(zip(VECTORS, state.vectors, strict=True))
    if state.anchor is not None:
        vectors["anchor"] = state.anchor
    numbers = np.array([checkpoint.step, state.steps, checkpoint.halvings, checkpoint.dropped], np.int64)
    return write_safetensors({**vectors, "numbers": numbers}, {"kind": _KIND, **origin.texts()})


def read_checkpoint(data: bytes, origin: Origin) -> Checkpoint:
    """Raises CheckpointError if the file is damaged, or belongs to another training."""
    try:
        arrays, metadata = read_safetensors(data)
    except SafetensorsError as error:
        raise CheckpointError(f"The checkpoint cannot be read, so the training has to start again. {error}") from error
    if metadata.get("kind") != _KIND:
        raise CheckpointError("The file is not a checkpoint of a training. Choose another one, or start again.")
    for key, what in (
        ("base_sha256", "of another model"), ("layout", "of other matrices, or of another rank"),
        ("recipe", "made with other settings"),
    ):  # fmt: skip
        if metadata.get(key) != origin.texts()[key]:
            raise CheckpointError(f"The checkpoint is {what}. Continue with the same ones, or start again.")
    numbers = arrays.get("numbers")
    if (
        numbers is None or numbers.dtype != np.int64 or numbers.shape != (4,) or numbers.min() < 0
        or not all(_is_vector(arrays.get(name), origin.layout.size) for name in (*VECTORS, *_anchor_of(arrays)))
    ):  # fmt: skip
        raise CheckpointError("The checkpoint is damaged, so the training has to start again.")
    step, steps, halvings, dropped = numbers.tolist()
    parameters, first, second, fisher, *anchor = (np.array(arrays[name]) for name in (*VECTORS, *_anchor_of(arrays)))
    state = TrainingState(parameters, first, second, fisher, steps, *anchor)
    return Checkpoint(state, step, halvings, dropped)


def _anchor_of(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """The anchor's name if the file has one: most trainings have none."""
    return [name for name in ("anchor",) if name in arrays]


def _is_vector(array: np.ndarray | None, size: int) -> bool:
    return array is not None and array.dtype == np.float32 and array.shape == (size,) and bool(np.isfinite(array).all())
