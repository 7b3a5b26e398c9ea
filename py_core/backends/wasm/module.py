"""A look into a .wasm file: its import section (WebAssembly core specification, 5.5.5)."""

from __future__ import annotations


def unshared(module: bytes) -> bytes:
    """The module with its one imported memory declared as unshared. Raises ValueError when it imports something else.

    One build serves both: atomic operations are valid on a memory of one thread, only the declaration differs.
    """
    if module[:8] != b"\0asm\1\0\0\0":
        raise ValueError("this is no WebAssembly module")
    at = 8
    while at < len(module):
        section, at = module[at], at + 1
        size, at = _leb(module, at)
        if section == 2:
            count, flags_at = _leb(module, at)
            for _ in range(2):  # the names of the module and of the import
                length, flags_at = _leb(module, flags_at)
                flags_at += length
            if count != 1 or module[flags_at] != 2:
                raise ValueError("the kernels import more than a memory")
            flags = flags_at + 1
            return module[:flags] + bytes([module[flags] & ~2]) + module[flags + 1 :]
        at += size
    raise ValueError("the kernels import no memory")


def _leb(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
