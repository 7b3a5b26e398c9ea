"""Opens a draft model (engine/draft.py) beside a model: another model file with the same vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_core.backends.protocols import Progress
from py_core.display import shown
from py_core.engine.draft import Draft
from py_core.engine.engine import Engine
from py_core.formats.gguf import GGUFHeader
from py_core.formats.source import WeightSource
from py_core.loading import BackendLoader, read_description
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph
from py_core.tokenizers.registry import tokenizer_from_gguf


class DraftError(ValueError):
    """This model cannot be the draft of that one; the message says why, and what to do."""


@dataclass(frozen=True)
class DraftFile:
    """The description from a draft's file; nothing is allocated."""

    source: WeightSource
    header: GGUFHeader
    config: ModelConfig
    graph: Graph


async def read_draft(source: WeightSource, context: int | None = None) -> DraftFile:
    """Raises as load_model does for errors in the header."""
    return DraftFile(source, *await read_description(source, context, lambda header, config, graph: None))


def check_draft(header: GGUFHeader, config: ModelConfig, draft: DraftFile) -> None:
    """Raises DraftError if the draft has another vocabulary than the model with this header, or is not smaller."""
    if different := _difference(header, config, draft):
        raise DraftError(
            f"{shown(draft.config.name)} cannot be the draft of {shown(config.name)}: {different}. Choose a smaller "
            "model of the same family, or leave the draft out."
        )
    ours, theirs = (sum(tensor.nbytes for tensor in one.tensors.values()) for one in (header, draft.header))
    if theirs >= ours:
        raise DraftError(
            f"The draft has {theirs / 1e6:,.0f} MB of weights and the model {ours / 1e6:,.0f} MB: it would not be "
            "faster. Choose a smaller one, or leave the draft out."
        )


def _difference(header: GGUFHeader, config: ModelConfig, draft: DraftFile) -> str:
    """The difference between two vocabularies, for a sentence; "" if there is none."""
    ours, theirs = (tokenizer_from_gguf(one.metadata) for one in (header, draft.header))
    if config.vocab_size != draft.config.vocab_size:
        return f"its vocabulary has {draft.config.vocab_size:,} tokens, the model's {config.vocab_size:,}"
    pairs = zip(ours.tokens, theirs.tokens, strict=False)
    if (unlike := next((at for at, (one, other) in enumerate(pairs) if one != other), None)) is not None:
        return f"its token {unlike} is {_token(theirs.tokens, unlike)}, the model's {_token(ours.tokens, unlike)}"
    if len(ours.tokens) != len(theirs.tokens):
        return f"it names {len(theirs.tokens):,} tokens, the model {len(ours.tokens):,}"
    for what, one_id, other_id in (
        ("begins a text", ours.bos_id, theirs.bos_id), ("ends a text", ours.eos_id, theirs.eos_id),
    ):  # fmt: skip
        if one_id != other_id:
            return (
                f"its token that {what} is {_token(theirs.tokens, other_id)}, the model's {_token(ours.tokens, one_id)}"
            )
    for end in ours.eos_ids ^ theirs.eos_ids:
        return f"{_token(ours.tokens, end)} ends an answer of one of them only"
    return ""


def _token(tokens: Sequence[str], number: int | None) -> str:
    return "none" if number is None else shown(tokens[number])


async def load_draft(
    engine: Engine, draft: DraftFile, load_backend: BackendLoader, progress: Progress | None = None
) -> None:
    """Load the draft's weights; the engine uses the draft from its next answer on. Raises BackendError."""
    backend = await load_backend(draft.source, draft.header, draft.config, draft.graph, progress)
    engine.draft = Draft(backend)
