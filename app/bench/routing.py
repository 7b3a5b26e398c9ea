"""Measures the router on routing_data/routing_test.toml, beside a router that looks at words only."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.bench.keyword_router import KeywordRouter
from app.routing.agent_catalog import shipped_examples
from py_core.routing.agents import FALLBACK_ID
from py_core.routing.router import Router

TEST_SET = Path(__file__).with_name("routing_data") / "routing_test.toml"
GERMAN_TEST_SET = TEST_SET.with_name("routing_test_de.toml")
FOLLOW_UPS = TEST_SET.with_name("follow_ups.toml")
EVERYDAY = TEST_SET.with_name("everyday.toml")
DIFFICULTIES = ("easy", "medium", "hard")


def read_test_set(path: Path = TEST_SET) -> list[dict[str, Any]]:
    """Rows of text, agent and difficulty. Raises FileNotFoundError, ValueError."""
    rows = _document(path).get("request")
    keys = {"text", "agent", "difficulty"}
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and keys <= set(row) for row in rows):
        raise ValueError(f"{path} must hold [[request]] tables, each with a text, an agent and a difficulty.")
    return rows


def _document(path: Path) -> dict[str, Any]:
    """Raises FileNotFoundError, ValueError."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is not TOML ({error}). Give a file like {TEST_SET.name}.") from error


async def measure_routing(router: Router, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Accuracies are shares of 1. `top1`, `top3`: the right agent is the best of the ranked ones, or among the first
    three. `decided`: the decision is right, a low confidence counting as the fallback."""
    keywords = KeywordRouter(one for one in shipped_examples() if one.agent != FALLBACK_ID).rank
    await router.route("the first text takes longer")
    made = [await router.route(row["text"]) for row in rows]
    wanted = [row["agent"] for row in rows]
    ranked = [[agent for agent, _ in decision.ranked] for decision in made]
    peer = [[agent for agent, _ in keywords(row["text"])] for row in rows]
    confidence = np.array([decision.confidence for decision in made])
    right = {
        "top1": np.array([agent in names[:1] for agent, names in zip(wanted, ranked, strict=True)]),
        "top3": np.array([agent in names[:3] for agent, names in zip(wanted, ranked, strict=True)]),
        "decided": np.array([decision.agent == agent for agent, decision in zip(wanted, made, strict=True)]),
        "keywords_top1": np.array([agent in names[:1] for agent, names in zip(wanted, peer, strict=True)]),
        "keywords_top3": np.array([agent in names[:3] for agent, names in zip(wanted, peer, strict=True)]),
    }
    of = np.array(wanted)
    routed = of != FALLBACK_ID
    fallback = np.array([decision.agent == FALLBACK_ID for decision in made])

    def group(chosen: np.ndarray) -> dict[str, Any]:
        return {"requests": int(chosen.sum()), **{key: _share(found[chosen]) for key, found in right.items()}}

    difficulty = np.array([row["difficulty"] for row in rows])
    steps = {key: np.array([decision.milliseconds[key] for decision in made]) for key in ("embed", "search", "decide")}
    steps["routing proper"] = steps["search"] + steps["decide"]
    steps["all"] = steps["embed"] + steps["routing proper"]
    return {
        "requests": len(rows),
        "all": group(routed),
        "difficulty": {name: group(routed & (difficulty == name)) for name in DIFFICULTIES},
        "agents": {name: group(of == name) for name in sorted(set(wanted) - {FALLBACK_ID})},
        "calibration_error": calibration_error(confidence, right["top1"]),
        "assistant_requests": int((~routed).sum()),
        "assistant_to_fallback": _share(fallback[~routed]),
        "agents_to_fallback": _share(fallback[routed]),
        "milliseconds": {
            name: {f"p{part}": float(np.percentile(times, part)) for part in (50, 95, 99)}
            for name, times in steps.items()
        },
    }


def read_follow_ups(path: Path = FOLLOW_UPS) -> dict[str, list[dict[str, str]]]:
    """Rows of `follow_up` and of `topic_change`: routing_data/README.md. Raises FileNotFoundError."""
    return _document(path)


async def measure_follow_ups(router: Router, written: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, Any]:
    """Measures messages in a running conversation, by half: "a" was used for tuning, "b" was not. Accuracies are shares
    of 1.

    `follow_ups`: messages that stay with the conversation's agent; `follow_ups_without`: if each is routed alone.
    `topic_changes`: messages that go to the agent that they ask for.
    """
    report: dict[str, Any] = {}
    for half in ("a", "b"):
        found: dict[str, list[bool]] = {"follow_ups": [], "follow_ups_without": [], "topic_changes": []}
        for kind, name in (("follow_up", "follow_ups"), ("topic_change", "topic_changes")):
            for row in (row for row in written[kind] if row["half"] == half):
                found[name].append((await router.route(row["next"], row["agent"])).agent == row["wanted"])
                if kind == "follow_up":
                    found["follow_ups_without"].append((await router.route(row["next"])).agent == row["wanted"])
        report[half] = {"rows": len(found["follow_ups"])} | {k: _share(np.array(v)) for k, v in found.items()}
    return report


def read_everyday(path: Path = EVERYDAY) -> list[dict[str, Any]]:
    """Rows of text, language, half and also: routing_data/README.md. Raises FileNotFoundError."""
    rows: list[dict[str, Any]] = _document(path)["request"]
    return rows


async def measure_everyday(router: Router, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measures everyday requests by language and half: "a" was used for tuning, "b" was not. Shares of 1.

    `assistant`: requests that stay with the plain assistant; `suits`: requests that go to an agent that suits them as
    well. `elsewhere`: texts of the others, with their agents.
    """
    report = list[dict[str, Any]]()
    for language, half in sorted({(row["language"], row["half"]) for row in rows}):
        group = [row for row in rows if (row["language"], row["half"]) == (language, half)]
        made = [((await router.route(row["text"])).agent, row) for row in group]
        plain = np.array([agent == FALLBACK_ID for agent, _ in made])
        suits = np.array([agent in row["also"] for agent, row in made])
        report.append({
            "language": language, "half": half, "requests": len(group),
            "assistant": _share(plain), "suits": _share(suits),
            "elsewhere": [[agent, row["text"]] for agent, row in made if agent not in (FALLBACK_ID, *row["also"])],
        })  # fmt: skip
    return report


def calibration_error(
    confidence: np.ndarray, right: np.ndarray, mass: np.ndarray | None = None, bins: int = 10
) -> float:
    """Expected calibration error: mean difference of confidence and accuracy over bins of equal width.

    mass: of the rows, sums to 1; equal weights if it is None.
    """
    mass = np.full(len(right), 1 / len(right)) if mass is None else mass
    of = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(sum(abs((mass * (confidence - right))[of == bin].sum()) for bin in range(bins)))


def _share(found: np.ndarray) -> float:
    return float(found.mean()) if len(found) else 0.0
