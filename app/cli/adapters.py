"""`sonata adapters list | import | export | rm`: they change a model's answers, and lie beside the memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from app.cli.home import HomeOption
from app.cli.memory import agreed
from app.cli.model_file import ModelOption
from app.cli.models import JsonOption, NameOption, size_words
from app.cli.terminal import console, say
from app.models.adapter_folder import AdapterFolder, KeptAdapter, files_at, open_adapter, title_of, write_whole
from app.models.adapter_import import BaseModel, adapter_of_files, check_name, fitted, name_of
from app.models.cache import ModelCache, model_path, sha256_of_model
from py_core.adapters.files import export_peft
from py_core.adapters.lora import MAX_RANK, AdapterError, LoraAdapter
from py_core.adapters.merging import METHODS, merge
from py_core.display import one_line, shown
from py_core.formats.source import open_source
from py_core.loading import Model, read_description

adapters_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True,
    help="Keep, list and delete adapters, which change how a model answers without changing the model.",
)  # fmt: skip
notes = console(stderr=True)

AdapterOption = Annotated[
    str | None,
    typer.Option(help="Answer with this adapter: a name of `sonata adapters list`, or a file or folder."),
]
AdaptersOption = Annotated[
    list[str] | None, typer.Option("--adapter", help="The same; give it several times with --merge to combine them.")
]
MergeOption = Annotated[
    str | None, typer.Option("--merge", help=f"How to combine several adapters: {', '.join(METHODS)}.")
]
WeightsOption = Annotated[
    str | None, typer.Option("--weights", help="The weights of the adapters to merge, such as 0.7,0.3.")
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace what has this name.")]


@adapters_app.command("list")
def list_adapters(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show the adapters that are kept here."""
    folder = AdapterFolder(home)
    kept = folder.adapters()
    if as_json:
        print(json.dumps({"adapters": [_facts(one) for one in kept], "folder": str(folder.folder)}))
        return
    if not kept:
        say(f"No adapter is kept in {folder.folder}: `sonata adapters import FILE` keeps one.")
        return
    table = Table("name", "for the model", "rank", "linears", "size", "lost")
    for one in kept:
        if one.problem:
            table.add_row(escape(one.name), "cannot be used, see below", "", "", size_words(one.size), "")
            continue
        model = one.base or one.base_sha256[:12]
        lost = f"{one.lost:.1%}" if one.lost else ""
        table.add_row(*map(escape, (one.name, model, str(one.rank), str(one.linears), size_words(one.size), lost)))
    console().print(table)
    for one in kept:
        if one.problem:
            say(f"{one.name}: {one.problem}")


@adapters_app.command("import")
def import_adapter(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A PEFT folder, or an adapter's .safetensors or .gguf file.")
    ],
    name: NameOption = None,
    model: ModelOption = None,
    rank: Annotated[
        int | None,
        typer.Option(min=1, help=f"Reduce it to this rank, and say what that costs. It may have up to {MAX_RANK}."),
    ] = None,
    replacing: ReplaceOption = False,
    home: HomeOption = None,
) -> None:
    """Keep an adapter for the model that it was trained on (--model; the default comes with Sonata)."""
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist.")
    if name is not None:
        check_name(name)
    base = base_at(model_path(model))
    adapter = fitted(adapter_of_files(files_at(source), base, title_of(source)), base, rank)
    adapter = replace(adapter, name=name or name_of(adapter.name))
    kept = AdapterFolder(home).keep(adapter, base, replacing)
    what = f"{kept.name} (rank {kept.rank}, {kept.linears} linears, {size_words(kept.size)})"
    if kept.lost:
        say(f"The smaller rank costs {kept.lost:.1%} of what it does (the relative error of its matrices).")
    say(f"Kept {what} for {kept.base}: `sonata chat --adapter {kept.name}` uses it.")


@adapters_app.command("export")
def export_adapter(
    name: Annotated[str, typer.Argument(help="A name of `sonata adapters list`.")],
    out: Annotated[Path, typer.Argument(help="A new folder for PEFT, or one file that ends in .safetensors.")],
    model: ModelOption = None,
    base_model: Annotated[
        str, typer.Option(help="For PEFT: the name of the same model on the hub, OWNER/REPOSITORY.")
    ] = "",
    replacing: ReplaceOption = False,
    home: HomeOption = None,
) -> None:
    """Write an adapter for use elsewhere: a folder that PEFT loads, or one file that `adapters import` reads."""
    folder = AdapterFolder(home)
    kept = folder.find(name)
    if out.suffix == ".safetensors":
        write_whole(out, kept.path.read_bytes(), replacing)
        return say(f"{out}: {size_words(kept.size)}")
    if out.exists() and not replacing:
        raise ValueError(f"{out} exists already: choose another name, or use --replace.")
    base = base_at(_model_of(kept) if model is None else model_path(model))
    files = export_peft(folder.read(kept.name, base), base.config, base.graph, base_model)
    out.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        write_whole(out / file, data, replacing)
    say(f"{out}: {', '.join(files)}")


@adapters_app.command()
def rm(
    names: Annotated[list[str], typer.Argument(help="Names of `sonata adapters list`.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: HomeOption = None,
) -> None:
    """Delete adapters, after asking. Sonata cannot restore them."""
    folder = AdapterFolder(home)
    found = [folder.find(name) for name in names]
    if not agreed(yes, f"Delete {', '.join(one_line(one.name) for one in found)} for good?"):
        return
    for one in found:
        folder.remove(one.name)
        say(f"Deleted {one.name}: {size_words(one.size)}.")


def base_at(path: Path) -> BaseModel:
    """The model in a file, by its header and its sha256. Raises GGUFError, OSError."""

    async def describe() -> BaseModel:
        _, config, graph = await read_description(open_source(path), None, lambda header, config, graph: None)
        return BaseModel(config, graph, sha256_of_model(path), config.name)

    return asyncio.run(describe())


def base_of(path: Path | None, model: Model) -> BaseModel:
    """The same for a loaded model; `path` is the value of `--model`."""
    return BaseModel(model.config, model.graph, sha256_of_model(model_path(path)), model.config.name)


def adapter_at(given: str | None, path: Path | None, model: Model, home: Path | None = None) -> LoraAdapter | None:
    """The adapter that `--adapter` names; path and home: the values of `--model` and `--home`. Raises AdapterError,
    OSError."""
    return None if given is None else open_adapter(given, base_of(path, model), home)


async def add_adapter(given: str | None, path: Path | None, model: Model) -> int:
    """Add the adapter that `--adapter` names to the model; returns its number, 0 without one. Raises AdapterError,
    OSError."""
    adapter = adapter_at(given, path, model)
    return await model.engine.add_adapter(adapter) if adapter else 0


async def add_merged(
    given: Sequence[str], method: str | None, weights: str | None, path: Path | None, model: Model
) -> int:
    """The same for several, which `--merge` combines into one. Raises AdapterError, ValueError, OSError."""
    if len(given) > 1 and method is None:
        raise ValueError(f"Combine several adapters with --merge METHOD; the methods are {', '.join(METHODS)}.")
    if len(given) < 2 and (method or weights):
        raise ValueError("--merge and --weights combine several adapters: give --adapter more than once.")
    if method is None:
        return await add_adapter(next(iter(given), None), path, model)
    base = base_of(path, model)
    merged = merge(method, [open_adapter(one, base) for one in given], _numbers(weights) if weights else None)
    notes.print(
        f"Merged by {method}: reducing it to rank {merged.adapter.rank} costs {merged.error:.1%}.", soft_wrap=True
    )
    return await model.engine.add_adapter(merged.adapter)


def _numbers(text: str) -> list[float]:
    try:
        return [float(one) for one in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{shown(text)} is not a list of weights: write one number for each adapter, such as 0.7,0.3."
        ) from None


def _model_of(kept: KeptAdapter) -> Path:
    """The file of its model. Raises AdapterError if that is not kept."""
    if found := ModelCache().find(kept.base_sha256):
        return found.path
    raise AdapterError(
        "adapter.base-not-kept",
        "{name} was made for {base}, which is not kept here: give --model FILE, or write one file that ends in "
        ".safetensors.",
        name=kept.name,
        base=kept.base or "a model",
    )


def _facts(kept: KeptAdapter) -> dict[str, Any]:
    return {
        "name": kept.name, "model": kept.base, "model_sha256": kept.base_sha256, "rank": kept.rank,
        "linears": kept.linears, "size": kept.size, "lost": kept.lost, "problem": kept.problem, "file": str(kept.path),
    }  # fmt: skip
