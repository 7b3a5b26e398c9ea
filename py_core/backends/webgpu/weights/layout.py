"""The layout of a matrix on the GPU: `quants` and `scales` of blocks of 32 values, in the order of the rows.

The kernels read one layout for all block formats of files, in whole, aligned words (words are of 32 bits):

    quants  Q4 to Q6, IQ4, MXFP4  4 words a block: byte j has the low 4 bits of value j (low nibble) and of value j + 16
            Q2_K, Q3_K, TQ  2 words: byte j of word h has in bits 2w and 2w + 1 the low 2 bits of value 16h + 4w + j
            Q8_0         8 words: 32 int8 in order
            F16, BF16    16 words, F32 32: values in order
    scales  S  Q4_0, Q5_0, Q8_0, IQ4_NL  half d: 2 blocks a word
               MXFP4             the upper 16 bits of the float d: 2 blocks a word
               Q4_1, Q5_1        halves d and m: a word a block
               Q4_K, Q5_K        bytes s and t: 2 blocks a word
               Q2_K              bytes with s and t (high nibble) of values 0..15 and of 16..31: 2 blocks a word
               Q3_K, Q6_K        int8 s of values 0..15 and of 16..31: 2 blocks a word
               IQ4_XS            int16 s: 2 blocks a word
            D  K-quants, IQ4_XS, TQ  halves d and m (0 if there is none): a word for 8 blocks
            H  Q5_0, Q5_1, Q5_K  byte j has in bit w the fifth bit of value 4w + j: a word a block
               Q3_K              the third bit likewise
               Q6_K              byte j has in bits 2w and 2w + 1 the upper bits of value 4w + j, in a second word
                                 those of value 16 + 4w + j

S, D and H follow each other, each for all blocks. formats/quantization/blocks.py has the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 32
"""Values in a block, in every format."""
LIMBS_BYTES = 80
"""The bytes of a block of x in integers: limbs.wgsl."""


def blocks_of(columns: int) -> int:
    """Return the blocks of a row. Zeros fill up the last one; only rows of floats may end within a block."""
    return -(-columns // BLOCK)


@dataclass(frozen=True)
class Layout:
    """The numbers of a format for a block of 32 values. `repack` is the snippet that writes it, "" if files have it."""

    quant_words: int
    repack: str = ""
    scale_halves: int = 0
    """16-bit numbers of a block in S."""
    superblocks: bool = False
    """True if there is D."""
    high_words: int = 0
    """Words of a block in H."""

    @property
    def quantized(self) -> bool:
        """True if values are codes times scales."""
        return self.scale_halves > 0 or self.superblocks

    @property
    def unit(self) -> int:
        """Blocks that share no word with others: one invocation of repack.wgsl writes this many."""
        return 8 if self.superblocks else 2 if self.scale_halves == 1 else 1

    def sections(self, blocks: int) -> tuple[int, int, int]:
        """Return the first word of D, the first of H, and the number of words in the scales of `blocks` blocks."""
        supers = -(-blocks * self.scale_halves // 2)
        highs = supers + (blocks // 8 if self.superblocks else 0)
        return supers, highs, highs + blocks * self.high_words


LAYOUTS: dict[str, Layout] = {
    "F32": Layout(32),
    "F16": Layout(16),
    "BF16": Layout(16),
    "Q4_0": Layout(4, "repack_blocks", scale_halves=1),
    "Q4_1": Layout(4, "repack_blocks", scale_halves=2),
    "Q5_0": Layout(4, "repack_blocks", scale_halves=1, high_words=1),
    "Q5_1": Layout(4, "repack_blocks", scale_halves=2, high_words=1),
    "Q8_0": Layout(8, "repack_blocks", scale_halves=1),
    "Q2_K": Layout(2, "repack_q2_k", scale_halves=1, superblocks=True),
    "Q3_K": Layout(2, "repack_q3_k", scale_halves=1, superblocks=True, high_words=1),
    "IQ4_NL": Layout(4, "repack_blocks", scale_halves=1),
    "IQ4_XS": Layout(4, "repack_iq4_xs", scale_halves=1, superblocks=True),
    "MXFP4": Layout(4, "repack_mxfp4", scale_halves=1),
    "TQ1_0": Layout(2, "repack_tq1_0", superblocks=True),
    "TQ2_0": Layout(2, "repack_tq2_0", superblocks=True),
    "Q4_K": Layout(4, "repack_q4_k", scale_halves=1, superblocks=True),
    "Q5_K": Layout(4, "repack_q5_k", scale_halves=1, superblocks=True, high_words=1),
    "Q6_K": Layout(4, "repack_q6_k", scale_halves=1, superblocks=True, high_words=2),
}
