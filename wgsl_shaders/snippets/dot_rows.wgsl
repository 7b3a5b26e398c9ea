// The dot products of rows of W and M_TILE rows of x. PARTS * LANES invocations are a team: of each row of W every one takes
// the blocks of 32 columns that are as far apart as the team is large. A team has TURNS items of ROWS rows, one after the
// other, each asked for while the one before is multiplied. With NORM x is normalized by RMS.
// Needs quants, scales, x (MAX_ROWS, K / 4) vec4f, norm_weight (K / 4) vec4f, weight_row(item, r), EACH: outputs of an item
// for a row of x, each of ROWS / EACH sums: of rows e, EACH + e ...; `columns` is x_direct, x_staged or x_digits: what brings
// CHUNK blocks of x and multiplies one by blocks of W. A format gives load_block(row, column) and the block's codes, where value =
// scale[half] * code + offset; OFFSETS says whether any offset is not 0.
// Constants K, LANES, PARTS, TURNS (more than 1 only where CHUNK is all of K / 32), M_TILE, ROWS, NORM, EPS, WORKGROUP;
// CHUNK: blocks of x that are at hand together.
#import dequantize
#import reduce
#import columns

alias Sums = array<array<f32, M_TILE>, ROWS>;
const TEAM = LANES * PARTS;
const TEAMS = WORKGROUP / TEAM;
const PER_LANE = (CHUNK + TEAM - 1u) / TEAM;
alias Blocks = array<array<Block, ROWS>, PER_LANE>;
const CHUNKS = (K / 32u + CHUNK - 1u) / CHUNK;
// A step is a turn over all of x, or a chunk of the only turn: found without a division, which software adapters make slowly.
const STEPS = TURNS * CHUNKS;
fn turn_of(step: u32) -> u32 { return select(0u, step, CHUNKS == 1u); }
fn first_of(step: u32) -> u32 { return select(step * CHUNK, 0u, CHUNKS == 1u); }
const EVEN = K / 32u % CHUNK == 0u && CHUNK % TEAM == 0u;  // whether every invocation has a block each time

const VALUES = ROWS / EACH;
const OUTPUTS = M_TILE * TURNS * EACH;     // of a team
const OWN = (OUTPUTS + TEAM - 1u) / TEAM;  // of an invocation: outputs o * TEAM + its number in the team
alias Own = array<array<f32, VALUES>, OWN>;
// Of output `o` of an invocation: whether there is one, the row of x, and which of the team's TURNS * EACH rows of y.
struct Output { exists: bool, m: u32, row: u32 }
fn output_of(o: u32, index: u32) -> Output {
  let output = o * TEAM + index % TEAM;
  return Output(output < OUTPUTS, output / (TURNS * EACH), output % (TURNS * EACH));
}
fn first_item(group: u32, index: u32) -> u32 { return (group * TEAMS + index / TEAM) * TURNS; }

// Adding up over lanes, half of the rows go to each half of the lanes, as long as there are several: fewer are exchanged.
const GROUPS = select(1u, min(ROWS, LANES), (ROWS & (ROWS - 1u)) == 0u);
const KEPT = ROWS / GROUPS;
fn reduce_rows(values: array<f32, ROWS>, index: u32) -> array<f32, KEPT> {
  var rows = values;
  var mask = LANES / 2u;
  for (var count = ROWS / 2u; count >= KEPT; count /= 2u) {
    let upper = (index & mask) != 0u;
    for (var r = 0u; r < count; r++) {
      let other = exchange(select(rows[r + count], rows[r], upper), mask, index);
      rows[r] = select(rows[r], rows[r + count], upper) + other;
    }
    mask /= 2u;
  }
  var kept: array<f32, KEPT>;
  for (var r = 0u; r < KEPT; r++) { kept[r] = rows[r]; }
  for (; mask > 0u; mask /= 2u) {
    for (var r = 0u; r < KEPT; r++) { kept[r] += exchange(kept[r], mask, index); }
  }
  return kept;
}

var<workgroup> partial: array<f32, select(1u, TEAMS * OUTPUTS * VALUES * PARTS, TEAM > 1u)>;
fn partial_of(index: u32, output: u32, value: u32) -> u32 { return ((index / TEAM * OUTPUTS + output) * VALUES + value) * PARTS; }

fn load_blocks(item: u32, step: u32, member: u32) -> Blocks {
  var blocks: Blocks;
  for (var i = 0u; i < PER_LANE; i++) {
    let block = min(first_of(step) + i * TEAM + member, K / 32u - 1u);
    for (var r = 0u; r < ROWS; r++) {
      blocks[i][r] = load_block(weight_row(item + turn_of(step), r), block);
    }
  }
  return blocks;
}

fn dot_rows(item: u32, m0: u32, index: u32) -> Own {
  let member = index % TEAM;
  var own = Own();
  var sums = Sums();
  var x_scale: array<f32, M_TILE>;
  // Weights are on their way while columns of x are being brought, and while other weights are multiplied.
  var ahead = load_blocks(item, 0u, member);
  for (var step = 0u; step < STEPS; step++) {
    let first = first_of(step);
    if (CHUNKS > 1u || step == 0u) {
      bring_columns(m0, first, index);
      hold_columns(member);
    }
    var blocks = ahead;
    if (step + 1u < STEPS) { ahead = load_blocks(item, step + 1u, member); }
    for (var i = 0u; i < PER_LANE; i++) {
      let block = first + i * TEAM + member;
      if (!EVEN && block >= min(first + CHUNK, K / 32u)) { continue; }
      var products = block_dot(blocks[i], i, m0, first, block);
      for (var r = 0u; r < ROWS; r++) {
        for (var m = 0u; m < M_TILE; m++) { sums[r][m] += products[r][m]; }
      }
    }
    if (first + CHUNK < K / 32u) { continue; }
    for (var m = 0u; m < M_TILE; m++) {
      if (step < CHUNKS) { x_scale[m] = norm_scale(m, index); }
      var rows: array<f32, ROWS>;
      for (var r = 0u; r < ROWS; r++) { rows[r] = sums[r][m]; }
      var kept = reduce_rows(rows, index);
      for (var k = 0u; k < KEPT; k++) {
        let r = index % LANES / (LANES / GROUPS) * KEPT + k;
        let output = (m * TURNS + turn_of(step)) * EACH + r % EACH;
        if (TEAM == 1u) {
          own[output][r / EACH] = kept[k] * x_scale[m];
        } else if (index % (LANES / GROUPS) == 0u) {
          partial[partial_of(index, output, r / EACH) + member / LANES] = kept[k] * x_scale[m];
        }
      }
    }
    sums = Sums();
  }
  if (TEAM > 1u) {
    workgroupBarrier();
    for (var o = 0u; o < OWN; o++) {
      for (var v = 0u; v < VALUES; v++) {
        let at = partial_of(index, min(o * TEAM + member, OUTPUTS - 1u), v);
        for (var p = 0u; p < PARTS; p++) { own[o][v] += partial[at + p]; }
      }
    }
  }
  return own;
}
