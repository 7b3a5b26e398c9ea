"""Programs that code may be, by the reason of the failure that they must end with: in the child and in the page."""

from __future__ import annotations

HOSTILE = {
    "a loop without an end": ("while True: pass", "time"),
    "a list without an end": ("a = []\nwhile True: a.append(bytes(50_000_000))", "memory"),
    "recursion": ("def call(): return call()\ncall()", "recursion"),
    "a large file": ("with open('large', 'wb') as file:\n    for _ in range(64): file.write(bytes(16 << 20))", "disk"),
    "an address": ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/')", "network"),
    "a question": ("input('What now? ')", "input"),
}
"""Name -> (code, reason). The variables are there afterwards."""

MEAN = """\
import csv
from statistics import mean
rows = list(csv.DictReader(open('sales.csv')))
groups = {row['region'] for row in rows}
[{'region': one, 'mean': mean(float(row['sold']) for row in rows if row['region'] == one)} for one in sorted(groups)]
"""
SALES = b"region,sold\nnorth,10\nsouth,4\nnorth,20\nsouth,5\n"
