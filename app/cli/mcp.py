"""`sonata mcp`: the memory, the router and the model for other programs, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from app.chat.asker import ASKED_TOKENS
from app.cli.home import HomeOption, opened_memory
from app.cli.loading import DEFAULTS, ModelOptions, model_options
from app.models.cache import model_path, sha256_of_model
from app.native_runtime import native_router
from app.runtime import Runtime, RuntimeConfig
from py_core.loading import Model

MCP_PORT = 8765


def check_package() -> None:
    """Raises ValueError, with what to do, if the package `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise ValueError(
            "This needs the package mcp, which is not installed: run `pip install '.[mcp]'` in Sonata's folder."
        )


@model_options("autotune", "context", "draft", "max_memory")
def mcp(
    options: ModelOptions = DEFAULTS,
    home: HomeOption = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve by streamable HTTP on localhost instead of standard input and output.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = ASKED_TOKENS,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for --http; 0 takes a free one.")] = MCP_PORT,
) -> None:
    """Offer the memory, the router and the model to other programs, such as Claude or an editor, by MCP.

    Such a program starts this command itself and talks to it over standard input and output. With --http it runs until
    Ctrl-C, and each program of this machine can reach it. The model is loaded when it is first asked.
    """
    check_package()
    asyncio.run(_serve(options, home, max_tokens, port if http else None))


async def _serve(options: ModelOptions, home: Path | None, max_tokens: int, port: int | None) -> None:
    from app.mcp.memory_server import MemoryServer  # late: the package mcp takes a second to import
    from app.mcp.transports import serve_http, serve_stdio

    async def load() -> tuple[Model, str]:
        model = await options.load()
        return model, await asyncio.to_thread(sha256_of_model, model_path(options.model))

    async with opened_memory(home) as memory:
        offered = MemoryServer(Runtime(RuntimeConfig(memory=memory, router=native_router)), load, max_tokens)
        try:
            await (serve_stdio(offered.server) if port is None else serve_http(offered.server, port))
        finally:
            offered.close()
