"""Zips as dicts of their members."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

Members = dict[str, bytes]
"""Path in the zip -> content."""


def members_of(archive: Path) -> Members:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist() if not name.endswith("/")}


def zip_bytes(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED, comment: str = "") -> bytes:
    """A zip that depends only on its members: sorted, no dates, no permissions of this machine."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method, compresslevel=6) as archive:
        archive.comment = comment.encode()
        for name in sorted(members):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3  # the same on Windows
            info.compress_type = method
            archive.writestr(info, members[name])
    return out.getvalue()
