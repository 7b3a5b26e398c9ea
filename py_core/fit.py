"""Predicts if a model will fit, and how fast it will be: from a file's header alone, before anything is loaded.

need = memory_need(header.tensors, config, graph, "wasm")
need.at(8192).total                          # bytes with a context of 8192 tokens
problem(need, 8192, Room(memory=4 << 30))    # None, or a sentence with numbers that says what would fit
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from py_core.backend_errors import BackendError
from py_core.backends.checks import MAX_LOGIT_ROWS, MAX_TAPS
from py_core.backends.numpy.backend import CHUNK
from py_core.backends.pass_blocks import least_rows
from py_core.backends.wasm.device import MAX_ROWS
from py_core.backends.wasm.host import HEAP_BASE, MAX_WORKERS
from py_core.backends.wasm.layout import EXTENT, PART, Mode, activation_bytes, head_page_bytes, matrix_bytes
from py_core.backends.webgpu.host import AdapterInfo
from py_core.backends.webgpu.kernel_shapes import GPU_ROWS, choose_shapes
from py_core.backends.webgpu.weights.layout import BLOCK, LAYOUTS, LIMBS_BYTES
from py_core.formats.gguf import TensorInfo
from py_core.formats.quantization import FORMATS, BlockFormat
from py_core.messages import Message
from py_core.models.config import ModelConfig
from py_core.models.graph import Attention, ExpertLinear, Graph, Linear
from py_core.paging.page_table import (
    PAGE,
    STATES,
    PageTable,
    head_room,
    kept_rows,
    kept_window,
    most_pages,
    state_sizes,
)
from py_core.paging.sequence_slots import SLOTS

MOST_WASM_MEMORY = 65535 << 16
"""The most bytes of the kernels' memory: addresses have 32 bits."""

_CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_LEAST_CONTEXT = 512
"""A shorter context is not worth suggesting."""
_SMALLER = ("Q8_0", "Q6_K", "Q5_K", "Q4_K")
_FILES = {"Q8_0": "Q8_0", "Q6_K": "Q6_K", "Q5_K": "Q5_K_M", "Q4_K": "Q4_K_M"}
"""The usual names of files whose matrices mostly have these formats."""


class DoesNotFitError(BackendError):
    """The model does not fit into the available memory; the message says with numbers what would."""


@dataclass(frozen=True)
class Room:
    """The available memory in bytes for the model, and the largest range that a GPU kernel can bind; None if unknown.
    `chosen`: True if the user set the memory."""

    memory: int | None = None
    binding: int | None = None
    chosen: bool = False


@dataclass(frozen=True)
class Parts:
    """The bytes of a model's parts with a context of `context` tokens."""

    context: int
    weights: int
    pages: int
    scratch: int

    @property
    def total(self) -> int:
        return self.weights + self.pages + self.scratch


@dataclass(frozen=True)
class Need:
    """A model's memory need on a backend ("webgpu", "wasm", "numpy"). Sizes in bytes.

    `windows` are those of the layers with keys and values, 0 if a layer sees everything. `layer_pages` are 64 tokens of
    each of these layers, `readers` the numbers of layers that read them. `rows_page` is what a page holds of all
    convolutions. `scratch`, with the states of delta rules, is independent of the context, each token of which adds
    `token_scratch`. `read` are the weights that a step of one token reads. `smaller` has the weights for other formats
    of all matrices.
    """

    name: str
    backend: str
    weights: int
    layer_pages: tuple[int, ...]
    readers: tuple[int, ...]
    rows_page: int
    scratch: int
    token_scratch: float
    read: int
    trained: int
    windows: tuple[int, ...]
    smaller: Mapping[str, int]

    @property
    def layer_page(self) -> int:
        """64 tokens of the layer with most or largest heads."""
        return max(self.layer_pages)

    def at(self, context: int) -> Parts:
        """The need with one conversation of `context` tokens."""
        groups = self._groups(context)
        nbytes = sum(self._pool(window, context) * layer for window, layer in groups.items())
        nbytes += self._pool(0, context) * self.rows_page
        return Parts(context, self.weights, nbytes, self.scratch + int(context * self.token_scratch))

    def read_at(self, position: int) -> int:
        """Bytes that a step reads for the token at a position: weights, and keys and values before it."""
        seen = [min(position + 1, window) if window else position + 1 for window in self.windows]
        layers = zip(seen, self.layer_pages, self.readers, strict=True)
        return self.read + sum(count * page * readers for count, page, readers in layers) // PAGE

    def holds(self, context: int, room: Room) -> bool:
        """True if the model fits with this context."""
        parts = self.at(context)
        if room.memory is not None and parts.total > room.memory:
            return False
        if room.binding is None or self.backend != "webgpu":
            return True
        return all(self._pool(window, context) * self.layer_page <= room.binding for window in self._groups(context))

    def largest_context(self, room: Room) -> int:
        """The most tokens of context that fit, in steps of pages; 0 if none fit."""
        low, high = 0, -(-max(self.trained, _LEAST_CONTEXT) // PAGE)
        while low < high:
            middle = -(-(low + high) // 2)
            low, high = (middle, high) if self.holds(middle * PAGE, room) else (low, middle - 1)
        return min(low * PAGE, max(self.trained, PAGE))

    def _groups(self, context: int) -> Counter[int]:
        """64 tokens of all layers that share a pool of pages, by the window that they keep (0: everything)."""
        groups = Counter[int]()
        for window, page in zip(self.windows, self.layer_pages, strict=True):
            groups[kept_window(window, context)] += page
        return groups

    def _pool(self, window: int, context: int) -> int:
        """The number of pages per layer to which a conversation grows its pool."""
        if self.backend == "numpy":
            return most_pages(window, context)
        table = PageTable(SLOTS, context, window)
        while table.capacity < most_pages(window, context):
            table.add_capacity(table.grown())
        return -(-table.capacity // EXTENT) * EXTENT if self.backend == "wasm" else table.capacity


def bytes_per_token(graph: Graph, backend: str, precision: str = "precise") -> int:
    """The size of a token's keys and values in all layers, and its share of the rows of convolutions. Layers with a
    window keep at most that many tokens."""
    return (sum(_layer_pages(graph, backend, precision)) + _rows_page(graph, backend, precision)) // PAGE


def _rows_page(graph: Graph, backend: str, precision: str) -> int:
    """The bytes of the rows of all convolutions in a page. On WASM they take whole parts, as large as a layer's. numpy
    keeps all rows, also those of delta rules; elsewhere a model with delta rules has them in states."""
    if graph.delta_rules and backend != "numpy":
        return 0
    kept = PAGE if backend == "numpy" else kept_rows(graph)
    widths = [op.out.width for op in graph.convolutions.values()]
    widths += [op.key_heads * op.size + op.out.width + op.heads for op in graph.delta_rules.values()]
    nbytes = sum(kept * width * 4 for width in widths)
    part = min(_layer_pages(graph, backend, precision)) if backend == "wasm" else 1
    return -(-nbytes // part) * part


def _states(graph: Graph, backend: str, precision: str) -> int:
    """The bytes of the states that a model with delta rules begins with. On WASM each takes whole parts (kv_pages.py),
    and each of its own parts begins at a multiple of 64."""
    if backend == "numpy":
        return 0
    step, part = (64, EXTENT * min(_layer_pages(graph, backend, precision))) if backend == "wasm" else (1, 1)
    nbytes = sum(-(-size // step) * step for size in state_sizes(graph).values())
    return STATES * -(-nbytes // part) * part


def _layer_pages(graph: Graph, backend: str, precision: str) -> tuple[int, ...]:
    """The bytes of a page in each layer with keys and values. On WASM they are multiples of the smallest."""
    layers = graph.caches.values()
    if backend != "wasm":
        return tuple(2 * op.num_key_value_heads * PAGE * head_room(op.head_dim) * 4 for op in layers)
    limbs = Mode.FAST if precision == "fast" else Mode.PRECISE
    sizes = [op.num_key_value_heads * head_page_bytes(op.head_dim, limbs) for op in layers]
    return tuple(-(-size // min(sizes)) * min(sizes) for size in sizes)


def memory_need(
    tensors: Mapping[str, TensorInfo], config: ModelConfig, graph: Graph, backend: str, precision: str = "precise",
    adapter: AdapterInfo | None = None,
) -> Need:  # fmt: skip
    """The need of a model with these tensors; on webgpu with this adapter, or with any GPU.

    Raises BackendError for a format that the backend's kernels do not support.
    """
    sizes = {name: _bytes(backend, tensors[name].format, shape) for name, shape in graph.weights.items()}
    linears = {op.weight for op in graph.ops if isinstance(op, Linear)}
    attentions = [op for op in graph.ops if isinstance(op, Attention)]
    experts = {op.weight: op.used for op in graph.ops if isinstance(op, ExpertLinear)}
    matrices = {name: shape for name, shape in graph.weights.items() if len(shape) > 1}
    others = sum(size for name, size in sizes.items() if name not in matrices)
    smaller = {
        kind: others + sum(_bytes(backend, FORMATS[kind], shape) for shape in matrices.values()) for kind in _SMALLER
    }
    rows = _rows(config, backend, adapter)
    scratch, token_scratch = _scratch(config, graph, backend, rows)
    if backend == "webgpu" and (adapter is None or choose_shapes(adapter, config.head_dim).integer_dot):
        # For a prefill in integers, if that is faster: a quantized buffer for each width of x.
        widths = {op.x.width for op in graph.ops if isinstance(op, Linear)}
        scratch += rows * sum(widths) // BLOCK * LIMBS_BYTES
    scratch += _states(graph, backend, precision)
    return Need(
        name=config.name, backend=backend, weights=sum(sizes.values()),
        layer_pages=_layer_pages(graph, backend, precision),
        readers=tuple(sum(op.layer == layer for op in attentions) for layer in graph.caches),
        rows_page=_rows_page(graph, backend, precision), scratch=scratch, token_scratch=token_scratch,
        read=sum(sizes[name] for name in linears)
        + sum(sizes[name] * used // config.experts for name, used in experts.items()),
        trained=config.max_position_embeddings,
        windows=tuple(op.window for op in graph.caches.values()), smaller=smaller,
    )  # fmt: skip


def _bytes(backend: str, form: BlockFormat, shape: tuple[int, ...]) -> int:
    """The bytes of a weight in a backend's layout."""
    values = math.prod(shape)
    try:
        if backend == "numpy" or len(shape) == 1:
            return values * 4
        rows, columns = math.prod(shape[:-1]), shape[-1]
        values = rows * -(-columns // BLOCK) * BLOCK
        if backend == "wasm":
            return matrix_bytes(form, rows, columns)
        layout = LAYOUTS[form.name]
        return values * layout.quant_words // BLOCK * 4 + layout.sections(values // BLOCK)[2] * 4
    except KeyError as error:
        raise BackendError(
            "fit.unreadable-format", "The {backend} kernels do not read {format}.", backend=backend, format=form.name
        ) from error


def _rows(config: ModelConfig, backend: str, adapter: AdapterInfo | None) -> int:
    """The number of rows in a pass of a prefill."""
    usual = {"webgpu": GPU_ROWS, "wasm": MAX_ROWS}.get(backend, CHUNK)
    if backend == "webgpu" and adapter:
        usual = choose_shapes(adapter, config.head_dim).max_rows
    return max(usual, least_rows(config))


def _scratch(config: ModelConfig, graph: Graph, backend: str, rows: int) -> tuple[int, float]:
    """The bytes of intermediate values, and those for each token of context."""
    width, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    used = max(1, config.experts_used)
    values = config.hidden_size * used + 3 * width + 2 * kv + 3 * config.intermediate_size * used
    values += 4 * config.num_hidden_layers * config.per_layer_width
    scratch = rows * values * 4 + MAX_LOGIT_ROWS * config.vocab_size * 4
    angles = config.rope.dimensions * 4 * (1 if config.rope == config.local_rope else 2)
    parts = config.num_attention_heads * (head_room(config.head_dim) + 2) * 4 / PART
    if backend == "wasm":
        widest = max(op.out.width for op in graph.ops[:-1])
        scratch += HEAP_BASE + config.vocab_size * 4 + (activation_bytes(widest, 1) + widest * 4) * MAX_WORKERS
        scratch += activation_bytes(widest, rows) + MAX_TAPS * rows * config.hidden_size * 4
    return scratch, angles + (8 * parts if backend == "webgpu" else parts if backend == "wasm" else 0)


def check_room(need: Need, context: int, room: Room) -> None:
    """Raises DoesNotFitError, with numbers and what would fit, if the model does not."""
    if words := problem(need, context, room):
        raise DoesNotFitError(words)


def cost(need: Need, context: int) -> Message:
    """The memory of a context, as a sentence."""
    parts = need.at(context)
    return Message(
        "fit.need",
        "{name} needs {total} for {context} tokens of context: weights {weights}, keys and "
        "values {pages}, scratch {scratch}.",
        name=need.name,
        total=_gb(parts.total),
        context=context,
        weights=_gb(parts.weights),
        pages=_gb(parts.pages),
        scratch=_gb(parts.scratch),
    )


def contexts(need: Need, room: Room) -> list[Parts]:
    """The memory of the usual context lengths, up to the trained context, as far as they fit."""
    lengths = [*(length for length in _CONTEXTS if length < need.trained), need.trained]
    return [need.at(length) for length in lengths if need.holds(length, _reached(need, room))]


def _reached(need: Need, room: Room) -> Room:
    """The part of the available memory that the backend can use."""
    if need.backend != "wasm":
        return room
    if room.memory is not None and room.memory <= MOST_WASM_MEMORY:
        return room
    return replace(room, memory=MOST_WASM_MEMORY, chosen=False)


def problem(need: Need, context: int, room: Room) -> Message | None:
    """None if the model fits with this context, else a sentence with numbers that says what would."""
    room = _reached(need, room)
    if need.holds(context, room):
        return None
    sizes, advice = cost(need, context), _advice(need, room)
    if need.backend == "wasm" and room.memory == MOST_WASM_MEMORY and not room.chosen:
        reach = Message(
            "fit.wasm-reach",
            "The CPU kernels can use at most {most} of memory, however much the machine has.",
            most=_gb(MOST_WASM_MEMORY),
        )
        return Message(
            "fit.no-room", "{sizes} {reach} {advice} A GPU may hold more.", sizes=sizes, reach=reach, advice=advice
        )
    if room.memory is None or need.at(context).total <= room.memory:
        there = Message("fit.gpu-binds", "This GPU can bind {most} at once.", most=_gb(room.binding or 0))
    elif room.chosen:
        there = Message("fit.chosen", "The limit that you chose is {memory}.", memory=_gb(room.memory))
    else:
        there = Message("fit.there-are", "{memory} are available.", memory=_gb(room.memory))
    return Message("fit.problem", "{sizes} {there} {advice}", sizes=sizes, there=there, advice=advice)


def _advice(need: Need, room: Room) -> Message:
    largest = need.largest_context(room)
    if largest >= min(_LEAST_CONTEXT, need.trained):
        return Message(
            "fit.context-fits",
            "A context of {tokens} tokens fits (--context {tokens}; in the page ?context={tokens}).",
            tokens=largest,
        )
    for kind in _SMALLER:
        size = need.smaller[kind]
        if size < need.weights and (most := replace(need, weights=size).largest_context(room)) >= _LEAST_CONTEXT:
            return Message(
                "fit.file-fits",
                "A {kind} file of this model fits, with {most} tokens of context.",
                kind=_FILES[kind],
                most=most,
            )
    return Message("fit.smaller-model", "Choose a smaller model.")


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.1f} MB"


@dataclass(frozen=True)
class SpeedSample:
    """A measured speed: tokens per second, the bytes read per token, and the number of operations in the graph."""

    tok_s: float
    read: int
    operations: int


def tokens_per_second(read: int, operations: int, measured: SpeedSample, bandwidth: float | None = None) -> float:
    """Estimate the speed of a model that reads `read` bytes per token, from another model's measured speed.

    With the memory's `bandwidth` (bytes per second) the measured time is split into reading, which grows with the
    bytes, and the rest, which grows with the number of operations. Without it, all of the time counts as reading.
    """
    seconds = 1 / measured.tok_s
    reading = seconds if bandwidth is None else min(measured.read / bandwidth, seconds)
    rest = (seconds - reading) / measured.operations
    return 1 / (read * reading / measured.read + operations * rest)
