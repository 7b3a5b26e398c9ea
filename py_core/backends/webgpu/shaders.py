"""Composes a shader from its file in wgsl_shaders/, its constants, and snippets included by name.

`#import NAME` in a file stands for the file NAME.wgsl below wgsl_shaders/snippets, or for the snippet that `snippets`
has for that name. This is how one matvec serves every block format, and reductions with or without subgroups. Folders
only sort the files: no two have the same name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal

Constant = bool | int | float

_INTEGER_KERNELS = ("matmul_integer",)
_INTEGER_COLUMNS = {"x_limbs", "x_limbs_rows", "x_limbs_read"}

Part = tuple[Mapping[str, Constant], Mapping[str, str]]
"""Constants and snippets of a kernel."""

_DIRECTIVES = ("enable ", "diagnostic(", "requires ")
_MAIN = re.compile(r"@compute @workgroup_size\(WORKGROUP\)\nfn main\(")
_BUILTIN = re.compile(r"@builtin\(\w+\) ")
_DEFINED = re.compile(r"^(?:const|alias|struct|fn|var<(?:private|workgroup)>) ?(\w+)", re.MULTILINE)
_IMPORT = re.compile(r"^#import (\w+)$", re.MULTILINE)
_VECTOR = re.compile(r"\bvectors\[([^\]]*)\]")
_X = re.compile(r"\bx\[([^\]]*)\]")
_ARRAY = re.compile(r"^var<workgroup> (\w+): array<(\w+), (.*)>;.*$", re.MULTILINE)
_BINDING = re.compile(r"@binding\((\d+)\) var<storage, (read|read_write)>")

_PHASE_BINDINGS = {
    "state": "State_{state}", "schedule": "array<Step>", "quants": "array<vec4u>", "scales": "array<u32>",
    "x": "array<vec4f>", "y": "array<f32>", "angles": "array<vec2f>", "page_table": "array<u32>",
    "q": "array<vec4f>", "q_out": "array<f32>", "kv": "array<f32>", "pages": "array<vec4f>",
    "handed": "array<atomic<u32>>",
}  # fmt: skip
"""The types of what a persistent kernel binds; its vectors are bound as quants."""

_X_IN_Y = """
fn x_in_y(i: u32) -> vec4f { return vec4f(y[4u * i], y[4u * i + 1u], y[4u * i + 2u], y[4u * i + 3u]); }"""

_ARGUMENTS = {"attention_split": "vec3u(0u, at, 0u), index"}
"""The arguments of `main` of the workgroup `at`, if they are not those of a matvec."""


def compose(name: str, constants: Mapping[str, Constant], snippets: Mapping[str, str]) -> str:
    """Return the WGSL of a kernel. Raises KeyError for an unknown kernel or snippet."""
    header = []
    if "reduce_subgroup" in snippets.values():
        # A row's number comes from the subgroup's place in the workgroup. The analysis cannot see that this is uniform.
        header += ["enable subgroups;", "diagnostic(off, subgroup_uniformity);"]
    if name in _INTEGER_KERNELS or not _INTEGER_COLUMNS.isdisjoint(snippets.values()):
        header.append("requires packed_4x8_integer_dot_product;")
    header += [f"const {key} = {_literal(value)};" for key, value in constants.items()]
    seen: set[str] = set()

    def include(match: re.Match[str]) -> str:
        snippet = snippets.get(match[1], match[1])
        if snippet in seen:
            return ""
        seen.add(snippet)
        return _IMPORT.sub(include, _source(snippet))

    return "\n".join(header) + "\n" + _IMPORT.sub(include, _source(name))


def compose_pair(name: str, parts: Sequence[Part], groups: int) -> str:
    """Return the WGSL of two variants of a kernel in one: the first `groups` workgroups along x run the first, the
    others the second. Both read the same bindings; QUANTS_AT and SCALES_AT of their constants say at which place each
    begins.

    `name` is a kernel whose `main` takes the workgroup's id, the number of workgroups and the invocation's index.
    """
    first, second = (_BUILTIN.sub("", _MAIN.sub("fn own_main(", compose(name, *part))) for part in parts)
    for array in ("quants", "scales"):
        first, second = (text.replace(f"{array}[", f"{array}[{array.upper()}_AT + ") for text in (first, second))
    # The names of the second get a suffix, and the bindings of the first serve both.
    lines = [line for line in second.splitlines() if not line.startswith(("@group", *_DIRECTIVES))]
    second = "\n".join(lines)
    second = _renamed(second, _DEFINED.findall(second), "of_second")
    return f"""{first}
{second}
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {{
  if (group.x < {groups}u) {{
    own_main(group, groups, index);
  }} else {{
    own_main_of_second(vec3u(group.x - {groups}u, group.yz), groups, index);
  }}
}}
"""


PhaseInput = Literal["handed", "in y", "bound"]


@dataclass(frozen=True)
class Phase:
    """A kernel of one row as a part of a persistent kernel: its shader, constants and snippets, and its workgroups.

    x is "handed" on by earlier phases, "in y", or "bound".
    """

    shader: str
    constants: Mapping[str, Constant]
    snippets: Mapping[str, str]
    groups: int
    x: PhaseInput = "bound"


def compose_persistent(
    kinds: Sequence[Phase], steps: int, layers: int, bindings: Sequence[tuple[str, str]], workgroup: int,
    **constants: Constant,
) -> str:  # fmt: skip
    """Return the WGSL of a kernel that runs the `steps` phases of its schedule one after the other, each in all
    workgroups that it needs. Each is of one of the `kinds`.

    `bindings` are the names and access ("r" or "w") of those that its phases use, in order. The constants are those of
    persistent.wgsl; `pages` holds the pages of as many `layers`.
    """
    directives: dict[str, None] = {}
    shared: dict[str, tuple[str, list[str]]] = {}  # arrays in workgroup memory: their types and sizes
    texts, cases = [], []
    for number, phase in enumerate(kinds):
        snippets = {"y_binding": "y_handed", "out_binding": "out_handed", **phase.snippets}
        if phase.x == "handed":
            snippets["x_binding"] = "x_handed"
        text = compose(phase.shader, phase.constants, snippets)
        text = _BUILTIN.sub("", _MAIN.sub("fn own_main(", text))
        lines = text.splitlines()
        directives |= dict.fromkeys(line for line in lines if line.startswith(_DIRECTIVES))
        text = "\n".join(line for line in lines if not line.startswith(("@group", *_DIRECTIVES)))
        for array in ("quants", "scales"):
            text = text.replace(f"{array}[", f"{array}[{array}_at + ")
        if phase.shader == "attention_split":
            text = text.replace("kv[", "pages[pages_at + ")
        text = _VECTOR.sub(r"bitcast<vec4f>(quants[vectors_at + \1])", text)
        if phase.x == "handed":
            text = _X.sub(r"arrived[\1 - first * 8u]", text) + "\n" + _arrival(phase, workgroup)
        elif phase.x == "in y":
            text = _X.sub(r"x_in_y(\1)", text) + _X_IN_Y
        # Phases run one after the other, so the next one may use the same workgroup memory.
        arrays = _ARRAY.findall(text)
        text = _renamed(_ARRAY.sub("", text), [name for name, *_ in arrays], _columns_of(phase))
        names = _DEFINED.findall(text)
        texts.append(_renamed(text, names, str(number)))
        for name, kind, size in arrays:
            key = f"{name}_{_columns_of(phase)}"
            shared.setdefault(key, (_renamed(kind, names, str(number)), []))[1].append(
                _renamed(size, names, str(number))
            )
        cases.append(f"""      case {number}u: {{
        for (var at = group.x; at < {phase.groups}u; at += groups.x) {{
          own_main_{number}({_ARGUMENTS.get(phase.shader, "vec3u(at, 0u, 0u), groups, index")});
          workgroupBarrier();  // invocations that wait read so often that they would disturb those that still compute
        }}
      }}""")
    header = [*directives, *(f"const {key} = {_literal(value)};" for key, value in constants.items())]
    modes = {"r": "read", "w": "read_write"}
    # The structs of all phases are alike; attention passes a row to a function.
    shaders = [phase.shader for phase in kinds]
    state = shaders.index("attention_split") if "attention_split" in shaders else 0
    header += [
        f"@group(0) @binding({at}) var<storage, {modes[access]}> {name}: {_PHASE_BINDINGS[name].format(state=state)};"
        for at, (name, access) in enumerate(bindings)
    ]
    for name, (kind, sizes) in shared.items():
        most = functools.reduce(lambda a, b: f"max({a}, {b})", dict.fromkeys(sizes))
        header.append(f"var<workgroup> {name}: array<{kind}, {most}>;")
    pages = f"    pages_at = step.layer * (arrayLength(&pages) / {layers}u);\n" if layers else ""
    return (
        "\n".join([*header, _source("persistent"), *texts])
        + f"""
@compute @workgroup_size({workgroup})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {{
  begin(group.x);
  workgroupBarrier();
  for (var turn = 0u; turn < {steps}u; turn++) {{
    let step = schedule[turn];
    quants_at = step.quants_at;
    scales_at = step.scales_at;
    vectors_at = step.vectors_at;
{pages}    read_at = step.read_at;
    added_at = step.added_at;
    store_at = step.store_at;
    switch (step.kind) {{
{chr(10).join(cases)}
      default: {{}}
    }}
  }}
  end(group.x, index);
}}
"""
    )


def _renamed(text: str, names: Sequence[str], suffix: str) -> str:
    """Return a text in which each of these names has a suffix."""
    longest_first = sorted(set(names), key=len, reverse=True)
    return re.sub(rf"\b({'|'.join(longest_first)})\b", rf"\1_{suffix}", text)


def _columns_of(phase: Phase) -> str:
    """Return the snippet that decides the types of arrays in workgroup memory."""
    return phase.snippets.get("columns", phase.shader)


def _arrival(phase: Phase, workgroup: int) -> str:
    """Return a function that waits for a chunk of x. The reads of an invocation are under way at the same time: as a
    loop over an array they would be made one after the other."""
    chunk = 32 * int(phase.constants["CHUNK"])
    places = [f"{n * workgroup}u + index" for n in range(-(-chunk // workgroup))]
    here = [f"if ({place} < min(K - first * 32u, {chunk}u))" for place in places]
    wrong = " | ".join(f"(word{n} ^ tag)" for n in range(len(places)))
    start = "PLACES + read_at + first * 32u"
    read = "\n".join(
        f"    {here[n]} {{ word{n} = atomicLoad(&handed[{start} + {place}]); }}" for n, place in enumerate(places)
    )
    store = "\n".join(
        f"  {here[n]} {{ arrived[({place}) / 4u][index % 4u] = value_of(word{n}); }}" for n, place in enumerate(places)
    )
    return f"""var<workgroup> arrived: array<vec4f, {chunk // 4}>;
fn arrive(first: u32, index: u32) {{
  {" ".join(f"var word{n} = tag;" for n in range(len(places)))}
  loop {{
{read}
    if ((({wrong}) & 3u) == 0u || patience == 0u) {{ break; }}
    patience -= 1u;
  }}
{store}
  workgroupBarrier();
}}"""


def binding_access(wgsl: str) -> str:
    """Return 'r' or 'w' for each storage binding of a shader, in the order of their numbers."""
    found = {int(number): "w" if mode == "read_write" else "r" for number, mode in _BINDING.findall(wgsl)}
    if sorted(found) != list(range(len(found))):
        raise ValueError(f"bindings are not numbered 0, 1, 2 ...: {sorted(found)}")
    return "".join(found[number] for number in sorted(found))


@functools.cache
def _source(name: str) -> str:
    return _files()[name].read_text(encoding="utf-8")


@functools.cache
def _files() -> dict[str, Traversable]:
    """The files of kernels and snippets by their names."""
    found, folders = dict[str, Traversable](), [files("wgsl_shaders")]
    for folder in folders:
        entries = list(folder.iterdir())
        folders += [entry for entry in entries if entry.is_dir()]
        found |= {entry.name.removesuffix(".wgsl"): entry for entry in entries if entry.name.endswith(".wgsl")}
    return found


def _literal(value: Constant) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}u" if isinstance(value, int) else f"f32({value!r})"
