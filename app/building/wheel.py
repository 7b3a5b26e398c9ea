"""The wheel: the packages, and the files that build.py makes. It is pure Python, for every machine.

setuptools loads this module by its path, so nothing of `app` can be imported before the repository is found.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools.command.build_py import build_py


class BuildWithMadeFiles(build_py):
    """Makes the missing files of the kernels, the embedder and the router's data, as build.py does, and packs them."""

    def run(self) -> None:
        if self.editable_mode:  # .venv, which build.py makes before it makes these files
            return super().run()
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from app.building.common import one_build_at_a_time
        from app.building.download import Downloader
        from app.building.python_env import ensure_venv, pypi_address
        from app.building.site.dist import made_files
        from app.models.build_outputs import (
            EMBEDDER_MODEL,
            EMBEDDER_TOKENIZER,
            MADE,
            MODEL_BUILDS,
            ROUTING_DATA,
            TEMPLATE_WORKER,
        )
        from app.paths import cache_dir

        shutil.rmtree(self.build_lib, ignore_errors=True)  # deleted modules would still be packed
        super().run()
        cache = cache_dir()
        with one_build_at_a_time(cache):
            downloader = Downloader(cache, pypi_address)
            ensure_venv(cache, downloader)
            files = made_files(cache, downloader)
        folder = Path(self.build_lib) / MADE
        self.mkpath(str(folder))
        kernels = (f"kernels-{MODEL_BUILDS[0]}.wasm", "hnsw.wasm", "jinja.wasm", "grammar.wasm")
        for name in (*kernels, EMBEDDER_MODEL, EMBEDDER_TOKENIZER, ROUTING_DATA):
            self.copy_file(str(files[name]), str(folder / name))
        self.copy_file("web/tokenizers/template_worker.js", str(folder / TEMPLATE_WORKER.name))
