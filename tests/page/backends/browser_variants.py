"""The kernels in the variants that Chromium has to compile: every second choice, and as many pairs of choices as
fit."""

from __future__ import annotations

from dataclasses import dataclass

from py_core.backends.webgpu.attention import lane_group_shape
from py_core.backends.webgpu.host import AdapterInfo
from py_core.backends.webgpu.shaders import binding_access, compose, compose_pair
from py_core.backends.webgpu.weights.layout import LAYOUTS
from py_core.backends.webgpu.weights.repacking import repack_shader
from py_core.formats.quantization import FORMATS
from tests.backends.training_variants import training_variants


@dataclass(frozen=True)
class KernelVariant:
    """whole: it is compiled for the adapter as well, which is slow: once for each shape and snippet is enough."""

    kernel: str
    label: str
    wgsl: str
    whole: bool

    @property
    def access(self) -> str:
        return binding_access(self.wgsl)


def kernel_variants() -> list[KernelVariant]:
    variants: list[KernelVariant] = []
    sizes = {"HEADS": 9, "KV_HEADS": 3, "HEAD_DIM": 64, "PAGE": 64, "MAX_PAGES": 128}
    vocabulary = {"VOCAB": 49152, "RING": 1024, "WORKGROUP": 256}
    reductions = [("reduce_single", 1), ("reduce_workgroup", 32), ("reduce_subgroup", 4)]
    least = AdapterInfo("least", "", False, 4, 128 << 20, 256 << 20, 16 << 10, 256, 8, True)

    def add(name: str, snippets: dict[str, str], whole: bool = True, **constants) -> None:
        """The EPILOGUE after the product changes neither the workgroup nor its memory, which are the adapter's
        limits."""
        wgsl = compose(name, {"MAX_ROWS": 256, **constants}, snippets)
        variants.append(KernelVariant(name, f"{name} {snippets}", wgsl, whole))

    for form in FORMATS.values():
        if LAYOUTS[form.name].repack:
            variants.append(KernelVariant("repack", f"repack {form.name}", repack_shader(form), True))
        dequantize = {"dequantize": f"dequantize_{form.name.lower()}"}
        add("embedding", dequantize, K=768, N=100, BLOCKS=2400, FIRST_ROW=0, SCALE=1.0, WORKGROUP=64)
        # The code that reads a format is the same in each shape: all shapes are compiled for one format.
        every = form.name == "Q4_1"
        matrix = {"K": 768, "N": 100, "BLOCKS": 4800}
        shape = {"EPS": 1e-5, "ROWS": 2, "M_TILE": 4, "CHUNK": 8, "WORKGROUP": 64, "SUBGROUPS": 1, "ROW_TILES": 1}
        for reduce, lanes in reductions if every else reductions[-1:]:
            staged = lanes > 1
            snippets = {**dequantize, "reduce": reduce, "columns": "x_staged" if staged else "x_direct"}
            shape |= {"LANES": lanes, "NORM": staged, "SINGLE_ROW": not staged}
            rotation = {"PAIRS": 24 if staged else 0, "INTERLEAVED": False}
            rows = {"FIRST_ROW": 0, "ADD_BIAS": staged, "BIAS_AT": 768}
            add("qkv", snippets, every, **matrix, **shape, FIRST_HEAD=0, **rotation, **rows, **sizes)
            if every:
                experts = {**matrix, **shape, "M_TILE": 1, "NORM": False, "EXPERTS": 8, "USED": 2, "SHARED": staged}
                add("expert_linear", snippets, **experts)
            for epilogue in (0, 1, 2) if every else (0,):
                linear = {**matrix, **rows, "Y_STRIDE": 100, "Y_OFFSET": 0, "EPILOGUE": epilogue, "GELU": staged}
                whole = every and epilogue == 0
                add("matvec", snippets, whole, **linear, **shape, LOGITS=False, CAP=0.0 if staged else 30.0)
                if staged and LAYOUTS[form.name].quantized:
                    # A lane group of two subgroups has three row tiles over columns that it keeps.
                    row_tiles = {**shape, "SUBGROUPS": 2, "ROW_TILES": 3, "CHUNK": 24, "M_TILE": 1}
                    kept = {**snippets, "halves": "halves_unpacked"}
                    for columns in ("x_staged", "x_limbs"):
                        kept |= {"columns": columns}
                        add("matvec", kept, whole, **linear, **row_tiles, LOGITS=False, CAP=0.0)
                    several = {**shape, "M_TILE": 8, "CHUNK": 24}
                    made = {**snippets, "columns": "x_limbs_rows"}
                    add("matvec", made, whole, **linear, **several, LOGITS=True, CAP=0.0)
                    several |= {"CHUNK": lanes, "NORM": False}
                    read = {**snippets, "columns": "x_limbs_read", "x_binding": "x_binding_limbs"}
                    add("matvec", read, whole, **linear, **several, LOGITS=True, CAP=0.0)
        for epilogue in (0, 1, 2) if every else (0,):
            for slices, wide in ((2, 1), (1, 2)):
                linear = {**matrix, "FIRST_ROW": 0, "Y_STRIDE": 100, "Y_OFFSET": 0, "EPILOGUE": epilogue}
                linear |= {"ADD_BIAS": wide == 2, "BIAS_AT": 0, "GELU": wide == 2}
                add("matmul", dequantize, every and epilogue == 0, **linear, SLICES=slices, WIDE=wide)
                if LAYOUTS[form.name].quantized:
                    whole = every and epilogue == 0 and slices == 2
                    add("matmul_integer", dequantize, whole, **linear, SLICES=slices, WIDE=4 * wide)
    # With a set of LoRA matrices, in each way that kernels add it: for one row of x, and for many.
    lora = {
        "RANK": 16,
        "LINEARS": 3,
        "LORA_A": 768,
        "LORA_B": 9600,
        "LORA_SECOND": 40,
        "LORA_THIRD": 80,
        "LORA_FIRST": 0,
    }
    leaves = {"NEXT_LINEARS": 2, "NEXT_K": 320, "NEXT_TILE": 8, "NEXT_SHARES": 2, "NEXT_A": 768}
    q4_1 = {"dequantize": "dequantize_q4_1"}
    linear = {**matrix, **rows, "Y_STRIDE": 100, "Y_OFFSET": 0, "GELU": False}
    for reduce, lanes, columns in (("reduce_single", 1, "x_direct"), ("reduce_subgroup", 4, "x_limbs")):
        alone = lanes == 1
        adds = {"lora": "lora_read" if alone else "lora_parts", "reduce": reduce, "columns": columns, **q4_1}
        shape |= {"LANES": lanes, "NORM": not alone, "SINGLE_ROW": not alone, "M_TILE": 4 if alone else 1}
        with_lora = {**shape, **lora, "LORA_PARTS": 9}
        heads = {"FIRST_HEAD": 0, "PAIRS": 24, "INTERLEAVED": False, **sizes}
        nine = {**adds, "lora_binding": "lora_binding_9"}
        add("qkv", nine, False, **matrix, **with_lora, **heads, **rows, LORA_GATED=False)
        kept = {**adds, "lora_binding": "lora_binding_6"}
        if not alone:
            kept |= {"lora_next": "lora_next_part", "lora_next_binding": "lora_next_binding_7"}
        gated = {"EPILOGUE": 2, "LORA_GATED": True, "LOGITS": False, "CAP": 0.0}
        add("matvec", kept, not alone, **linear, **with_lora, **({} if alone else leaves), **gated)
        down = {"reduce": reduce, **({} if alone else {"limbs_of_rows": "limbs_beside"})}
        add("lora_down", down, not alone, K=768, M_TILE=4, WORKGROUP=128, LANES=16, LORA_LANES=16, **lora)
    tile = {"lora_tile_none": "lora_tile", "lora_binding": "lora_binding_6", **q4_1}
    for name, wide in (("matmul", 1), ("matmul_integer", 4)):
        add(name, tile, False, **linear, **lora, EPILOGUE=2, SLICES=2, WIDE=wide)
    beside = {"lora_next": "lora_next_part", "lora_next_binding": "lora_next_binding_5", "reduce": "reduce_subgroup"}
    attention = {**sizes, "SCALE": 0.125, "SOFTCAP": 0.0, "WINDOW": 0, **leaves, "RANK": 16}
    split = {"LANES": 8, "WORKGROUP": 128, "SPLIT": 256, "HEADS_EACH": 1, "DIRECT": True, "SINGLE_ROW": True}
    add("attention_split", beside, False, **attention, **split)
    beside |= {"lora_next_binding": "lora_next_binding_3"}
    add("attention_merge", beside, False, **attention, SPLIT=128, WORKGROUP=256)
    all_tiers, tier_bits = {"kv_quads": "kv_quads_demoted"}, {"TIER_SHIFT": 24}
    beside |= {"lora_next_binding": "lora_next_binding_6", **all_tiers}
    add("attention_split", beside, False, **attention, **split, **tier_bits)
    halves = {"reduce": "reduce_subgroup", "columns": "x_limbs", "halves": "halves"}
    once = {**matrix, **shape, "M_TILE": 1, **rotation, **rows, **sizes, "QUANTS_AT": 0, "SCALES_AT": 9}
    pair = [
        ({"MAX_ROWS": 256, **once, "FIRST_HEAD": first}, {"dequantize": f"dequantize_{name}", **halves})
        for first, name in ((0, "q4_k"), (12, "q6_k"))
    ]
    variants.append(KernelVariant("qkv", "qkv of two formats", compose_pair("qkv", pair, 5), True))
    add("limbs", {}, K=768, WORKGROUP=64)
    lanes_of_rows = {"LANES": 4, "WORKGROUP": 128, "NORM": True, "EPS": 1e-5}
    add("row_limbs", {"reduce": "reduce_subgroup"}, True, K=768, LOGITS=True, **lanes_of_rows)
    for pairs, interleaved in ((24, False), (32, True), (30, False), (0, False)):
        rotation = {"PAIRS": pairs, "INTERLEAVED": interleaved}
        norm = {"HEAD_NORM": pairs == 24, "V_NORM": pairs == 24, "EPS": 1e-5}
        add("rope_append", {}, pairs == 24, **sizes, HEAD_SIZE=64, WORKGROUP=64, **rotation, **norm)
        add("rope", {}, pairs == 24, HEADS=9, HEAD_DIM=64, WORKGROUP=64, **rotation)
    add("resize_heads", {}, HEADS=9, FROM=50, TO=56, WORKGROUP=64)
    add("append", {}, KV_HEADS=3, HEAD_DIM=64, PAGE=64, MAX_PAGES=128, WORKGROUP=64)
    plain = {"SCALE": 0.125, "SOFTCAP": 0.0, "WINDOW": 0}
    narrow = {"SCALE": 0.0625, "SOFTCAP": 50.0, "WINDOW": 512}
    add("attention", {}, **sizes, **narrow, WORKGROUP=4)
    for head_dim in (64, 72, 80, 256, 512):
        shape = {**sizes, **(plain if head_dim == 72 else narrow), "HEAD_DIM": head_dim}
        few = [("reduce_subgroup", 8)] if head_dim < 512 else []
        for reduce, most_lanes in (("reduce_workgroup", 32), *few):
            lanes, workgroup = lane_group_shape(head_dim, most_lanes, 256, least)
            split = {**shape, "LANES": lanes, "WORKGROUP": workgroup}
            add(
                "attention_split",
                {"reduce": reduce},
                head_dim == 64,
                **split,
                SPLIT=256,
                HEADS_EACH=1,
                DIRECT=True,
                SINGLE_ROW=True,
            )
            add(
                "attention_split",
                {"reduce": reduce},
                head_dim == 64,
                **split,
                SPLIT=128,
                HEADS_EACH=2,
                DIRECT=False,
                SINGLE_ROW=False,
            )
            add(
                "attention_split",
                {"reduce": reduce, **all_tiers},
                head_dim == 64,
                **split,
                SPLIT=128,
                HEADS_EACH=2,
                DIRECT=False,
                SINGLE_ROW=True,
                **tier_bits,
            )
        add("attention_merge", {}, head_dim == 64, **shape, SPLIT=128, WORKGROUP=256)
        for slices in (1, 2):
            add("attention_tiles", {}, head_dim == 64 and slices == 1, **shape, SLICES=slices)
            add("attention_tiles", all_tiers, head_dim == 64 and slices == 1, **shape, SLICES=slices, **tier_bits)
        pages = {"KV_HEADS": 3, "HEAD_DIM": head_dim, "PAGE": 64, "WORKGROUP": 256, **tier_bits}
        add("demote", {"halves": "halves_unpacked"}, head_dim == 64, **pages)
    for reduce, lanes in reductions:
        norm = {"K": 576, "HEADS": 1, "EPS": 1e-5, "LANES": lanes, "WORKGROUP": lanes, "WEIGHTED": True}
        add("rms_norm", {"reduce": reduce}, **norm, LOGITS=True, ADD=False)
        changed = {"K": 576, "EPS": 1e-5, "LANES": lanes, "WORKGROUP": 256}
        add("head_adapt", {"reduce": reduce}, False, **changed, SCORED=lanes > 1)
    add("rms_norm", {"reduce": "reduce_workgroup"}, **{**norm, "LANES": 256, "WORKGROUP": 256}, LOGITS=False, ADD=True)
    for name in ("argmax", "penalties", "sample"):
        add(name, {}, **vocabulary)
    add("masks", {}, VOCAB=49152, WORDS=1536, WORKGROUP=64)
    add("head_mix", {}, False, K=576, VOCAB=49152, WORKGROUP=256)
    add("token_scores", {}, False, K=576, VOCAB=49152, CAP=30.0, WORKGROUP=256)
    for gelu, sigmoid in ((False, False), (True, False), (False, True)):
        add("glu", {}, N=100, UP_WIDTH=300, FIRST=200, GELU=gelu, SIGMOID=sigmoid, WORKGROUP=64)
    add("add", {}, N=100, WORKGROUP=64)
    add("scale", {}, N=100, WORKGROUP=64)
    add("soft_cap", {}, N=100, CAP=30.0, WORKGROUP=64)
    add("route", {}, EXPERTS=32, USED=8, NORMALIZED=True, WORKGROUP=64)
    add("mix", {}, N=100, USED=8, WORKGROUP=64)
    add("copy_rows", {}, K=576, WORKGROUP=64)
    add("short_conv", {}, K=576, TAPS=3, GATED=True, ROWS=10, PAGE=64, MAX_PAGES=128, WORKGROUP=64)
    add("short_conv", {}, False, K=6144, TAPS=4, GATED=False, ROWS=11, PAGE=64, MAX_PAGES=128, WORKGROUP=64)
    add("delta_rule", {}, KEY_HEADS=16, HEADS=32, SIZE=128, PAGE=64, MAX_PAGES=128)
    add("half", {}, N=2048, SIZE=256, SECOND=True, WORKGROUP=64)
    for name, read, whole, constants in training_variants():
        add(name, dict(read), whole, **constants)
    add("guess", {}, False, RING=1024, ROWS=8, RECORD=9, MOST_MATCH=8, WORDS=6, WORKGROUP=256)
    add("unpack_halves", {})
    add("read_bandwidth", {}, LOADS=8, WORKGROUP=256)
    add("multiply_add", {}, CHAINS=8, STEPS=256, WORKGROUP=64)
    return variants
