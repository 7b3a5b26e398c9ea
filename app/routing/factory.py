"""Makes the router from the agents, their examples and the files that build.py made."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.routing.agent_catalog import current_agents, current_examples, no_changes, shipped_agents, shipped_examples
from py_core.hnsw.hnsw_kernel import HnswKernel
from py_core.routing.agents import Example
from py_core.routing.embedder import Embedder
from py_core.routing.parameters import ParametersError, RouterParameters, parameters_from_dict
from py_core.routing.router import Router
from py_core.routing.routing_data import RoutingDataError, examples_digest, read_routing_data

PARAMETERS = Path(__file__).with_name("agents") / "router.toml"
MULTILINGUAL_THRESHOLD = 0.25
"""The least that leaves 97% of the 100 everyday requests of half a, English and German, with the assistant or an agent
that suits them as well."""
MULTILINGUAL_LEARNED_SIMILARITY = 0.6
"""As many pairs of these and of the follow-ups of half a (0.2%) reach it as reach MiniLM's value. The other parameters
are MiniLM's."""
MORE_REQUESTS = Path(__file__).with_name("agents") / "more_requests.toml"


def router_parameters(path: Path = PARAMETERS) -> RouterParameters:
    """Raises ParametersError, naming the file."""
    try:
        return parameters_from_dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError, ParametersError) as error:
        raise ParametersError(f"{path}: {error}") from None


def more_requests(path: Path = MORE_REQUESTS) -> list[Example]:
    """Further training data of the embedder's adapter and the head; each request has its own group."""
    written: dict[str, list[str]] = tomllib.loads(path.read_text(encoding="utf-8"))
    pairs = [(text, agent) for agent, texts in written.items() for text in texts]
    return [Example(text, agent, -number) for number, (text, agent) in enumerate(pairs, 1)]


async def build_router(
    embedder: Embedder, data: bytes, kernel: HnswKernel | None = None, changes: Mapping[str, Any] | None = None
) -> Router:
    """The router of the shipped agents and the user's changes. data: the router's data (build_outputs.py).

    Only the examples that the user wrote are embedded here. Raises RoutingDataError, EmbedderError, AgentError.
    """
    shipped = shipped_examples()
    made = read_routing_data(data, embedder.fingerprint, examples_digest(shipped))
    if len(made.vectors) != len(shipped):
        raise RoutingDataError("routing.no-examples", "The routing data lack examples: run `python build.py site`.")
    agents = current_agents(shipped_agents(), changes or no_changes())
    parameters = router_parameters()
    if embedder.is_multilingual:
        parameters = replace(
            parameters, threshold=MULTILINGUAL_THRESHOLD, learned_similarity=MULTILINGUAL_LEARNED_SIMILARITY
        )
    router = Router(
        embedder, parameters, agents=[agent.id for agent in agents], head=made.head, kernel=kernel,
        is_multilingual=embedder.is_multilingual,
    )  # fmt: skip
    router.add_examples(shipped, made.vectors)
    own = current_examples(agents, [])
    if own:
        router.add_examples(own, await embedder.embed([example.text for example in own]), "agent")
    return router


@dataclass(frozen=True)
class RouterParts:
    """The arguments of `build_router` and RoutingService.open. kernel: None if it was not compiled; then numpy
    searches. gate: of lessons, for this embedder, if it is not one of the files of app/lessons."""

    embedder: Embedder
    data: bytes
    kernel: HnswKernel | None
    gate: bytes | None = None
