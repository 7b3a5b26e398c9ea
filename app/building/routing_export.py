"""Makes the routing data with the embedder that build.py made: python -m app.building.routing_export OUTPUT"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from app.agent_catalog import shipped_examples
from app.native_services import open_embedder
from app.router_factory import more_requests, out_of_scope, router_parameters
from py_core.routing.agents import FALLBACK_ID
from py_core.routing.head import fit_head
from py_core.routing.routing_data import RoutingData, examples_digest, write_routing_data


async def routing_data() -> RoutingData:
    embedder = open_embedder(threads=2)
    parameters = router_parameters()
    examples, others = shipped_examples(), out_of_scope()
    learned = examples + more_requests()
    texts = [example.text for example in learned] + others
    agents = [example.agent for example in learned] + [FALLBACK_ID] * len(others)
    vectors = await embedder.embed(texts)
    head = fit_head(texts, vectors, agents, words=parameters.head_words, ridge=parameters.head_ridge)
    return RoutingData(embedder.fingerprint, examples_digest(examples), vectors[: len(examples)], head)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    options.output.write_bytes(write_routing_data(asyncio.run(routing_data())))


if __name__ == "__main__":
    main()
