// A chain of products, as those of a model's blocks, in one dispatch or in one a phase. Each phase needs all results of the
// one before it. What a workgroup hands to others carries its own flag: the phase's number modulo 4 in the two lowest bits of
// a float. A reader waits until they are right, or gives up after SPINS reads.
// The phases of a block: 960 x 576, 576 x 576, 3072 x 576, 576 x 1536, with weights of 4 bits.
// Constants: THREADS (of a workgroup), GROUPS (the workgroups), SPINS, LANES (of a subgroup).
struct Part { begin: u32, end: u32 } // the phases of the dispatch
@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read_write> handed: array<atomic<u32>>; // two places of MOST values, in turns
@group(0) @binding(2) var<storage, read_write> gave_up: array<atomic<u32>>; // the phase + 1
@group(0) @binding(3) var<uniform> part: Part;

const MOST = 3072u;
const WORDS_OF_BLOCK = 442368u;
const MOST_WORDS = 192u / LANES; // of a row, for each lane
var<workgroup> x: array<f32, 1536>;
var<workgroup> is_over: u32;

struct Product { rows: u32, columns: u32, before: u32, first: u32 } // before: values of the phase before; first: word
fn product_of(phase: u32) -> Product {
  let block = phase / 4u * WORDS_OF_BLOCK;
  switch (phase % 4u) {
    case 0u: { return Product(960u, 576u, 576u, block); }
    case 1u: { return Product(576u, 576u, 960u, block + 69120u); }
    case 2u: { return Product(3072u, 576u, 576u, block + 110592u); }
    default: { return Product(576u, 1536u, 3072u, block + 331776u); }
  }
}

fn awaited(phase: u32, i: u32) -> f32 {
  let place = (phase & 1u) * MOST + i;
  var value = atomicLoad(&handed[place]);
  for (var n = 0u; (value & 3u) != (phase & 3u); n++) {
    if (n >= SPINS) {
      is_over = 1u;
      atomicStore(&gave_up[0], phase + 1u);
      break;
    }
    value = atomicLoad(&handed[place]);
  }
  return bitcast<f32>(value & 0xfffffffcu);
}

fn dot8(word: u32, at: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < 8u; i++) { sum += (f32((word >> (4u * i)) & 15u) - 7.5) * x[at + i]; }
  return sum;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) index: u32,
        @builtin(subgroup_invocation_id) lane: u32) {
  let own = group.x * (THREADS / LANES) + index / LANES;
  if (index == 0u) { is_over = atomicLoad(&gave_up[0]); } // who comes late need not wait in vain
  if (workgroupUniformLoad(&is_over) != 0u) { return; }
  for (var phase = part.begin; phase < part.end; phase++) {
    let product = product_of(phase);
    let words = product.columns / 8u;
    // The weights of the first row do not depend on the phase before.
    var held: array<u32, MOST_WORDS>;
    for (var i = 0u; i < MOST_WORDS; i++) {
      let word = i * LANES + lane;
      if (own < product.rows && word < words) { held[i] = weights[product.first + own * words + word]; }
    }
    for (var i = index; i < product.columns; i += THREADS) {
      var value = awaited(phase, i);
      if (i + product.columns < product.before) { value += awaited(phase, i + product.columns); }
      x[i] = value;
    }
    if (workgroupUniformLoad(&is_over) != 0u) { return; }
    for (var row = own; row < product.rows; row += GROUPS * THREADS / LANES) {
      var sum = 0.0;
      for (var i = 0u; i < MOST_WORDS; i++) {
        let word = i * LANES + lane;
        if (word < words) {
          if (row != own) { held[i] = weights[product.first + row * words + word]; }
          sum += dot8(held[i], word * 8u);
        }
      }
      sum = subgroupAdd(sum) * 0.02;
      if (lane == 0u) {
        let value = bitcast<u32>(sum / (1.0 + abs(sum))) & 0xfffffffcu;
        atomicStore(&handed[((phase + 1u) & 1u) * MOST + row], value | ((phase + 1u) & 3u));
      }
    }
    workgroupBarrier(); // some devices run the invocations of a workgroup one after the other, from barrier to barrier
  }
}
