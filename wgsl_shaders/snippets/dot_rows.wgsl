// The dot products of rows of W with M_TILE rows of x. With NORM, x is normalized by RMS.
//
// A lane group is SUBGROUPS * LANES invocations that share a row tile: ROWS rows of W. They take the row's blocks of 32
// columns in turn, and sum their results. A lane group processes ROW_TILES tiles one after the other, and loads the
// next tile's weights while it multiplies the current one's. `columns` provides x, CHUNK blocks at a time.
//
// Example: matvec over W of 4096 x 2048 (64 blocks a row) with WORKGROUP 128, LANES 32, SUBGROUPS 1, ROWS 2,
// ROW_TILES 1, CHUNK 64. A workgroup has 4 lane groups; lane group g of workgroup w has the tile of rows
// r = 2 (4 w + g) and r + 1. Its lane l reads
//
//              lane 0           lane 1           ...   lane 31
//   row r      blocks 0 and 32  blocks 1 and 33  ...   blocks 31 and 63     neighbours read neighbouring blocks
//   row r + 1  blocks 0 and 32  blocks 1 and 33  ...   blocks 31 and 63     with the same columns of x
//
// so each lane ends with two sums. After the first shuffle, lanes 0..15 have the sums of row r and lanes 16..31 those
// of row r + 1; four more shuffles sum them: five instead of ten. Lane 0 then has the output of row r and lane 1 that
// of row r + 1. Several rows of x mean more sums: 8 of them take 8 * (1/2 + 1/4 + 1/8) + 2 shuffles. With SUBGROUPS 2,
// a lane group has 64 lanes and each lane a single block of a row. It can keep that block of x in registers, and read
// the weights of one row tile after the other (ROW_TILES 8).
//
// Needs quants, scales, x (MAX_ROWS, K / 4) vec4f, vectors, which begin with the norm's weight: (K / 4) vec4f;
// weight_row(item, r): the r-th row of W of an item (a row tile); OUTPUTS_PER_ITEM: outputs that an item makes for a
// row of x, each of ROWS / OUTPUTS_PER_ITEM sums: output e has the sums of rows e, OUTPUTS_PER_ITEM + e ...;
// `columns`: x_direct, x_staged, x_limbs, x_limbs_rows or x_limbs_read, which load x and multiply a block of it by
// blocks of W; a format's load_block(row, column) and the codes of a block, where value = scale[half] * code +
// offset[half]; OFFSETS: whether any offset is not 0, TWO_SCALES: whether the halves of a block differ in scale and
// offset.
// `lora`: an adapter's contribution, which acts as if W had more columns.
// Constants: K, LANES, SUBGROUPS, ROW_TILES (more than 1 only if CHUNK is all of K / 32), M_TILE, ROWS, NORM, EPS,
// WORKGROUP, CHUNK.
#import dequantize
#import reduce
#import columns
#import lora

const SUMS = ROWS * M_TILE;
alias Sums = array<f32, SUMS>;               // of row r of W and row m of x at r * M_TILE + m
const LANE_GROUP = LANES * SUBGROUPS;        // its invocations
const LANE_GROUPS = WORKGROUP / LANE_GROUP;  // of a workgroup
const BLOCKS_PER_LANE = (CHUNK + LANE_GROUP - 1u) / LANE_GROUP;
alias Blocks = array<array<Block, ROWS>, BLOCKS_PER_LANE>;
const CHUNKS = (ROW_BLOCKS + CHUNK - 1u) / CHUNK;
// A step is a row tile over all of x, or a chunk of the only tile. Neither function divides: that is slow on software
// adapters.
const STEPS = ROW_TILES * CHUNKS;
fn row_tile_of(step: u32) -> u32 { return select(0u, step, CHUNKS == 1u); }
fn first_of(step: u32) -> u32 { return select(step * CHUNK, 0u, CHUNKS == 1u); }
const EVEN = ROW_BLOCKS % CHUNK == 0u && CHUNK % LANE_GROUP == 0u;  // whether every lane always has a block

const SUMS_PER_OUTPUT = ROWS / OUTPUTS_PER_ITEM;
const OUTPUTS_PER_GROUP = M_TILE * ROW_TILES * OUTPUTS_PER_ITEM;
// A lane writes outputs `lane`, lane + LANE_GROUP ... of its group.
const OUTPUTS_PER_LANE = (OUTPUTS_PER_GROUP + LANE_GROUP - 1u) / LANE_GROUP;
alias LaneOutputs = array<array<f32, SUMS_PER_OUTPUT>, OUTPUTS_PER_LANE>;
// A lane's o-th output: whether it exists, its row of x, and its index among the lane group's ROW_TILES *
// OUTPUTS_PER_ITEM rows of y.
struct Output { exists: bool, m: u32, row: u32 }
fn output_of(o: u32, index: u32) -> Output {
  let output = o * LANE_GROUP + index % LANE_GROUP;
  const PER_X_ROW = ROW_TILES * OUTPUTS_PER_ITEM;
  return Output(output < OUTPUTS_PER_GROUP, output / PER_X_ROW, output % PER_X_ROW);
}
fn first_item(group: u32, index: u32) -> u32 { return (group * LANE_GROUPS + index / LANE_GROUP) * ROW_TILES; }

// Sums over LANES lanes. While there are several sums, each half of the lanes continues with half of them: fewer
// shuffles. Every index is known at compile time, so that the sums stay in registers.
const SHARES = select(1u, min(SUMS, LANES), (SUMS & (SUMS - 1u)) == 0u);
const KEPT = SUMS / SHARES;
fn halve(sums: ptr<function, Sums>, count: u32, mask: u32, index: u32) {
  let upper = (index & mask) != 0u;
  for (var i = 0u; i < count; i++) {
    let low = (*sums)[i];
    let high = (*sums)[i + count];
    (*sums)[i] = select(low, high, upper) + shuffle_xor(select(high, low, upper), mask, index);
  }
}
fn reduce_sums(sums: ptr<function, Sums>, index: u32) -> array<f32, KEPT> {
  if (SHARES >= 2u) { halve(sums, SUMS / 2u, LANES / 2u, index); }
  if (SHARES >= 4u) { halve(sums, SUMS / 4u, LANES / 4u, index); }
  if (SHARES >= 8u) { halve(sums, SUMS / 8u, LANES / 8u, index); }
  if (SHARES >= 16u) { halve(sums, SUMS / 16u, LANES / 16u, index); }
  if (SHARES >= 32u) { halve(sums, SUMS / 32u, LANES / 32u, index); }
  var kept: array<f32, KEPT>;
  for (var k = 0u; k < KEPT; k++) {
    kept[k] = (*sums)[k];
    for (var mask = LANES / SHARES / 2u; mask > 0u; mask /= 2u) { kept[k] += shuffle_xor(kept[k], mask, index); }
  }
  return kept;
}

// The subgroups of a lane group store their sums here for the lane that writes the output.
var<workgroup> partial: array<f32, select(1u, LANE_GROUPS * OUTPUTS_PER_GROUP * SUMS_PER_OUTPUT * SUBGROUPS, LANE_GROUP > 1u)>;
fn partial_of(index: u32, output: u32, value: u32) -> u32 {
  return ((index / LANE_GROUP * OUTPUTS_PER_GROUP + output) * SUMS_PER_OUTPUT + value) * SUBGROUPS;
}

fn load_blocks(item: u32, step: u32, lane: u32) -> Blocks {
  var blocks: Blocks;
  for (var i = 0u; i < BLOCKS_PER_LANE; i++) {
    let block = min(first_of(step) + i * LANE_GROUP + lane, ROW_BLOCKS - 1u);
    for (var r = 0u; r < ROWS; r++) {
      blocks[i][r] = load_block(weight_row(item + row_tile_of(step), r), block);
    }
  }
  return blocks;
}

fn dot_rows(item: u32, m0: u32, index: u32) -> LaneOutputs {
  let lane = index % LANE_GROUP;
  var outputs = LaneOutputs();
  var sums = Sums();
  var x_scale: array<f32, M_TILE>;
  // Weights load while columns of x are copied, and while the previous weights are multiplied.
  var ahead = load_blocks(item, 0u, lane);
  var lora_ahead = lora_rows(item, lane);
  lora_start(item, m0, index);
  for (var step = 0u; step < STEPS; step++) {
    let first = first_of(step);
    if (CHUNKS > 1u || step == 0u) {
      stage_columns(m0, first, index);
      cache_columns(lane);
    }
    var blocks = ahead;
    if (step + 1u < STEPS) { ahead = load_blocks(item, step + 1u, lane); }
    var lora_now = lora_ahead;
    if (LORA && ROW_TILES > 1u && step + 1u < STEPS) { lora_ahead = lora_rows(item + step + 1u, lane); }
    for (var i = 0u; i < BLOCKS_PER_LANE; i++) {
      let block = first + i * LANE_GROUP + lane;
      if (!EVEN && block >= min(first + CHUNK, ROW_BLOCKS)) { continue; }
      add_block(blocks[i], i, m0, first, block, &sums);
    }
    if (first + CHUNK < ROW_BLOCKS) { continue; }
    if (step < CHUNKS) {
      for (var m = 0u; m < M_TILE; m++) { x_scale[m] = norm_scale(m, index); }
      if (LORA) { lora_ready(); }
    }
    for (var r = 0u; r < ROWS; r++) {
      for (var m = 0u; m < M_TILE; m++) {
        if (LORA) { sums[r * M_TILE + m] += lora_term(lora_now, item + row_tile_of(step), r, m, index); }
        sums[r * M_TILE + m] *= x_scale[m];
      }
    }
    var kept = reduce_sums(&sums, index);
    for (var k = 0u; k < KEPT; k++) {
      let sum = index % LANES / (LANES / SHARES) * KEPT + k;
      let r = sum / M_TILE;
      let output = (sum % M_TILE * ROW_TILES + row_tile_of(step)) * OUTPUTS_PER_ITEM + r % OUTPUTS_PER_ITEM;
      if (LANE_GROUP == 1u) {
        outputs[output][r / OUTPUTS_PER_ITEM] = kept[k];
      } else if (index % (LANES / SHARES) == 0u) {
        partial[partial_of(index, output, r / OUTPUTS_PER_ITEM) + lane / LANES] = kept[k];
      }
    }
    sums = Sums();
  }
  if (LANE_GROUP > 1u) {
    workgroupBarrier();
    for (var o = 0u; o < OUTPUTS_PER_LANE; o++) {
      for (var v = 0u; v < SUMS_PER_OUTPUT; v++) {
        let at = partial_of(index, min(o * LANE_GROUP + lane, OUTPUTS_PER_GROUP - 1u), v);
        for (var p = 0u; p < SUBGROUPS; p++) { outputs[o][v] += partial[at + p]; }
      }
    }
  }
  return outputs;
}
