"""The adapters that are kept natively: in the folder "adapters" beside the memory, each as NAME.safetensors.

They lie beside the memory, not with the models, which can be downloaded again: an adapter may be the only copy, and its
training data may be private, so that only its owner may read it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from app.models.adapter_import import BaseModel, adapter_of_files, check_name, lost_of
from app.paths import memory_path
from py_core.adapters.files import read_adapter, read_details, write_adapter
from py_core.adapters.lora import BASE_TITLE, AdapterError, LoraAdapter, check_base
from py_core.adapters.peft import CONFIG_FILE, WEIGHTS_FILE
from py_core.display import one_line
from py_core.limits import MAX_ADAPTER_BYTES

_END = ".safetensors"
_PART = ".part"
_FORGOTTEN = 3600.0
"""Seconds after which an incomplete file counts as abandoned."""


@dataclass(frozen=True)
class KeptAdapter:
    """A kept adapter. base: its model's title. lost: the share that a smaller rank has cost, 0 for nothing.

    problem: why it cannot be used, "" if it can; if it cannot, only name, path and size are known.
    """

    name: str
    path: Path
    size: int
    rank: int = 0
    linears: int = 0
    base: str = ""
    base_sha256: str = ""
    lost: float = 0.0
    problem: str = ""


class AdapterFolder:
    """The adapters in one folder."""

    def __init__(self, home: Path | None = None) -> None:
        """home: the folder of the memory; None: the usual one."""
        self.folder = memory_path(home).parent / "adapters"

    def adapters(self) -> list[KeptAdapter]:
        """In the order of their names, including damaged ones."""
        return [_described(path) for path in sorted(self.folder.glob(f"*{_END}")) if path.is_file()]

    def find(self, name: str) -> KeptAdapter:
        """Raises AdapterError, with what to do, if none of this name is kept."""
        for kept in self.adapters():
            if kept.name == name.lower():
                return kept
        names = ", ".join(kept.name for kept in self.adapters()) or "none"
        raise AdapterError(
            "adapter.folder-none",
            "No file or kept adapter is called {name}. Kept adapters: {names}. `sonata adapters import FILE` keeps "
            "one.",
            name=name,
            names=names,
        )

    def read(self, name: str, base: BaseModel) -> LoraAdapter:
        """Raises AdapterError if it is missing, damaged, or for another model."""
        kept = self.find(name)
        with _named(kept.name):
            details = read_details(data := kept.path.read_bytes())
            # Before the matrices are read: whatever does not fit, the reason is the model.
            check_base(LoraAdapter(kept.name, {}, details.base_sha256, details.metadata), base.sha256)
            return replace(read_adapter(data, base.config, base.graph), name=kept.name)

    def keep(self, adapter: LoraAdapter, base: BaseModel, instead: bool = False) -> KeptAdapter:
        """Write an adapter under its name: all of it or nothing. `instead`: replaces one of this name, if there is one.

        Raises AdapterError if there is one of this name, if the name is invalid, and if there is no room.
        """
        path = self.folder / f"{check_name(adapter.name)}{_END}"
        data = write_adapter(adapter, base.config, base.graph)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clean()
        try:
            write_whole(path, data, instead)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise AdapterError(
                "adapter.folder-full",
                "There is no room for the adapter {name} ({size} MB) in {folder}. Delete "
                "something there, then import it again.",
                name=adapter.name,
                size=f"{len(data) / 1000000.0:.1f}",
                folder=self.folder,
            ) from error
        return _described(path)

    def remove(self, name: str) -> KeptAdapter:
        """Delete an adapter. Raises AdapterError if there is none of this name."""
        kept = self.find(name)
        kept.path.unlink()
        return kept

    def _clean(self) -> None:
        """Delete the files of writers that were ended in the middle."""
        for path in self.folder.glob(f"*{_PART}"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _FORGOTTEN:
                    path.unlink()


def files_at(path: Path) -> dict[str, bytes]:
    """The files of an adapter by their names: the two that PEFT puts into a folder, or a file with PEFT's settings
    beside it.

    Raises AdapterError, OSError.
    """
    if path.is_dir():
        # `read_adapter` explains the errors in other trainers' files.
        names = (WEIGHTS_FILE, "adapter_model.bin", "adapters.safetensors")
        weights = next((path / name for name in names if (path / name).is_file()), path / WEIGHTS_FILE)
        found = [weights, path / CONFIG_FILE]
        if missing := [one.name for one in found if not one.is_file()]:
            raise AdapterError(
                "adapter.folder-lacks",
                "The folder {path} has no {missing}: choose the folder of a PEFT adapter.",
                path=path,
                missing=missing[0],
            )
    else:
        beside = path.with_name(CONFIG_FILE)
        found = [path, *([beside] if path.name == WEIGHTS_FILE and beside.is_file() else [])]
    for one in found:
        if (size := one.stat().st_size) > MAX_ADAPTER_BYTES:
            raise AdapterError(
                "adapter.folder-too-large",
                "{name} has {size} GB, more than any adapter. Choose another file.",
                name=one,
                size=f"{size / 1000000000.0:.1f}",
            )
    return {one.name: one.read_bytes() for one in found}


def title_of(path: Path) -> str:
    """The name of an adapter whose files do not state one: that of its folder, if the file has PEFT's usual name."""
    path = path.absolute()
    return path.parent.name if path.name == WEIGHTS_FILE else path.name if path.is_dir() else path.stem


def open_adapter(given: str, base: BaseModel, home: Path | None = None) -> LoraAdapter:
    """The adapter that `--adapter` names: a file or folder, or the name of a kept one. Raises AdapterError, OSError."""
    path = Path(given)
    if not path.exists():
        return AdapterFolder(home).read(given, base)
    with _named(given):
        return adapter_of_files(files_at(path), base, title_of(path))


def write_whole(path: Path, data: bytes, instead: bool) -> None:
    """Writes a file that only its owner may read: all of it or nothing. `instead`: replaces one of this name, if there
    is one.

    Raises AdapterError if there is one already, OSError.
    """
    made, part = tempfile.mkstemp(_PART, path.stem, path.parent)
    try:
        with open(made, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if instead:
            os.replace(part, path)
        else:
            _name_anew(Path(part), path)
    finally:
        Path(part).unlink(missing_ok=True)


def _described(path: Path) -> KeptAdapter:
    kept = KeptAdapter(path.stem, path, path.stat().st_size)
    try:
        details = read_details(path.read_bytes())
    except AdapterError as error:
        return replace(kept, problem=str(error))
    title = details.metadata.get(BASE_TITLE, "")
    return replace(
        kept,
        rank=details.rank,
        linears=details.linears,
        base=title,
        base_sha256=details.base_sha256,
        lost=lost_of(details.metadata),
    )


def _name_anew(part: Path, path: Path) -> None:
    """Raises AdapterError if another process has kept one under this name meanwhile."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise _exists(path.name) from None
    except OSError:  # a disk without hard links
        if path.exists():
            raise _exists(path.name) from None
        os.replace(part, path)


def _exists(name: str) -> AdapterError:
    return AdapterError("adapter.taken", "{name} exists already: choose another name, or use --replace.", name=name)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Puts the file's name into the sentences about it."""
    try:
        yield
    except AdapterError as error:
        raise AdapterError("adapter.folder-file", "{name}: {why}", name=one_line(name), why=error) from error
