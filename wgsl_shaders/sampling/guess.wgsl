// Follows a text that grows on the GPU, and guesses its next tokens: those that followed an earlier occurrence of its
// end (the same as PromptLookup of py_core/speculation/guesses.py). Runs after the samplers. A state of one row has
// sampled any number of tokens. A state of several rows has sampled the token after each row; it counts if all rows
// before it were guessed correctly. Then the kernel makes ROWS rows from the first one: the text's last token, and
// guesses.
// Bindings: 0 state; 1 history: (slots, RING); 2 text; 3 records: RECORD words for each run since the host set `record`
// to 0: the number of new tokens, then the tokens.
// Constants: RING, ROWS, RECORD, MOST_MATCH, WORKGROUP (a power of two, at least ROWS). One workgroup.
#import state
struct Text {
  record: u32,           // the next one's number
  length: u32,           // tokens
  position: u32,         // of the last one, in its sequence
  unused: u32,
  fed: array<u32, 8>,    // the rows' tokens, as this kernel made them
  tokens: array<u32>,
}
@group(0) @binding(0) var<storage, read_write> state: State;
@group(0) @binding(1) var<storage, read_write> history: array<u32>;
@group(0) @binding(2) var<storage, read_write> text: Text;
@group(0) @binding(3) var<storage, read_write> records: array<u32>;

const AHEAD = 8u;  // places that an invocation reads together: a single workgroup must keep the memory busy

var<workgroup> found: array<u32, WORKGROUP>;

// The number of tokens up to this place that match those up to the text's end; at least the last one does.
fn alike(place: u32, length: u32) -> u32 {
  var match_length = 1u;
  while (match_length < min(MOST_MATCH, place + 1u)
         && text.tokens[place - match_length] == text.tokens[length - 1u - match_length]) { match_length++; }
  return match_length;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lane: u32) {
  var row = state.rows[0];
  let record = text.record;
  let before = text.position;
  let rows = min(state.count, ROWS);
  found[lane] = 0u;
  if (lane + 1u < rows) { found[lane] = u32(state.rows[lane].token == text.fed[lane + 1u]); }
  workgroupBarrier();
  var count = row.position - before;
  while (count > 0u && count < rows && found[count - 1u] == 1u) { count++; }
  let length = text.length + count;
  let position = before + count;
  for (var i = lane; i < count; i += WORKGROUP) {
    let token = history[row.slot * RING + (before + 1u + i) % RING];
    text.tokens[length - count + i] = token;
    records[record * RECORD + 1u + i] = token;
  }
  if (lane == 0u) { records[record * RECORD] = count; }
  storageBarrier();
  workgroupBarrier();

  // The longest match, and among equals the newest, as one number.
  let last = text.tokens[length - 1u];
  var best = 0u;
  for (var first = lane; first + 1u < length; first += AHEAD * WORKGROUP) {
    var read: array<u32, AHEAD>;
    for (var j = 0u; j < AHEAD; j++) { read[j] = text.tokens[min(first + j * WORKGROUP, length - 1u)]; }
    for (var j = 0u; j < AHEAD; j++) {
      let place = first + j * WORKGROUP;
      if (place + 1u < length && read[j] == last) {
        best = max(best, (alike(place, length) << 24u) | place);
      }
    }
  }
  found[lane] = best;
  for (var stride = WORKGROUP / 2u; stride > 0u; stride /= 2u) {
    workgroupBarrier();
    if (lane < stride) { found[lane] = max(found[lane], found[lane + stride]); }
  }
  best = workgroupUniformLoad(&found[0]);

  if (lane == 0u) {
    text.record = record + 1u;
    text.length = length;
    text.position = position;
  }
  if (lane < ROWS) {
    row.token = last;
    row.position = position + lane;
    if (lane > 0u && best > 0u) {
      // A text that has begun to repeat itself continues to do so.
      let place = best & 0xffffffu;
      row.token = text.tokens[place + 1u + (lane - 1u) % (length - 1u - place)];
    }
    history[row.slot * RING + row.position % RING] = row.token;
    text.fed[lane] = row.token;
    state.rows[lane] = row;
  }
}
