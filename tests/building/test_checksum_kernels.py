"""The page's checksums, in Node: SHA-256 of bytes that come one after the other, and XXH64."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from app.building.common import ROOT
from app.building.kernels import checksum_kernel_path
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
IN_PARTS = """
const { Sha256 } = await import('./downloads/sha256.js');
const sums = [];
for (const size of given) {
  const bytes = new Uint8Array(size).map((_, at) => at * 31 + (at >> 7)), sum = await Sha256.create();
  for (let at = 0, n = 997; at < size; at += n, n *= 2) sum.update(bytes.subarray(at, at + n));
  sums.push(sum.hex());
}
answer(sums);
"""
WHOLE = """
const { Xxh64 } = await import('./downloads/xxh64.js');
const xxh64 = await Xxh64.create(Math.max(...given.map((text) => text.length)));
answer(given.map((text) => xxh64.sum(Buffer.from(text, 'latin1')).toString(16)));
"""
_BITS = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


@pytest.fixture
def in_node(tmp_path: Path):
    """Runs a script over `given`; gives what it answers."""
    for name in ("sha256", "xxh64", "checksum_kernels"):
        (tmp_path / "downloads").mkdir(exist_ok=True)
        shutil.copyfile(ROOT / "web" / "downloads" / f"{name}.js", tmp_path / "downloads" / f"{name}.js")
    shutil.copytree(ROOT / "web" / "common", tmp_path / "common")
    (tmp_path / "kernels").mkdir()
    shutil.copyfile(checksum_kernel_path(), tmp_path / "kernels" / "checksums.wasm")
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def run(script: str, given: object):
        begin = """
            import { readFileSync } from 'node:fs';
            globalThis.fetch = async () => new Response(readFileSync('kernels/checksums.wasm'));
            const given = JSON.parse(process.argv[2]), answer = (value) => console.log(JSON.stringify(value));
        """
        (tmp_path / "script.js").write_text(begin + script)
        command = [node_path(), "script.js", json.dumps(given)]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return run


def xxh64(data: bytes) -> int:
    """As github.com/Cyan4973/xxHash, doc/xxhash_spec.md describes it, with seed 0."""

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & _BITS

    def mixed(sum: int, lane: int) -> int:
        return rotated((sum + lane * _P2) & _BITS, 31) * _P1 & _BITS

    def words(begin: int, end: int, size: int) -> list[int]:
        return [int.from_bytes(data[at : at + size], "little") for at in range(begin, end, size)]

    sum, at = _P5, len(data) // 32 * 32
    if at:
        lanes = [(_P1 + _P2) & _BITS, _P2, 0, -_P1 & _BITS]
        for index, word in enumerate(words(0, at, 8)):
            lanes[index % 4] = mixed(lanes[index % 4], word)
        sum = sum_of(rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            sum = ((sum ^ mixed(0, lane)) * _P1 + _P4) & _BITS
    sum = (sum + len(data)) & _BITS
    for word in words(at, len(data) // 8 * 8, 8):
        sum = (rotated(sum ^ mixed(0, word), 27) * _P1 + _P4) & _BITS
    for word in words(len(data) // 8 * 8, len(data) // 4 * 4, 4):
        sum = (rotated(sum ^ word * _P1 & _BITS, 23) * _P2 + _P3) & _BITS
    for byte in data[len(data) // 4 * 4 :]:
        sum = rotated(sum ^ byte * _P5 & _BITS, 11) * _P1 & _BITS
    sum = (sum ^ sum >> 33) * _P2 & _BITS
    sum = (sum ^ sum >> 29) * _P3 & _BITS
    return sum ^ sum >> 32


def sum_of(numbers) -> int:
    return sum(numbers) & _BITS


def test_sha256_of_bytes_in_parts_is_right_at_any_length(in_node) -> None:
    data = bytes((at * 31 + (at >> 7)) & 255 for at in range(max(SIZES)))
    assert in_node(IN_PARTS, SIZES) == [hashlib.sha256(data[:size]).hexdigest() for size in SIZES]


def test_xxh64_is_right_at_any_length(in_node) -> None:
    published = {"": 0xEF46DB3751D8E999, "a": 0xD24EC4F1A98C6E5B, "abc": 0x44BC2CF5AD770999}
    published["Nobody inspects the spammish repetition"] = 0xFBCEA83C8A378BF1
    texts = ["".join(chr((at * 37 + (at >> 5)) & 255) for at in range(size)) for size in (*range(70), 4095, 4096)]
    assert {text: xxh64(text.encode()) for text in published} == published
    given = [*published, *texts]
    assert in_node(WHOLE, given) == [f"{xxh64(text.encode('latin1')):x}" for text in given]
