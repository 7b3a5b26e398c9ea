"""The page's icons: one sprite of the Lucide icons that icons.txt names."""

from __future__ import annotations

import re
from pathlib import Path

from app.building.common import BuildError

NAMES = Path(__file__).with_name("icons.txt")
_DRAWING = re.compile(r"<svg[^>]*>(.*)</svg>", re.DOTALL)


def icon_sprite(node_modules: Path) -> bytes:
    """An SVG file with a symbol for each name, 24 by 24; web/shell/style.css (.icon) sets how lines are drawn."""
    symbols = []
    for name in NAMES.read_text(encoding="utf-8").split():
        path = node_modules / "lucide-static" / "icons" / f"{name}.svg"
        if not path.is_file():
            raise BuildError(
                f"There is no icon {name!r} in Lucide: correct {NAMES.name}, or run `python build.py clean`."
            )
        found = _DRAWING.search(path.read_text(encoding="utf-8"))
        assert found is not None
        drawing = re.sub(r"\s+", " ", found.group(1)).strip()
        symbols.append(f'<symbol id="{name}" viewBox="0 0 24 24">{drawing}</symbol>')
    return ('<svg xmlns="http://www.w3.org/2000/svg">\n' + "\n".join(symbols) + "\n</svg>\n").encode()
