"""ggml's block formats: their layout (blocks.py), and numpy code to read and write them."""

from py_core.formats.quantization.blocks import (
    FORMATS,
    FORMATS_BY_TYPE,
    UNSUPPORTED_TYPES,
    BlockFormat,
    UnsupportedFormatError,
    format_for_type,
    nbytes,
)
from py_core.formats.quantization.dequantizer import Buffer, dequantize
from py_core.formats.quantization.quantizer import quantize

__all__ = [
    "FORMATS",
    "FORMATS_BY_TYPE",
    "UNSUPPORTED_TYPES",
    "BlockFormat",
    "Buffer",
    "UnsupportedFormatError",
    "dequantize",
    "format_for_type",
    "nbytes",
    "quantize",
]
