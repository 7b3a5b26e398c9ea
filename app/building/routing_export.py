"""Makes the routing data with the embedder that build.py made: python -m app.building.routing_export OUTPUT"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from app.native_runtime import open_embedder
from app.routing.agent_catalog import shipped_examples
from app.routing.factory import more_requests, router_parameters
from py_core.routing.embedder import Embedder
from py_core.routing.head import fit_head
from py_core.routing.parameters import RouterParameters
from py_core.routing.routing_data import RoutingData, examples_digest, write_routing_data


async def routing_data(embedder: Embedder, parameters: RouterParameters) -> RoutingData:
    """The vectors of the shipped examples. Raises EmbedderError."""
    examples = shipped_examples()
    learned = examples + more_requests()
    texts, agents = [example.text for example in learned], [example.agent for example in learned]
    vectors = await embedder.embed(texts)
    head = fit_head(texts, vectors, agents, words=parameters.head_words, ridge=parameters.head_ridge)
    return RoutingData(embedder.fingerprint, examples_digest(examples), vectors[: len(examples)], head)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--multilingual", action="store_true", help="with the multilingual embedder")
    options = parser.parse_args()
    data = asyncio.run(routing_data(open_embedder(threads=2, multilingual=options.multilingual), router_parameters()))
    options.output.write_bytes(write_routing_data(data))


if __name__ == "__main__":
    main()
