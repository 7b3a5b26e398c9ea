"""The adapters that answers use: what each was learned from, its strength, and its test results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.records.revisions import Run
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.norms import layer_norms

if TYPE_CHECKING:
    from app.models.views import AdapterKind, AdapterView, Strength
    from app.runtime import Runtime

MOST_FACTS = 50
"""At most this number of an adapter's facts are listed."""


async def adapter_views(runtime: Runtime, chosen: LoraAdapter | None) -> list[AdapterView]:
    """Those of the model that runs. chosen: what the conversation answers with. Raises StoreError."""
    found: list[AdapterView] = []
    if chosen is not None:
        found.append({**_view("chosen", chosen.name, True), **_strength(chosen)})
    consolidation, learning = runtime.consolidation, runtime.learning
    if consolidation is not None and learning is not None:
        questions = {one.id: one.question for one in await learning.memory.lessons.all()}
        runs = await learning.memory.revisions.runs(learning.base_sha256)
        newest = max((run.revision for run in runs), default=0)
        for run in reversed(runs):
            adapter = await consolidation.adapter_of(run) if run.has_weights else None
            if adapter is not None:
                current = consolidation.current
                is_on = current is not None and current.id == run.id
                view = _learned(run, adapter, is_on, [questions[id] for id in run.lessons if id in questions])
                view["older"] = run.revision < newest
                found.append(view)
    if learning is not None and learning.reader is not None and learning.reader.is_there:
        reader = learning.reader.adapter
        view = _view("reader", "", learning.reads_now)
        found.append(view if reader is None else {**view, **_strength(reader)})
    return found


def _view(kind: AdapterKind, id: str, on: bool) -> AdapterView:
    return {
        "kind": kind, "id": id, "on": on, "older": False, "created": None, "bytes": None, "rank": None, "norms": [],
        "norm": None, "facts": [], "count": 0, "tests": [],
    }  # fmt: skip


def _strength(adapter: LoraAdapter) -> Strength:
    norms = layer_norms(adapter)
    return {
        "rank": adapter.rank,
        "bytes": 2 * sum(pair.a.size + pair.b.size for pair in adapter.pairs.values()),
        "norms": norms,
        "norm": sum(norm**2 for _, norm in norms) ** 0.5,
    }


def _learned(run: Run, adapter: LoraAdapter, on: bool, questions: Sequence[str]) -> AdapterView:
    probe, recall = run.probe, run.recall
    tests = [
        ("probe", probe.get("before", probe.get("base")), probe.get("after")),
        ("recall", recall.get("before"), recall.get("after")),
    ]
    return {
        **_view("learned", run.id, on), **_strength(adapter),
        "created": run.created, "facts": list(questions[:MOST_FACTS]), "count": len(run.lessons),
        "tests": [(name, before, after) for name, before, after in tests if after is not None],
    }  # fmt: skip
