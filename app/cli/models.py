"""`sonata models list | pull | import | rm | info`: the models on this machine, and those of the hub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from app.bench.model_report import model_report
from app.cli.terminal import console, say
from app.models.cache import ModelCache, StoredModel, model_path
from app.models.catalog import Entry, GoneError, HubError, HubFile, read_catalog
from app.models.model_pull import pull as pull_model
from app.models.model_pull import wanted_model
from py_core.formats.source import open_source

models_app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="Download, list, describe and delete models."
)
notes = console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
NameOption = Annotated[str | None, typer.Option("--name", help="The name to keep it under.")]


@models_app.command("list")
def list_models(
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the hub for sizes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the models kept here, and those that can be downloaded, with their sizes on the hub."""
    cache, catalog = ModelCache(), read_catalog()
    kept, parts = cache.models(), cache.parts()
    stored = {model.name for model in kept}
    rest = [entry for entry in catalog.entries if entry.name not in stored]
    said: dict[str, HubFile | HubError] = {} if offline else catalog.hub_files(rest)
    used, free = cache.usage()
    if as_json:
        facts = [_facts(model) for model in kept]
        offered = [_offered_facts(entry) | _said(said.get(entry.name)) for entry in rest]
        broken_off = [{"name": part.name, "have": part.have, "size": part.size} for part in parts]
        report = {"models": facts, "parts": broken_off, "offered": offered, "used": used, "free": free}
        print(json.dumps(report))
        return
    good_at = {entry.name: entry.good_at for entry in catalog.entries}
    have = {part.name: f"{size_words(part.have)} here" for part in parts}
    rows = [(model.name, size_words(model.size), "kept", good_at.get(model.name, model.title)) for model in kept]
    for entry in rest:
        size, state = _state(said.get(entry.name))
        rows.append((entry.name, size, have.pop(entry.name, state), entry.good_at))
    for part in (part for part in parts if part.name in have):
        rows.append((part.name, "" if part.size is None else size_words(part.size), have[part.name], ""))
    table = Table("name", "size", "state", box=None, pad_edge=False, expand=True)
    table.add_column("good at", ratio=1)  # the rest of the line
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)
    say(f"{size_words(used)} used in {cache.folder}, {size_words(free)} free.")
    say("`sonata models info NAME` tells more, such as the licence.")
    if unasked := _first_problem(said.values()):
        notes.print(escape(unasked), soft_wrap=True)


@models_app.command()
def pull(
    model: Annotated[str, typer.Argument(help="A name of `sonata models list`, OWNER/REPOSITORY/FILE.gguf, or a URL.")],
    name: NameOption = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Also allow models from this host.")] = None,
) -> None:
    """Download a model, or the missing part of it. Ctrl-C stops; the same command continues from there."""
    cache, catalog = ModelCache(), read_catalog().allowing(allow_host or [])
    wanted = wanted_model(catalog, cache, model, name)
    before = cache.find(wanted.name)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=notes, disable=not notes.is_terminal) as bar:
        task = bar.add_task(escape(wanted.name), total=wanted.size)

        def show(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        try:
            kept = pull_model(catalog, cache, wanted, show)
        except KeyboardInterrupt:
            notes.print(
                f"Stopped. {size_words(cache.bytes_of(wanted.name))} are kept: the same command continues from there."
            )
            raise
    say(_kept_words(kept, was_there=before is not None and before.sha256 == kept.sha256))


@models_app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(help="A GGUF file on this machine.")],
    name: NameOption = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the file even if a link would do.")] = False,
) -> None:
    """Keep a model file that is already here."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist.")
    cache = ModelCache()
    there = {model.name for model in cache.models()}
    kept = cache.import_file(file, name, copy=copy)
    say(_kept_words(kept, was_there=kept.name in there))


@models_app.command()
def rm(names: Annotated[list[str], typer.Argument(help="Names of models, or of stopped downloads.")]) -> None:
    """Delete models."""
    cache = ModelCache()
    for name in names:
        removed, freed = cache.remove(name)
        say(f"Deleted {removed}: {size_words(freed)}.")


@models_app.command()
def info(
    model: Annotated[str, typer.Argument(help="A name of `sonata models list`, or a GGUF file.")],
    context: Annotated[int | None, typer.Option(min=1, help="The length of a conversation in tokens.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also estimate how fast it will be, by running another model.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a model is, what memory it needs on each backend, whether it fits, and how fast it will be. For a model
    that is not here yet: its source, its licence, and what it is good at."""
    stored, entry = ModelCache().find(model), read_catalog().find(model)
    if entry is not None and stored is None and not Path(model).exists():
        return _tell_of_offered(entry, as_json)
    path = model_path(Path(model))
    report = asyncio.run(model_report(path, context, measure))
    facts: dict[str, Any] = _facts(stored) if stored else {"file": str(path), "size": open_source(path).size}
    if as_json:
        print(json.dumps(facts | report))
        return
    table = Table(show_header=False, title=escape(str(report["title"])))
    for key, value in facts.items():
        table.add_row(key, escape(size_words(float(value)) if key == "size" else str(value)))
    if entry is not None:
        table.add_row("good at", escape(entry.good_at))
    table.add_row("memory", size_words(report["memory"]) if report["memory"] else "unknown")
    for backend, need in report["backends"].items():
        words = need["problem"] or "fits: {total} for {context} tokens ({weights} weights, {pages} pages)".format(
            context=need["context"], **{key: size_words(need[key]) for key in ("total", "weights", "pages")}
        )
        if need["tok_s"]:
            words += f"; about {need['tok_s']:.0f} tokens a second"
        table.add_row(backend, escape(words))
    console().print(table)


def size_words(nbytes: float) -> str:
    """1.12 GB, 98.4 MB."""
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.1f} MB"


def _kept_words(model: StoredModel, was_there: bool) -> str:
    words = "is kept already" if was_there else "is now kept"
    what = f"{model.name} ({model.title}, {size_words(model.size)})"
    return f"{what} {words}: `sonata chat --model {model.name}` uses it."


def _facts(model: StoredModel) -> dict[str, Any]:
    return {"name": model.name, "title": model.title, "source": model.source, "size": model.size} | {
        "sha256": model.sha256, "licence": model.licence, "file": str(model.path),
    }  # fmt: skip


def _offered_facts(entry: Entry) -> dict[str, Any]:
    return {"name": entry.name, "title": entry.title, "licence": entry.licence, "good_at": entry.good_at} | {
        "repository": entry.repository, "file": entry.file,
    }  # fmt: skip


def _tell_of_offered(entry: Entry, as_json: bool) -> None:
    """Shows a model of the list that is not here yet."""
    facts = _offered_facts(entry)
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(show_header=False, title=escape(entry.title))
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), escape(value))
    console().print(table)
    say(f"It is not here yet: `sonata models pull {entry.name}` downloads it.")


def _said(said: HubFile | HubError | None) -> dict[str, Any]:
    """The hub's facts about a model, for JSON."""
    if isinstance(said, HubFile):
        return {"size": said.size, "sha256": said.sha256, "gone": False}
    return {"size": None, "sha256": None, "gone": isinstance(said, GoneError)}


def _state(said: HubFile | HubError | None) -> tuple[str, str]:
    """A model's size, or its state if it is not available, in words."""
    if isinstance(said, HubFile):
        return size_words(said.size), ""
    return "?", "gone" if isinstance(said, GoneError) else ""


def _first_problem(said: Iterable[HubFile | HubError]) -> str | None:
    """Says once why sizes are missing."""
    return next((str(one) for one in said if isinstance(one, HubError) and not isinstance(one, GoneError)), None)
