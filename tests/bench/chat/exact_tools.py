"""The cost of the exact tools for a message that is not for them, and for a message that is.

    python -m tests.bench exact_tools [--json FILE]

Prints microseconds a message over the repository's general messages (app/lessons/generic_texts.txt, app/lessons/facts,
app/routing/agents), how many of them get a second look and how many are computed, and how long the tools take to
import, which the first message that gets a second look waits for.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from datetime import datetime

from py_core.tools.first_look import may_be_for_a_tool
from py_core.tools.toolbox import answer_exactly
from tests.bench.reporting import options_of, write_figures
from tests.tools.test_computed import general_messages

IMPORTS = {
    "first look": "import py_core.tools.first_look",
    "tools": "import py_core.tools.first_look; begin = time.perf_counter(); import py_core.tools.toolbox",
    "units": "from py_core.tools.units import units; begin = time.perf_counter(); units()",
}
ROUNDS = 7


def seconds_of(code: str) -> float:
    """Return the seconds of an import in a new Python, the median of several."""
    whole = f"import re, time; begin = time.perf_counter(); {code}; print(time.perf_counter() - begin)"
    runs = [
        subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True) for _ in range(ROUNDS)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    parser = options_of(__doc__)
    chosen = parser.parse_args()
    messages, now = general_messages(), datetime.now()
    looks, wholes, second, computed = list[float](), list[float](), 0, 0
    for message in messages:
        begin = time.perf_counter()
        passed = may_be_for_a_tool(message)
        looks.append(time.perf_counter() - begin)
        if passed:
            second += 1
            computed += answer_exactly(message, now) is not None
        wholes.append(time.perf_counter() - begin)
    report = {
        "messages": len(messages),
        "second_look": second,
        "computed": computed,
        "first_look_us": {
            "median": 1e6 * statistics.median(looks),
            "p99": 1e6 * statistics.quantiles(looks, n=100)[98],
        },
        "whole_us": {"median": 1e6 * statistics.median(wholes), "p99": 1e6 * statistics.quantiles(wholes, n=100)[98]},
        "import_ms": {name: 1000 * seconds_of(code) for name, code in IMPORTS.items()},
    }
    write_figures(chosen, report)
    print(f"{len(messages)} messages: {report['second_look']} get a second look, {computed} are computed")
    for name in ("first_look_us", "whole_us"):
        print(f"{name:16} median {report[name]['median']:8.1f}   p99 {report[name]['p99']:8.1f}")
    for name, milliseconds in report["import_ms"].items():
        print(f"import {name:12} {milliseconds:8.1f} ms")
