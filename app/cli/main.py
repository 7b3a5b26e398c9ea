"""The command line: `sonata chat | generate | compute | teach | ask | memory | perplexity | tokenize | models ...`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from app.bench.logits import logits_of, read_job
from app.cli.adapters import (
    AdapterOption,
    AdaptersOption,
    MergeOption,
    WeightsOption,
    adapters_app,
    add_adapter,
    add_merged,
    base_of,
)
from app.cli.attachments import FileOption, read_attachment, unstored_runtime
from app.cli.bench import profile_tables, speed_table
from app.cli.bench_humaneval import bench_humaneval
from app.cli.bench_learning import bench_learning
from app.cli.bench_memory import bench_memory
from app.cli.chats import chats_app
from app.cli.consolidation import consolidate
from app.cli.exact_tools import compute
from app.cli.files import convert, quantize
from app.cli.grammar import NO_SHAPE, ShapeOptions, grammar_app, tell_cut_off
from app.cli.home import HomeOption, home_memory
from app.cli.learning import ask, relearn, teach
from app.cli.loading import DEFAULTS, ModelOptions, model_options, unmask_as
from app.cli.mcp import mcp
from app.cli.memory import memory_app
from app.cli.model_file import NoBosOption, info, tokenize
from app.cli.models import models_app
from app.cli.option_groups import option_group
from app.cli.perplexity import perplexity
from app.cli.python_runs import PythonOption
from app.cli.routing import bench_routing, route
from app.cli.terminal import console, say
from app.cli.terminal_chat import run_chat
from app.cli.tool_calls import ToolOptions
from app.cli.tool_sources import ServersOption, ToolFilesOption, YesOption
from app.cli.tools import tools_app
from app.consolidation.one_learner import FileLock
from app.files.text import text_of
from app.generation.answer_adapters import AnswerAdapters
from app.generation.answer_settings import kept_from_loops
from app.generation.assistant import CHAT_SAMPLING, MAX_TOKENS
from app.generation.completion import complete, last_logits
from app.generation.speed import Speed, measure_speed, profile_report
from app.models.adapter_folder import open_adapter
from app.models.cache import CacheError, model_path, sha256_of_model
from app.models.catalog import HubError
from app.models.model_pull import PullError
from app.native_runtime import open_runtime
from app.server.site import ALLOW_NAME, DIST, ServerError, create_app
from app.server.site import serve as serve_site
from py_core.backend_errors import BackendError
from py_core.display import sentence_of
from py_core.engine.diffusion import USUAL, Unmasking
from py_core.formats.gguf import GGUFError
from py_core.formats.quantization import UnsupportedFormatError
from py_core.routing.embedder import EmbedderError
from py_core.sampling import SamplingParams
from py_core.store.errors import StoreError
from py_core.tokenizers.base import TokenizerError
from py_core.tokenizers.chat_template import ChatTemplateError

if TYPE_CHECKING:
    from app.generation.tool_loop import ToolUse
    from app.runtime import Runtime
    from app.tools.tool_file import ToolFile

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown",
    help="Sonata: a private chat assistant for the web page and the terminal.",
)  # fmt: skip
bench_app = typer.Typer(rich_markup_mode="markdown")
app.add_typer(bench_app, name="bench")
app.add_typer(models_app, name="models")
app.add_typer(adapters_app, name="adapters")
app.add_typer(grammar_app, name="grammar")
app.add_typer(tools_app, name="tools")
memory_app.add_typer(chats_app, name="chats")
app.add_typer(memory_app, name="memory")
notes = console(stderr=True)


def _tell_version(wanted: bool) -> None:
    if wanted:
        say(f"Sonata {version('sonata')}")
        raise typer.Exit


@app.callback()
def options(
    tell_version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


MAX_PROMPT_CHARS = 1 << 28
"""A context of a million tokens of 256 characters each. The model's own limit is known once it is loaded."""


RawOption = Annotated[
    bool,
    typer.Option(
        "--raw", help="Use no chat template: special tokens are parsed, and the end token does not end the text."
    ),
]
PromptArgument = Annotated[str, typer.Argument(help="The text, or - to read it from standard input.")]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="The most tokens to write.")]
TemperatureOption = Annotated[float, typer.Option(min=0.0, help="0 always takes the likeliest token.")]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1)]


@app.command()
@option_group("shape", ShapeOptions)
@model_options("autotune", "context", "tiers", "draft", "max_memory")
def chat(
    options: ModelOptions = DEFAULTS,
    temperature: TemperatureOption = CHAT_SAMPLING.temperature,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0)] = CHAT_SAMPLING.top_p,
    seed: SeedOption = CHAT_SAMPLING.seed,
    max_tokens: MaxTokensOption = MAX_TOKENS,
    adapter: AdapterOption = None,
    shape: ShapeOptions = NO_SHAPE,
    file: FileOption = None,
    home: HomeOption = None,
    plain: Annotated[bool, typer.Option("--plain", help="Use no agents and store nothing.")] = False,
    no_bos: NoBosOption = False,
    tools: ToolFilesOption = None,
    servers: ServersOption = None,
    python: PythonOption = False,
    yes: YesOption = False,
) -> None:
    """Chat with the model. Each message goes to the agent that suits it, and the conversation is stored.

    "Remember that ..." teaches an answer, which later messages get if they ask for it, also in other words. Ctrl-C
    stops an answer, /new starts over, /exit or Ctrl-D ends the chat. The agent's sampling applies unless you set yours.
    --file attaches files, as /file PATH does in the chat: answers are based on them. With --schema, --grammar, --regex
    or --choice each answer is a text of that shape, of whichever agent. With --tools, --mcp or --python the model may
    call tools, which run on this machine.
    """
    for path in file or ():
        text_of(*read_attachment(path))  # before the model is loaded
    chosen = shape.applied_to(replace(CHAT_SAMPLING, temperature=temperature, top_p=top_p, seed=seed))
    called = ToolOptions(tools, python, servers, yes)
    called.check(chosen.grammar is not None)
    code = called.files(home)
    with asyncio.Runner() as runner, ExitStack() as stack:
        loaded = runner.run(options.load())
        sampling = None if chosen == CHAT_SAMPLING else chosen
        if sampling and not sampling.grammar:
            sampling = kept_from_loops(sampling, loaded.graph.parameters)
        loaded.bos = not no_bos
        adapters = AnswerAdapters(loaded.engine)
        if plain:
            runtime = runner.run(unstored_runtime())
        else:
            path = home_memory(home)
            lock = FileLock(path.with_name(f"{path.name}.learning"))
            base = sha256_of_model(model_path(options.model))
            runtime = runner.run(open_runtime(path, loaded, base, adapters, only_one=lock))
        use = stack.enter_context(_opened(runner, called, code, home, runtime)) if called.executes else None
        run_chat(
            runner, loaded, sampling, max_tokens, runtime,
            lambda given: open_adapter(given, base_of(options.model, loaded), home), adapter, adapters, file or (),
            python, use,
        )  # fmt: skip
        stack.close()
        runner.run(runtime.close())
        loaded.close()


@contextmanager
def _opened(
    runner: asyncio.Runner, tools: ToolOptions, code: Sequence[ToolFile], home: Path | None, runtime: Runtime
) -> Iterator[ToolUse]:
    """Offer tools over the open memory."""
    from app.memory.items import MemoryItems

    async def memory() -> MemoryItems:
        return MemoryItems(runtime)

    opened = tools.opened(code, home, memory=memory, redirects=False)
    use = runner.run(opened.__aenter__())
    try:
        yield use
    finally:
        runner.run(opened.__aexit__(None, None, None))


@app.command()
@option_group("shape", ShapeOptions)
@model_options("autotune", "context", "draft", "max_memory")
def generate(
    prompt: PromptArgument,
    raw: RawOption = False,
    max_tokens: MaxTokensOption = 128,
    temperature: TemperatureOption = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="0 turns it off.")] = 0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0)] = 1.0,
    min_p: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(min=0.01)] = 1.0,
    seed: SeedOption = 0,
    options: ModelOptions = DEFAULTS,
    adapter: AdapterOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with tokens and speed.")] = False,
    no_bos: NoBosOption = False,
    shape: ShapeOptions = NO_SHAPE,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the text alone.")] = False,
    sure: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Diffusion: places become tokens that are this likely.")
    ] = USUAL.threshold,
    passes: Annotated[
        int | None, typer.Option(min=1, help="Diffusion: instead, write each block in this many passes.")
    ] = None,
    remask: Annotated[
        bool, typer.Option("--remask", help="Diffusion: write places of a full block again that were less likely.")
    ] = False,
) -> None:
    """Answer one prompt, or continue it with --raw.

    The text is what the model wrote, including its thoughts, in their tags. `sonata chat` shows thoughts separately.
    With --schema, --grammar, --regex or --choice it is a text of that shape.
    """
    sampling = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty, seed=seed
    )
    text = _read_prompt(prompt)
    asyncio.run(
        _generate(
            text, raw, max_tokens, shape.applied_to(sampling), options, adapter, as_json, no_bos, quiet,
            Unmasking(sure, passes, remask),
        )
    )  # fmt: skip


@app.command()
@model_options("context")
def logits(
    out: Annotated[Path, typer.Option(help="The .npy file to write: float32 ([positions,] vocab_size).")],
    prompt: Annotated[str | None, typer.Argument(help="The text, or - to read it from standard input.")] = None,
    ids: Annotated[
        Path | None, typer.Option(help='Instead of a prompt, a file {"ids": [...], "positions": [...]}.')
    ] = None,
    raw: RawOption = False,
    options: ModelOptions = DEFAULTS,
    adapter: AdaptersOption = None,
    merge: MergeOption = None,
    weights: WeightsOption = None,
    no_bos: NoBosOption = False,
) -> None:
    """Write the logits after a prompt's last token, or after the positions of given token ids."""
    if (prompt is None) == (ids is None):
        raise ValueError("Give either a prompt or --ids.")

    async def run() -> np.ndarray:
        loaded = await options.load()
        loaded.bos = not no_bos
        try:
            number = await add_merged(adapter or [], merge, weights, options.model, loaded)
            if ids is not None:
                return await logits_of(loaded.engine, read_job(ids, loaded.config.vocab_size), number)
            return await last_logits(loaded, _read_prompt(prompt or ""), raw=raw, adapter=number)
        finally:
            loaded.close()

    values = asyncio.run(run())
    # A file object: np.save would add .npy to a name without it.
    with open(out, "wb") as file:
        np.save(file, values)


app.command()(perplexity)
app.command()(tokenize)
app.command()(compute)
app.command()(info)
app.command()(quantize)
app.command()(convert)
app.command()(route)
app.command()(teach)
app.command()(ask)
app.command()(consolidate)
app.command()(relearn)
app.command()(mcp)
bench_app.command("routing")(bench_routing)
bench_app.command("learning")(bench_learning)
bench_app.command("humaneval")(bench_humaneval)
bench_app.command("memory")(bench_memory)


@bench_app.callback(invoke_without_command=True)
@model_options("autotune")
def bench(
    context: typer.Context,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens in the prompt.")] = 121,
    tokens: Annotated[int, typer.Option(min=1, help="New tokens.")] = 128,
    position: Annotated[
        int | None, typer.Option(min=1, help="The position of the first new token. The default is after the prompt.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Each figure is the median of this many rounds.")] = 3,
    profile: Annotated[bool, typer.Option("--profile", help="Measure each kernel, too (webgpu only).")] = False,
    options: ModelOptions = DEFAULTS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how fast the model runs here. `routing` measures the router, `learning` what is recalled, `memory` what
    the model's memory holds."""
    if context.invoked_subcommand:
        return

    async def run() -> tuple[Speed, dict[str, Any] | None]:
        loaded = await options.load()
        at = position or prompt_tokens
        with notes.status("Measuring"):
            if profile:
                rows = min(prompt_tokens, loaded.engine.most_profiled_rows)  # refuses other backends at once
            speed = await measure_speed(loaded, prompt_tokens, tokens, at, rounds)
            report = None
            if profile:
                report = await profile_report(loaded, [(at, 1), (0, rows)] if rows > 1 else [(at, 1)])
        loaded.close()
        return speed, report

    speed, report = asyncio.run(run())
    if as_json:
        print(json.dumps(asdict(speed) | ({"profile": report} if report else {})))
        return
    console().print(speed_table(speed))
    if report:
        console().print(profile_tables(report))


@app.command()
@model_options("context", "autotune", "max_memory")
def serve(
    host: Annotated[str, typer.Option()] = "localhost",
    port: Annotated[int, typer.Option()] = 8000,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    dist: Annotated[Path, typer.Option(help="The site that build.py made.")] = DIST,
    allow_name: Annotated[list[str], typer.Option(help=ALLOW_NAME)] = [],  # noqa: B006 - typer makes a new one
    api: Annotated[
        bool, typer.Option("--api", help="Serve an API like OpenAI's instead of the page; the next options go with it.")
    ] = False,
    page: Annotated[bool, typer.Option("--page", help="Serve the page, too.")] = False,
    api_key: Annotated[
        list[str], typer.Option(envvar="SONATA_API_KEY", help="A key that opens the API (may be repeated).")
    ] = [],  # noqa: B006
    allow_origin: Annotated[
        list[str], typer.Option(help="The origin of a page that may use the API, such as https://example.org.")
    ] = [],  # noqa: B006
    memory: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Open a memory: requests that name it are answered with its lessons, and may teach more. `default` is "
            "your own; another name is that of a folder beside it, which is made if it is missing (may be repeated).",
        ),
    ] = [],  # noqa: B006
    home: HomeOption = None,
    options: ModelOptions = DEFAULTS,
) -> None:
    """Serve the web page, or the model to other programs. `python build.py serve` builds the page first."""
    if not api:
        serve_site(dist, host, port, not no_open, allow_name)
        return
    from app.api.server import ApiOptions, ApiServer, serve_api  # late: other commands begin sooner
    from app.cli.served_memories import folder_of, opened_memories

    folders = {name: folder_of(name, home) for name in memory}
    names = ("localhost", host, *allow_name)
    site = create_app(dist, names=names) if page else None  # before the model is loaded

    async def run() -> None:
        model = await options.load()
        try:
            async with opened_memories(folders, model, options.model) as memories:
                served = ApiServer(model, ApiOptions(api_key, allow_origin, names), memories)
                await serve_api(served, host, port, site, not no_open)
        finally:
            model.close()

    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a user ends the server
        asyncio.run(run())


async def _generate(
    text: str, raw: bool, max_tokens: int, sampling: SamplingParams, options: ModelOptions, adapter: str | None,
    as_json: bool, no_bos: bool, quiet: bool, unmasking: Unmasking,
) -> None:  # fmt: skip
    loaded = await options.load()
    unmask_as(loaded, unmasking)
    loaded.bos = not no_bos
    number = await add_adapter(adapter, options.model, loaded)
    done = await complete(
        loaded, text, raw=raw, max_tokens=max_tokens, sampling=sampling, adapter=number,
        on_text=lambda piece: None if as_json else say(piece, end=""),
    )  # fmt: skip
    loaded.close()
    if as_json:
        print(json.dumps(asdict(done)))
    else:
        say("")
        speed = f"{done.prefill_tok_s:.1f} tok/s prompt, {done.decode_tok_s:.1f} answer"
        if done.passes:
            speed += f", {len(done.tokens)} tokens in {done.passes} passes"
        if sampling.grammar and done.reason != "end":
            tell_cut_off(sampling.closes)
        if not quiet:
            notes.print(f"[dim]{escape(done.adapter)}: {speed}[/dim]")


def _read_prompt(prompt: str) -> str:
    """Raises ValueError if standard input does not end."""
    if prompt != "-":
        return prompt
    text = sys.stdin.read(MAX_PROMPT_CHARS + 1)
    if len(text) > MAX_PROMPT_CHARS:
        raise ValueError(
            f"Standard input has over {MAX_PROMPT_CHARS:,} characters, more than any model reads. Give less."
        )
    return text


def main() -> None:
    """Entry point: errors that the user can act on are one sentence on stderr and exit status 1."""
    try:
        app()
    except (GGUFError, UnsupportedFormatError, TokenizerError, ChatTemplateError, BackendError, ServerError) as error:
        _fail(error)
    except (ValueError, OSError, EOFError, CacheError, HubError, PullError, StoreError, EmbedderError) as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: Exception) -> None:
    notes.print(f"[red]Error:[/red] {escape(sentence_of(error))}", soft_wrap=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
