"""Puts a shader together from its file in wgsl_shaders/, its constants, and snippets included by name.

`#import NAME` in a file stands for wgsl_shaders/snippets/NAME.wgsl, or for the snippet that `snippets` gives for
that name: this is how one matvec serves every block format, and reductions with or without subgroups.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib.resources import files

Constant = bool | int | float

_INTEGER_KERNELS = ("matmul_integer",)

_IMPORT = re.compile(r"^#import (\w+)$", re.MULTILINE)
_BINDING = re.compile(r"@binding\((\d+)\) var<storage, (read|read_write)>")


def compose(name: str, constants: Mapping[str, Constant], snippets: Mapping[str, str]) -> str:
    """The WGSL of a kernel. Raises FileNotFoundError for an unknown kernel or snippet."""
    header = []
    if "reduce_subgroup" in snippets.values():
        # A row's number comes from the subgroup's place in the workgroup, which the analysis cannot see is uniform.
        header += ["enable subgroups;", "diagnostic(off, subgroup_uniformity);"]
    if name in _INTEGER_KERNELS or "x_limbs" in snippets.values():
        header.append("requires packed_4x8_integer_dot_product;")
    header += [f"const {key} = {_literal(value)};" for key, value in constants.items()]
    seen: set[str] = set()

    def include(match: re.Match[str]) -> str:
        snippet = snippets.get(match[1], match[1])
        if snippet in seen:
            return ""
        seen.add(snippet)
        return _IMPORT.sub(include, _source(f"snippets/{snippet}.wgsl"))

    return "\n".join(header) + "\n" + _IMPORT.sub(include, _source(f"{name}.wgsl"))


def binding_access(wgsl: str) -> str:
    """'r' or 'w' for each storage binding of a shader, in the order of their numbers."""
    found = {int(number): "w" if mode == "read_write" else "r" for number, mode in _BINDING.findall(wgsl)}
    if sorted(found) != list(range(len(found))):
        raise ValueError(f"bindings are not numbered 0, 1, 2 ...: {sorted(found)}")
    return "".join(found[number] for number in sorted(found))


@functools.cache
def _source(path: str) -> str:
    return files("wgsl_shaders").joinpath(path).read_text(encoding="utf-8")


def _literal(value: Constant) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}u" if isinstance(value, int) else f"f32({value!r})"
