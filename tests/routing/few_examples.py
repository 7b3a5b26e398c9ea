"""The router with every 16th group of its examples: it opens in a fraction of the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app import native_runtime
from app.routing import factory as router_factory
from app.routing.agent_catalog import shipped_examples
from app.routing.factory import RouterParts
from py_core.routing.agents import Example
from py_core.routing.routing_data import RoutingData, examples_digest, read_routing_data, write_routing_data

EVERY = 16


def few_examples() -> list[Example]:
    return [example for example in shipped_examples() if example.group % EVERY == 0]


def few_parts(parts: RouterParts) -> RouterParts:
    """parts: the router's parts with all examples. The head is the same."""
    every = shipped_examples()
    made = read_routing_data(parts.data, parts.embedder.fingerprint, examples_digest(every))
    chosen = [number for number, example in enumerate(every) if example.group % EVERY == 0]
    data = RoutingData(made.fingerprint, examples_digest(few_examples()), made.vectors[chosen], made.head)
    return replace(parts, data=write_routing_data(data))


def use_few_examples(patch: pytest.MonkeyPatch, parts: RouterParts) -> None:
    """Until the patch is undone, every router of this process uses them. parts: the result of `few_parts`."""
    few = few_examples()
    patch.setattr(router_factory, "shipped_examples", lambda: few)
    patch.setattr(native_runtime, "native_router_parts", lambda multilingual=False: parts)
