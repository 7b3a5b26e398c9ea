"""The download of a first visit before the model and the sentence embedder, as servers send it.

    python -m tests.bench shell_sizes [--dist DIST] [--json FILE]

Bytes of each file with gzip (level 6, what most static servers do; brotli makes less), or as it is if that is smaller.
Files that no first visit waits for are left out: the modules that were joined (app/building/site/bundle.py) and their
source maps, files that are kept only once they are asked for, and the snapshot of Python, which pages that are not on
this machine use from the second visit on (docs/develop/start.md).
"""

from __future__ import annotations

import gzip
from pathlib import Path

from rich.table import Table

from app.building.python.snapshot import SNAPSHOT
from app.building.site.dist import DIST, EMBEDDER, LATER, NEVER_KEPT, NOT_PRECACHED, unused
from tests.bench.reporting import options_of, print_tables, write_figures

LISTED = 25


def first_load(dist: Path) -> dict[str, int]:
    """Path -> bytes as they are sent, the largest first."""
    left_out = (*LATER, *EMBEDDER, SNAPSHOT, *NEVER_KEPT)
    sizes = {}
    found = {path.relative_to(dist).as_posix(): path for path in dist.rglob("*") if path.is_file()}
    for name in found.keys() - (unused(found) - NOT_PRECACHED):
        if not name.startswith(left_out):
            content = found[name].read_bytes()
            sizes[name] = min(len(content), len(gzip.compress(content, 6)))
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--dist", type=Path, default=DIST)
    options = parser.parse_args()
    sizes = first_load(options.dist)
    write_figures(options, {"bytes": sum(sizes.values()), "files": sizes})
    table = Table(
        title=f"First load without models and embedder: {sum(sizes.values()) / 1e6:.2f} MB in {len(sizes)} files"
    )
    table.add_column("file")
    table.add_column("KB, gzip", justify="right")
    for name, size in list(sizes.items())[:LISTED]:
        table.add_row(name, f"{size / 1e3:,.0f}")
    table.add_row("the others", f"{sum(list(sizes.values())[LISTED:]) / 1e3:,.0f}")
    print_tables(table)
    return 0
