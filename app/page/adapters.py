"""The page's calls for adapters: make an adapter from a person's files, and answer with a kept adapter.

web/storage/adapter_store.js keeps their files, which have Sonata's own format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from app.generation.assistant import Assistant
from app.models.adapter_import import BaseModel, adapter_of_files, fitted, lost_of, name_of
from py_core.adapters.files import read_adapter, write_adapter
from py_core.adapters.lora import MAX_RANK, check_base
from py_core.adapters.peft import WEIGHTS_FILE
from py_core.loading import Model
from py_core.messages import Words


async def choose(assistant: Assistant, name: str, base_sha256: str, read: Callable[[], Awaitable[bytes]]) -> Words:
    """Choose the adapter from the next message on; "" for none. base_sha256: of the model that runs. Returns
    `leaves_out`.

    Raises AdapterError, BackendError, and what `read` raises.
    """
    if not name:
        await assistant.use_adapter(None)
        return ""
    adapter = assistant.adapters.opened(name)
    if adapter is None:
        model = assistant.model
        adapter = replace(read_adapter(await read(), model.config, model.graph), name=name)
        check_base(adapter, base_sha256)
    await assistant.use_adapter(adapter)
    return assistant.leaves_out


def made_of(
    files: Mapping[str, bytes], model: Model, base: Mapping[str, str], kept: Mapping[str, str]
) -> tuple[dict[str, Any], bytes]:
    """Return facts ({name, rank, linears, lost, sha256}) and the file of an adapter that fits `model`, the running
    model.

    base: {sha256, title} of that model. kept: the sha256 of each kept file, by the adapter's name. A different adapter
    of the same name gets a number; the same adapter is made again. Raises AdapterError.
    """
    of = BaseModel(model.config, model.graph, base["sha256"], base["title"])
    titles = [PurePath(name).stem for name in files if not name.endswith(".json") and name != WEIGHTS_FILE]
    adapter = fitted(adapter_of_files(files, of, titles[0] if titles else "adapter"), of, MAX_RANK)
    title = adapter.name
    taken = set[str]()
    while True:
        adapter = replace(adapter, name=name_of(title, taken))
        data = write_adapter(adapter, of.config, of.graph)
        sha256 = hashlib.sha256(data).hexdigest()
        if kept.get(adapter.name, sha256) == sha256:
            break
        taken.add(adapter.name)
    facts = {"name": adapter.name, "rank": adapter.rank, "linears": len(adapter.pairs), "sha256": sha256}
    return facts | {"lost": lost_of(adapter.metadata)}, data
