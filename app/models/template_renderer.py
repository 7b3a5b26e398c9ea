"""The native renderer of chat templates, with the module that build.py makes."""

from __future__ import annotations

from functools import cache

from app.models.build_outputs import jinja_kernel_path
from py_core.tokenizers.template_renderer_wasmtime import WasmtimeTemplateRenderer


@cache
def native_renderer() -> WasmtimeTemplateRenderer:
    """The renderer of this process. Raises FileNotFoundError, with what to do, if the module has not been compiled."""
    return WasmtimeTemplateRenderer(jinja_kernel_path())
