"""The router's data besides the examples' texts, made once by build.py: their vectors and the linear head.

A safetensors file of 2.2 MB: the vectors and the head in float16, the embedder's fingerprint, and a digest of the
examples that it was made from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from py_core.display import shown
from py_core.formats.safetensors import SafetensorsError, read_safetensors, write_safetensors
from py_core.messages import UserError
from py_core.routing.agents import Example
from py_core.routing.head import BUCKETS, RoutingHead

VERSION = "1"


class RoutingDataError(UserError, ValueError):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True)
class RoutingData:
    """vectors: float32 (examples, dimensions), each row of length 1."""

    fingerprint: str
    examples: str
    vectors: np.ndarray
    head: RoutingHead


def examples_digest(examples: Sequence[Example]) -> str:
    """A digest of the examples' texts and agents, in their order."""
    told = json.dumps([(example.agent, example.text) for example in examples])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def write_routing_data(data: RoutingData) -> bytes:
    head = data.head
    arrays = {"vectors": data.vectors, "words": head.words, "dense": head.dense, "rarity": head.rarity}
    told = {
        "version": VERSION,
        "fingerprint": data.fingerprint,
        "examples": data.examples,
        "agents": " ".join(head.agents),
    }
    return write_safetensors({name: array.astype(np.float16) for name, array in arrays.items()}, told)


def read_routing_data(file: bytes, fingerprint: str, examples: str) -> RoutingData:
    """The file, if it was made with this embedder and from these examples. Raises RoutingDataError."""
    try:
        arrays, told = read_safetensors(file)
    except SafetensorsError as error:
        raise RoutingDataError("routing.unreadable", "The routing data cannot be read: {why}", why=error) from error
    if told.get("version") != VERSION:
        raise RoutingDataError(
            "routing.version",
            "The routing data have version {theirs}, but this Sonata needs version {ours}: run `python build.py site`.",
            theirs=shown(told.get("version")),
            ours=shown(VERSION),
        )
    for name, wanted in (("fingerprint", fingerprint), ("examples", examples)):
        if told.get(name) != wanted:
            if name == "fingerprint":
                raise RoutingDataError(
                    "routing.other-embedder",
                    "The routing data were made with another embedder: run `python build.py site`.",
                )
            raise RoutingDataError(
                "routing.other-examples", "The routing data were made with other examples: run `python build.py site`."
            )
    agents = tuple(told.get("agents", "").split())
    widened = {name: array.astype(np.float32) for name, array in arrays.items()}
    vectors = widened.get("vectors", np.empty(0))
    shapes = {"words": (BUCKETS, len(agents)), "dense": (*vectors.shape[1:], len(agents)), "rarity": (BUCKETS,)}
    whole = all(name in widened and widened[name].shape == wanted for name, wanted in shapes.items())
    if vectors.ndim != 2 or not whole:
        raise RoutingDataError(
            "routing.shapes",
            "An array of the routing data is missing or has the wrong shape: run `python build.py site`.",
        )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    head = RoutingHead(agents, widened["rarity"], widened["words"], widened["dense"])
    return RoutingData(fingerprint, examples, vectors, head)
