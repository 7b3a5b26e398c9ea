// Follows a text that grows on the GPU, and guesses its next tokens: those that followed an earlier occurrence of its
// end (the same as PromptLookup of py_core/speculation/guesses.py). Runs after the samplers. A state of one row has
// sampled any number of tokens. A state of several rows has sampled the token after each row; it counts if all rows
// before it were guessed correctly. Then the kernel makes ROWS rows from the first one: the text's last token, and
// guesses. If the text follows a grammar, a token that alone may come next is the guess, and no guess is one that the
// grammar does not allow.
// Bindings: 0 state; 1 history: (slots, RING); 2 text; 3 records: RECORD words for each run since the host set `record`
// to 0: the number of new tokens, the tokens, and then WAITS if the text waits for the host to go on with its grammar;
// 4 states of grammars (py_core/backends/grammar_states.py).
// Constants: RING, ROWS, RECORD, MOST_MATCH, WORDS (of a mask), WORKGROUP (a power of two, at least ROWS, and at least as many
// as a grammar's state has exits). One workgroup.
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
@group(0) @binding(4) var<storage, read> grammars: array<u32>;

const AHEAD = 8u;  // places that an invocation reads together: a single workgroup must keep the memory busy

const WAITS = 0xffffffffu;
const NONE = 0xffffffffu;  // instead of a guess: no token is equal to it

var<workgroup> found: array<u32, WORKGROUP>;
var<workgroup> guesses: array<u32, ROWS>;
var<workgroup> places: array<u32, ROWS>;  // of the grammar's state behind each row's token, + 1
var<workgroup> next: atomic<u32>;

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
  let newest = select(0u, count - 1u, rows > 1u && count > 0u);  // the row whose token is the text's last one
  let grammar = state.rows[newest].grammar;
  let waits = state.rows[newest].waits;
  let length = text.length + count;
  let position = before + count;
  for (var i = lane; i < count; i += WORKGROUP) {
    let token = history[row.slot * RING + (before + 1u + i) % RING];
    text.tokens[length - count + i] = token;
    records[record * RECORD + 1u + i] = token;
  }
  if (lane == 0u) {
    records[record * RECORD] = count;
    records[record * RECORD + 1u + count] = select(0u, WAITS, waits == 1u);
  }
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
    guesses[lane] = last;
    if (lane > 0u && best > 0u) {
      // A text that has begun to repeat itself continues to do so.
      let place = best & 0xffffffu;
      guesses[lane] = text.tokens[place + 1u + (lane - 1u) % (length - 1u - place)];
    }
    places[lane] = 0u;
  }
  if (lane == 0u) { found[0] = grammar; }
  let follows = workgroupUniformLoad(&found[0]) != 0u;
  if (follows) { keep_to_grammar(lane, best > 0u); }
  if (lane < ROWS) {
    let guess = guesses[lane];
    row.token = select(guess, last, guess == NONE);
    row.position = position + lane;
    row.grammar = places[lane];
    row.waits = select(0u, waits, lane == 0u);
    history[row.slot * RING + row.position % RING] = row.token;
    text.fed[lane] = guess;
    state.rows[lane] = row;
  }
}

// Replace the guesses by tokens that alone may come next, and by NONE from the first one that the grammar does not allow, or
// behind which the host has to tell the state. found[0]: the place of the state behind the text, + 1.
fn keep_to_grammar(lane: u32, has_guesses: bool) {
  var at = workgroupUniformLoad(&found[0]);
  var guessed = has_guesses;  // no other token than the guesses has come
  for (var i = 1u; i < ROWS; i++) {
    let exits = select(0u, grammars[max(at, 1u) - 1u], at != 0u);
    let masks = select(0u, grammars[at], at != 0u);
    if (lane == 0u) {
      places[i - 1u] = at;
      atomicStore(&next, 0u);
    }
    var token = select(NONE, guesses[i], guessed && at != 0u);
    if (exits == 1u && masks == 0u) {
      let forced = grammars[at + 1u];
      guessed = guessed && token == forced;
      token = forced;
    }
    workgroupBarrier();
    if (lane == 0u) {
      guesses[i] = token;
      if (masks != 0u && token != NONE) {
        let keeps = grammars[masks - 1u + WORDS + token / 32u];
        if (((keeps >> (token % 32u)) & 1u) != 0u) { atomicStore(&next, at); }
      }
    }
    let exit = at + 1u + 2u * lane;
    if (lane < exits && grammars[exit] == token) { atomicStore(&next, grammars[exit + 1u]); }
    workgroupBarrier();
    if (lane == 0u) {
      found[0] = atomicLoad(&next);
      if (found[0] == 0u) { guesses[i] = NONE; }
    }
    at = workgroupUniformLoad(&found[0]);
  }
  if (lane == 0u) { places[ROWS - 1u] = at; }
}
