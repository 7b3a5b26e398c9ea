"""The contents of a model's folder: its settings and its weights, which are not read yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py_core.display import shown
from py_core.formats.safetensors import SafetensorsError, StoredArray, stored_arrays
from py_core.formats.source import FileSource

_GEMMA_3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
}
"""The defaults of `transformers` for keys that config.json lacks."""


class ConvertError(ValueError):
    """The folder cannot be converted; the message says why and what to do."""


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Code inside reads the file `name`, whose values may be of any type and size. Raises ConvertError if they are
    invalid."""
    try:
        yield
    except ConvertError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError) as error:
        why = shown(str(error))
        raise ConvertError(f"{name} holds something that no model has ({why}): download it again.") from error


def read_json(path: Path) -> dict[str, Any]:
    """Raises ConvertError if the file is missing or not a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConvertError(
            f"{path.parent} has no {path.name}: give a model's folder from Hugging Face, with config.json, "
            "tokenizer.json and its safetensors files."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"{path} is not JSON ({error}): download it again.") from error
    if not isinstance(content, dict):
        raise ConvertError(f"{path} is not a JSON object: download it again.")
    return content


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, with the text model's part at the top level, and with the defaults that Gemma 3's files omit.

    Raises ConvertError if there is none, and if another program has quantized the weights.
    """
    if not folder.is_dir():
        raise ConvertError(f"There is no folder {folder}.")
    config = read_json(folder / "config.json")
    with understood(f"{folder / 'config.json'}"):
        config |= config.get("text_config") or {}
        if str(config.get("model_type", "")).startswith("gemma3"):
            config = {**_GEMMA_3, **config}
        method = (config.get("quantization_config") or {}).get("quant_method")
    if method:
        raise ConvertError(
            f"The weights in {folder} are quantized already ({shown(method)}): convert the model they were made of."
        )
    return config


def read_weights(folder: Path) -> dict[str, StoredArray]:
    """All tensors of the folder's safetensors files, by name.

    Raises ConvertError if there are none or a file is missing, and SafetensorsError if a file is damaged.
    """
    weights: dict[str, StoredArray] = {}
    for path in _files(folder):
        try:
            source = FileSource(path)
            found, _ = stored_arrays(source.view(0, source.size))
        except SafetensorsError as error:
            raise SafetensorsError("safetensors.in-file", "{path}: {why}", path=path, why=error) from error
        if twice := next((name for name in found if name in weights), None):
            raise ConvertError(f"{path} has the tensor {shown(twice)} of another file: download the folder again.")
        weights |= found
    return weights


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise ConvertError(f"{index} does not say which file has which tensor: download it again.")
        names = sorted(set(shards.values()))
        for name in names:
            if not (folder / Path(name).name).is_file():
                raise ConvertError(f"{name} is missing, one of the model's {len(names)} files: put it into {folder}.")
        return [folder / Path(name).name for name in names]
    files = sorted(folder.glob("model*.safetensors"))
    if files:
        return files
    other = next((path.name for path in sorted(folder.iterdir()) if path.suffix in (".bin", ".pth", ".pt")), None)
    if other:
        raise ConvertError(
            f"{folder} has its weights in {other} only: only safetensors can be converted; most models come with them."
        )
    raise ConvertError(f"{folder} has no model.safetensors.")
