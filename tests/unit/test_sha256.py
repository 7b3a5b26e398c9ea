"""The page's SHA-256 of bytes that come one after the other, in Node, beside hashlib's."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from app.building.common import ROOT
from app.building.kernels import sha256_kernel_path
from app.building.node import node_path

MIB = 1 << 20
# Around the ends of blocks of 64 bytes, and of the 1 MiB that the kernel gets at once.
SIZES = [
    0,
    1,
    55,
    56,
    63,
    64,
    119,
    120,
    1000,
    *(MIB + more for more in (-129, -120, -73, -72, -64, -9, -1, 0, 1, 55, 56)),
]
SCRIPT = """
import { readFileSync } from 'node:fs';
globalThis.fetch = async () => new Response(readFileSync('kernels/sha256.wasm'));
const { Sha256 } = await import('./storage/sha256.js');
const sums = [];
for (const size of JSON.parse(process.argv[2])) {
  const bytes = new Uint8Array(size).map((_, at) => at * 31 + (at >> 7)), sum = await Sha256.create();
  for (let at = 0, n = 997; at < size; at += n, n *= 2) sum.update(bytes.subarray(at, at + n));
  sums.push(sum.hex());
}
console.log(JSON.stringify(sums));
"""


def test_checksums_of_any_length_are_right(tmp_path: Path) -> None:
    for name in ("storage/sha256.js", "common/fetch_file.js", "common/user_error.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / "web" / name, tmp_path / name)
    (tmp_path / "kernels").mkdir()
    shutil.copyfile(sha256_kernel_path(), tmp_path / "kernels" / "sha256.wasm")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "script.js").write_text(SCRIPT)
    ran = subprocess.run([node_path(), "script.js", json.dumps(SIZES)], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    data = bytes((at * 31 + (at >> 7)) & 255 for at in range(max(SIZES)))
    assert json.loads(ran.stdout) == [hashlib.sha256(data[:size]).hexdigest() for size in SIZES]
