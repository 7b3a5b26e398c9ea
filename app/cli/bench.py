"""The output of `sonata bench`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from app.generation.speed import Speed


def speed_table(speed: Speed) -> Table:
    table = Table(show_header=False, title=f"{escape(speed.model)} on {escape(speed.backend)}, {escape(speed.adapter)}")
    table.add_row("prefill", f"{speed.prefill_tok_s:.1f} tok/s", f"{speed.prompt_tokens} tokens")
    table.add_row("first token", f"{speed.first_token_ms:.0f} ms", "after such a prompt")
    table.add_row("decode", f"{speed.decode_tok_s:.1f} tok/s", f"{speed.tokens} tokens from position {speed.position}")
    return table


def profile_tables(report: dict[str, Any]) -> Group:
    """report: the result of app.generation.speed.profile_report."""
    limits = report["limits"]
    said = f"Measured limits: memory {limits['gb_s']:.1f} GB/s, compute {limits['gflop_s']:.0f} GFLOP/s (float32)."
    return Group(*(_pass_table(one) for one in report["passes"]), said)


def _pass_table(one: dict[str, Any]) -> Table:
    table = Table(title=f"{_pass_name(one)}: {one['wall_us'] / 1000:.2f} ms, {one['tok_s']:.1f} tok/s")
    table.add_column("kernel")
    for heading in ("count", "us each", "time", "GB/s", "GFLOP/s", "of limit"):
        table.add_column(heading, justify="right")
    for row in _rows(one):
        table.add_row(*row)
    return table


def _pass_name(one: dict[str, Any]) -> str:
    if one["rows"] == 1:
        return f"A token at position {one['position']}"
    return f"A pass over {one['rows']} tokens at position {one['position']}"


def _rows(one: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for kernel in one["kernels"]:
        reached = f"{kernel['limit_share']:.0%} {kernel['limit']}"
        speeds = f"{kernel['gb_s']:.1f}", f"{kernel['gflop_s']:.0f}", reached
        yield kernel["kernel"], str(kernel["count"]), f"{kernel['us_each']:.1f}", f"{kernel['share']:.0%}", *speeds
    for name, key in (("between kernels", "between_us"), ("waiting", "wait_us")):
        yield name, "", f"{one[key]:.1f}", f"{one[key] / one['us']:.0%}", "", "", ""
