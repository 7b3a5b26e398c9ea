"""The calls of one page to the model: web/engine/worker.js has a PageSession for each page (app/page/worker.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.consolidation.api import LearningApi
from app.extraction.api import TablesApi
from app.files.api import FilesApi
from app.generation.assistant import Assistant
from app.memory.api import MemoryApi
from app.page.adapters import choose
from app.page.api_calls import ApiCalls
from app.page.calls import PageCalls, answer_of
from app.page.conversation import TalkApi
from app.page.developer import DeveloperApi
from app.page.model import ModelApi, PagesOwner
from app.page.offered_tools import ToolsApi
from app.page.talk import PageTalk
from app.runtime import Runtime
from py_core.messages import Words

JsObject = Any


@dataclass(frozen=True)
class Apis:
    """The apis that the page calls, by name. web/protocol_calls.js is made from their public methods."""

    conversation: TalkApi
    memory: MemoryApi
    learning: LearningApi
    files: FilesApi
    tables: TablesApi
    tools: ToolsApi
    model: ModelApi
    developer: DeveloperApi
    api: ApiCalls


class PageSession:
    """Answers one page's calls. Several pages get answers at once: the engine's scheduler lets them take turns."""

    def __init__(self, runtime: Runtime, new_assistant: Callable[[], Assistant], owner: PagesOwner) -> None:
        """new_assistant: makes one for the model that runs; raises BackendError if none runs yet."""
        talk = self.talk = PageTalk(runtime, new_assistant)
        self.apis = Apis(
            TalkApi(talk), MemoryApi(runtime),
            LearningApi(runtime, talk.leaves_out, talk.adapter, talk.leave_out, talk.forgotten),
            FilesApi(runtime.files), TablesApi(talk), ToolsApi(talk.offered), ModelApi(talk, owner),
            DeveloperApi(talk), ApiCalls(talk),
        )  # fmt: skip
        self._calls = PageCalls(vars(self.apis))
        self.stream = self._calls.stream

    async def call(self, api: str, method: str, args: str, data: JsObject) -> bytes | str:
        """Call as PageCalls.call does. data: {name: Uint8Array}."""
        return await self._calls.call(api, method, args, {name: bytes(one) for name, one in data.to_py().items()})

    async def use_adapter(self, name: str, base: str, read: Callable[[], Any]) -> bytes | str:
        """Answer with an adapter from the next message on, without one if `name` is "". `read` returns its file, if
        that is needed; base: the sha256 of the model that runs. Returns, as `answer_of`, a sentence on what is left out
        for it, or ""."""

        async def file() -> bytes:
            return (await read()).to_bytes()

        async def use() -> Words:
            return await choose(self.talk.conversation().assistant, name, base, file)

        return await answer_of(use())

    async def close(self) -> None:
        """Close the session: the page is gone."""
        await self.talk.close()
