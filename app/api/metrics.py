"""GET /metrics: the server's figures in Prometheus' form, under the names that llama.cpp's server gives them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.api.slots import Slots
from app.api.totals import Totals
from py_core.engine.engine import Engine

CONTENT_TYPE = CONTENT_TYPE_LATEST


def metrics(totals: Totals, slots: Slots, engine: Engine) -> bytes:
    """Return the text of an answer of the type CONTENT_TYPE."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(totals, slots, engine))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, totals: Totals, slots: Slots, engine: Engine) -> None:
        self._totals, self._slots, self._engine = totals, slots, engine

    def collect(self) -> Iterator[Metric]:
        made, slots = self._totals, self._slots
        yield _counter(
            "prompt_tokens", "Tokens of prompts that were read; reused ones do not count.", made.prompt_tokens
        )
        yield _counter("prompt_seconds", "Seconds until prompts were read.", made.prompt_seconds)
        yield _counter("tokens_predicted", "Tokens of answers.", made.new_tokens)
        yield _counter("tokens_predicted_seconds", "Seconds of answers.", made.new_seconds)
        yield _gauge(
            "prompt_tokens_seconds", "Tokens of prompts a second.", _rate(made.prompt_tokens, made.prompt_seconds)
        )
        yield _gauge(
            "predicted_tokens_seconds", "Tokens of an answer a second.", _rate(made.new_tokens, made.new_seconds)
        )
        yield _gauge("requests_processing", "Answers that run.", slots.running)
        yield _gauge("requests_deferred", "Requests that wait for an answer.", slots.waiting)
        yield _gauge("kv_cache_usage_ratio", "Part of the pages of keys and values that answers hold.", self._held())

    def _held(self) -> float:
        pages = self._engine.memory().pages.values()
        there = sum(tier.conversations + tier.kept + tier.free for tier in pages)
        return sum(tier.conversations for tier in pages) / there if there else 0.0


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(f"llamacpp:{name}", about, value=value)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"llamacpp:{name}", about, value=value)


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0
