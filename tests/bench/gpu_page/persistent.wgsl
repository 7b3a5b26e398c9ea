// A chain of products, as those of a model's blocks, in one dispatch or in one a phase. Each phase needs all results of the
// one before it. What a workgroup hands to others carries its own flag: the block's number modulo 4 in the two lowest bits of
// a float. A reader waits until they are right, or gives up after SPINS reads.
// Each kind of phase has a place of its own, and each workgroup a row in every phase. So nobody can write a place that another
// still reads, and no value of four blocks before can pass for a new one.
// The phases of a block: 960 x 576, 576 x 576, 2 x 1536 x 576 (the pairs are added), 576 x 1536, with weights of 4 bits.
// Constants: THREADS (of a workgroup), GROUPS (the workgroups, at most 576), SPINS, LANES (of a subgroup).
struct Part { begin: u32, end: u32 } // the phases of the dispatch
@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read_write> handed: array<atomic<u32>>; // what is before each kind of phase: MOST values
@group(0) @binding(2) var<storage, read_write> gave_up: array<atomic<u32>>; // the phase + 1
@group(0) @binding(3) var<uniform> part: Part;

const MOST = 1536u;
const WORDS_OF_BLOCK = 442368u;
const MOST_WORDS = 192u / LANES; // of a row, for each lane
const MOST_READS = (MOST + THREADS - 1u) / THREADS;
var<workgroup> x: array<f32, MOST>; // value w + words * i belongs to nibble i of word w
var<workgroup> is_over: u32;

struct Product { rows: u32, columns: u32, pairs: u32, first: u32 } // pairs: 2 if rows lie in pairs; first: word
fn product_of(phase: u32) -> Product {
  let block = phase / 4u * WORDS_OF_BLOCK;
  switch (phase % 4u) {
    case 0u: { return Product(960u, 576u, 1u, block); }
    case 1u: { return Product(576u, 576u, 1u, block + 69120u); }
    case 2u: { return Product(1536u, 576u, 2u, block + 110592u); }
    default: { return Product(576u, 1536u, 1u, block + 331776u); }
  }
}

// Reads all values of a phase into x. The reads of an invocation are under way at the same time.
fn wait_for(phase: u32, columns: u32, index: u32) {
  var values: array<u32, MOST_READS>;
  for (var n = 0u;; n++) {
    var wrong = 0u;
    for (var i = 0u; i < MOST_READS; i++) {
      let at = i * THREADS + index;
      if (at < columns) {
        values[i] = atomicLoad(&handed[phase % 4u * MOST + at]);
        wrong |= values[i] ^ (phase / 4u);
      }
    }
    if ((wrong & 3u) == 0u) { break; }
    if (n >= SPINS) {
      is_over = 1u;
      atomicStore(&gave_up[0], phase + 1u);
      break;
    }
  }
  for (var i = 0u; i < MOST_READS; i++) {
    let at = i * THREADS + index;
    if (at < columns) { x[at] = bitcast<f32>(values[i] & 0xfffffffcu); }
  }
}

// A nibble in the lowest bits of 2^23 is that number plus the nibble.
fn of_nibble(nibble: u32) -> f32 { return bitcast<f32>(nibble | 0x4b000000u) - 8388615.5; }

fn dot8(word: u32, at: u32, step: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < 8u; i++) { sum += of_nibble((word >> (4u * i)) & 15u) * x[at + step * i]; }
  return sum;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32,
        @builtin(subgroup_invocation_id) lane: u32) {
  let own = index / LANES * GROUPS + group.x; // the rows of a phase are spread over the workgroups
  if (index == 0u) { is_over = atomicLoad(&gave_up[0]); } // who comes late need not wait in vain
  if (workgroupUniformLoad(&is_over) != 0u) { return; }
  for (var phase = part.begin; phase < part.end; phase++) {
    let product = product_of(phase);
    let words = product.columns / 8u;
    let row_words = words * product.pairs;
    // The weights of the first row do not depend on the phase before.
    var held: array<u32, MOST_WORDS>;
    for (var i = 0u; i < MOST_WORDS; i++) {
      let word = i * LANES + lane;
      if (own < product.rows && word < row_words) { held[i] = weights[product.first + own * row_words + word]; }
    }
    wait_for(phase, product.columns, index);
    if (workgroupUniformLoad(&is_over) != 0u) { return; }
    for (var row = own; row < product.rows; row += GROUPS * THREADS / LANES) {
      var sum = 0.0;
      for (var i = 0u; i < MOST_WORDS; i++) {
        let word = i * LANES + lane;
        if (word < row_words) {
          if (row != own) { held[i] = weights[product.first + row * row_words + word]; }
          sum += dot8(held[i], select(word, word - words, word >= words), words);
        }
      }
      sum = subgroupAdd(sum) * 0.02;
      if (lane == 0u) {
        let next = phase + 1u;
        let value = bitcast<u32>(sum / (1.0 + abs(sum))) & 0xfffffffcu;
        atomicStore(&handed[next % 4u * MOST + row], value | (next / 4u & 3u));
      }
    }
    // Who still computes is not disturbed by the reads of who waits: without this barrier a phase takes twice as long.
    workgroupBarrier();
  }
}
