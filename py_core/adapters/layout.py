"""The places of an adapter's modules in a model file, which may hold q, k and v in one tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from py_core.adapters.lora import AdapterError, LoraPair
from py_core.display import shown
from py_core.limits import MAX_ADAPTER_RANK
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.models.transformers_names import PERMUTED, delta_order

QKV = ("attn_q", "attn_k", "attn_v")


@dataclass(frozen=True)
class Place:
    """Rows `first` to `first` + `rows` of a tensor with `columns` columns.

    heads: the number of heads if the rows have another order than in `transformers`, else 0.
    """

    tensor: str
    first: int
    rows: int
    columns: int
    heads: int


class AdapterLayout:
    """The linears of one model by module, such as "blk.0.attn_q", even if the file has no separate tensor for q."""

    def __init__(self, config: ModelConfig, graph: Graph) -> None:
        self.architecture = config.architecture
        self.layers = config.num_hidden_layers
        self._delta = config.key_heads, config.value_heads, config.state_size
        self._rows = {tensor: graph.weights[tensor][0] for tensor in graph.linear_weights}
        self.places: dict[str, Place] = {}
        self.whole: dict[str, Place] = {}
        """Tensors that hold several modules, by their own names: "blk.0.attn_qkv"."""
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        for tensor in sorted(graph.linear_weights):
            rows, columns = graph.weights[tensor]
            block, dot, part = tensor.removesuffix(".weight").rpartition(".")
            parts = {part: rows}
            # phi3 has one matrix in `transformers`, too; qwen35 has one for its delta rules
            if part == "attn_qkv" and config.architecture not in ("phi3", "qwen35"):
                widths = (config.num_attention_heads, *[config.num_key_value_heads] * 2)
                parts = {one: width * config.head_dim for one, width in zip(QKV, widths, strict=True)}
            if len(parts) > 1:
                self.whole[f"{block}.{part}"] = Place(tensor, 0, rows, columns, 0)
            first = 0
            for one, height in parts.items():
                turned = heads.get(one, 0) if config.architecture in PERMUTED else 0
                self.places[f"{block}{dot}{one}"] = Place(tensor, first, height, columns, turned)
                first += height

    def order(self, module: str) -> np.ndarray | None:
        """The rows of a delta rule's matrix (the columns of "ssm_out") in the order of the file (`delta_order`)."""
        return delta_order(module.rpartition(".")[2], *self._delta)

    def place(self, module: str) -> Place:
        return self.places[module] if module in self.places else self.whole[module]

    def join(self, modules: Mapping[str, LoraPair]) -> dict[str, LoraPair]:
        """The pairs by tensor. If several modules share a tensor, their A are stacked and B has a block for each with
        zeros around it, unless they share A. Raises AdapterError if a tensor comes both whole and in parts."""
        found: dict[str, dict[Place, LoraPair]] = {}
        for module, pair in modules.items():
            place = self.place(module)
            found.setdefault(place.tensor, {})[place] = pair
        for module, place in self.whole.items():
            if module in modules and len(found[place.tensor]) > 1:
                raise AdapterError(
                    "adapter.changes-twice",
                    "The adapter changes {name} twice: it is damaged. Download it again.",
                    name=shown(module),
                )
        return {tensor: self._joined(parts) for tensor, parts in found.items()}

    def split(self, pairs: Mapping[str, LoraPair]) -> dict[str, LoraPair]:
        """The inverse of `join`. Raises AdapterError for a tensor that is not a linear of this model."""
        tensors: dict[str, list[tuple[str, Place]]] = {}
        for module, place in self.places.items():
            tensors.setdefault(place.tensor, []).append((module, place))
        found: dict[str, LoraPair] = {}
        for tensor, pair in pairs.items():
            if tensor not in tensors:
                raise AdapterError(
                    "adapter.no-linear",
                    "The adapter changes {name}, which is not a linear of this model: choose the model that it was "
                    "made for.",
                    name=shown(tensor),
                )
            found.update(_split(pair, tensors[tensor]))
        return found

    def _joined(self, parts: Mapping[Place, LoraPair]) -> LoraPair:
        (place, first), *others = sorted(parts.items(), key=lambda item: item[0].first)
        total = self._rows[place.tensor]
        if place.rows == total:
            return first
        pairs = [first, *(pair for _, pair in others)]
        places = [place, *(place for place, _ in others)]
        shared = len({pair.scale for pair in pairs}) == 1 and all(np.array_equal(first.a, pair.a) for pair in pairs)
        b = np.zeros((total, first.rank if shared else sum(pair.rank for pair in pairs)), np.float32)
        scale = max((pair.scale for pair in pairs), key=abs)
        column = 0
        for one, pair in zip(places, pairs, strict=True):
            weight = np.float32(pair.scale / scale if scale else 1)
            b[one.first : one.first + one.rows, column : column + pair.rank] = pair.b * weight
            column += 0 if shared else pair.rank
        a = first.a if shared else np.concatenate([pair.a for pair in pairs])
        return LoraPair(a, b, scale)


def _split(pair: LoraPair, modules: list[tuple[str, Place]]) -> Iterator[tuple[str, LoraPair]]:
    if len(modules) == 1:
        yield modules[0][0], pair
        return
    blocks = [pair.b[place.first : place.first + place.rows] for _, place in modules]
    used = np.array([block.any(0) for block in blocks])
    for (module, _), block, own in zip(modules, blocks, used, strict=True):
        # Skip columns that only other blocks use.
        kept = own | ~used.any(0)
        if kept.any():
            yield module, LoraPair(pair.a[kept], block[:, kept], pair.scale)


def check_shapes(name: str, place: Place, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Raises AdapterError if matrices of these shapes are no pair for this place; `name` is the file's name for it.
    The matrices need not be loaded yet."""
    if 0 in (*a, *b):
        raise AdapterError(
            "adapter.empty-matrices",
            "The adapter's matrices for {name} are empty: the training saved empty matrices, "
            "as DeepSpeed ZeRO-3 does if they are not gathered first. Save the adapter again "
            "with stage3_gather_16bit_weights_on_model_save.",
            name=shown(name),
        )
    if len(a) != 2 or len(b) != 2 or (a[1], b[0]) != (place.columns, place.rows) or a[0] != b[1]:
        raise AdapterError(
            "adapter.other-shapes",
            "The adapter has matrices of {a} and {b} for {name}, which is ({rows}, {columns}): "
            "it was made for another model. Choose that one, or another adapter.",
            a=_shape(a),
            b=_shape(b),
            name=shown(name),
            rows=place.rows,
            columns=place.columns,
        )
    if a[0] > MAX_ADAPTER_RANK:
        raise AdapterError(
            "adapter.high-rank",
            "The adapter has rank {rank} for {name}, and no adapter has more than {most}: it is damaged. "
            "Download it again.",
            rank=a[0],
            name=shown(name),
            most=MAX_ADAPTER_RANK,
        )


def finite(name: str, values: np.ndarray) -> np.ndarray:
    """A copy in float32. Raises AdapterError if it contains NaN or an infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        copied = np.array(values, np.float32)
    if not np.isfinite(copied).all():
        raise AdapterError(
            "adapter.not-finite",
            "The adapter's tensor {name} holds numbers that are not finite: its training has "
            "diverged, or the file is damaged. Choose another.",
            name=shown(name),
        )
    return copied


def _shape(shape: tuple[int, ...]) -> str:
    return shown(tuple(shape))
