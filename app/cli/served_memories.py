"""The memories that `sonata serve --api` opens by name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from app.api.lessons import LessonMemory
from app.cli.home import home_memory, opened_runtime
from py_core.display import shown
from py_core.loading import Model

OWN = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@asynccontextmanager
async def opened_memories(
    folders: Mapping[str, Path | None], model: Model, given: Path | None
) -> AsyncIterator[Mapping[str, LessonMemory]]:
    """folders: by the memories' names, as --home takes them. given: as in opened_runtime, which says what is raised."""
    async with AsyncExitStack() as opened:
        found = dict[str, LessonMemory]()
        for name, home in folders.items():
            runtime = await opened.enter_async_context(opened_runtime(home, model, given))
            found[name] = LessonMemory(runtime, model)
        yield found


def folder_of(name: str, home: Path | None) -> Path | None:
    """Return the folder of a memory, as --home takes it. Raises ValueError for anything else."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is not a name of a memory: one has letters, digits, - and _, such as --memory work."
        )
    return home if name == OWN else home_memory(home).parent / "memories" / name
