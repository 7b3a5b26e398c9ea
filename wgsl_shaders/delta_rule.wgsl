// The gated delta rule. For a row m at position t of its text, and each head:
//   G = the sum of rate * softplus(alpha + bias) from the page's beginning, S' = exp(G) S + sum over the page's rows j
//   before t of exp(G - G[j]) k[j]^T u[j]; u = sigmoid(beta) (v - k S'), y = q (S' + k^T u).
// q and k are divided by their lengths, q also by sqrt(SIZE). k, u and G of the row are kept in the state of its page. S is
// that of the page's beginning: the page's first row makes it from the state of the page before.
// Bindings: 0 state; 1 x: (MAX_ROWS, q and k of KEY_HEADS heads, v of HEADS); 2 alpha and 3 beta: (MAX_ROWS, HEADS); 4 rate
//           and bias: (2, HEADS); 5 state_table; 6 states: (states, HEADS, STRIDE): S (SIZE, SIZE), k (SIZE, PAGE), u (PAGE,
//           SIZE), G (PAGE); 7 y: (MAX_ROWS, HEADS, SIZE).
// Constants: KEY_HEADS, HEADS, SIZE, PAGE, MAX_PAGES.
// A workgroup has a head and goes through all rows in order, an invocation for each column of S. Dispatch (HEADS).
#import state
@group(0) @binding(0) var<storage, read> state: State;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> alpha: array<f32>;
@group(0) @binding(3) var<storage, read> beta: array<f32>;
@group(0) @binding(4) var<storage, read> weights: array<f32>;
@group(0) @binding(5) var<storage, read> state_table: array<u32>;
@group(0) @binding(6) var<storage, read_write> states: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

const WIDTH = (2u * KEY_HEADS + HEADS) * SIZE;
const K_AT = SIZE * SIZE;
const U_AT = K_AT + PAGE * SIZE;
const G_AT = U_AT + PAGE * SIZE;
const STRIDE = G_AT + PAGE;

var<workgroup> q: array<f32, SIZE>;
var<workgroup> k: array<f32, SIZE>;
var<workgroup> seen: array<f32, PAGE>;
var<workgroup> asked: array<f32, PAGE>;

// The column of S at the beginning of a page, from the state of the page before.
fn begin_page(here: u32, before: u32, column: u32) {
  let last = states[before + G_AT + PAGE - 1u];
  var u: array<f32, PAGE>;
  for (var j = 0u; j < PAGE; j++) {
    u[j] = exp(last - states[before + G_AT + j]) * states[before + U_AT + j * SIZE + column];
  }
  for (var i = 0u; i < SIZE; i++) {
    var sum = exp(last) * states[before + i * SIZE + column];
    for (var j = 0u; j < PAGE; j++) { sum += states[before + K_AT + i * PAGE + j] * u[j]; }
    states[here + i * SIZE + column] = sum;
  }
}

@compute @workgroup_size(SIZE)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) column: u32) {
  let head = group.x;
  for (var m = 0u; m < state.count; m++) {
    let position = state.rows[m].position;
    let place = state.rows[m].slot * MAX_PAGES + position / PAGE;
    let row = position % PAGE;
    let here = (state_table[place] * HEADS + head) * STRIDE;
    storageBarrier();  // k and G of the row before
    workgroupBarrier();
    let from_x = m * WIDTH + head % KEY_HEADS * SIZE + column;
    q[column] = x[from_x];
    k[column] = x[from_x + KEY_HEADS * SIZE];
    if (row == 0u) {
      if (position > 0u) {
        begin_page(here, (state_table[place - 1u] * HEADS + head) * STRIDE, column);
      } else {
        for (var i = 0u; i < SIZE; i++) { states[here + i * SIZE + column] = 0.0; }
      }
    }
    workgroupBarrier();

    // All dot products with S, and the lengths of q and k.
    var by_k = 0.0;
    var by_q = 0.0;
    var squares = vec3f();
    for (var i = 0u; i < SIZE; i++) {
      let s = states[here + i * SIZE + column];
      by_k += k[i] * s;
      by_q += q[i] * s;
      squares += vec3f(k[i] * k[i], q[i] * q[i], k[i] * q[i]);
    }
    let of_k = inverseSqrt(squares.x + 1e-6);
    let of_q = inverseSqrt((squares.y + 1e-6) * f32(SIZE));
    let open = alpha[m * HEADS + head] + weights[HEADS + head];
    var decay = weights[head] * select(log(1.0 + exp(open)), open, open > 20.0);
    if (row > 0u) { decay += states[here + G_AT + row - 1u]; }
    for (var j = column; j < row; j += SIZE) {
      var dots = vec2f();
      for (var i = 0u; i < SIZE; i++) { dots += vec2f(k[i], q[i]) * states[here + K_AT + i * PAGE + j]; }
      dots *= exp(decay - states[here + G_AT + j]);
      seen[j] = dots.x * of_k;
      asked[j] = dots.y * of_q;
    }
    states[here + K_AT + column * PAGE + row] = k[column] * of_k;
    if (column == 0u) { states[here + G_AT + row] = decay; }
    workgroupBarrier();

    by_k *= exp(decay) * of_k;
    by_q *= exp(decay) * of_q;
    for (var j = 0u; j < row; j++) {
      let other = states[here + U_AT + j * SIZE + column];
      by_k += seen[j] * other;
      by_q += asked[j] * other;
    }
    let v = x[m * WIDTH + (2u * KEY_HEADS + head) * SIZE + column];
    let u = (v - by_k) / (1.0 + exp(-beta[m * HEADS + head]));
    states[here + U_AT + row * SIZE + column] = u;
    y[(m * HEADS + head) * SIZE + column] = by_q + squares.z * of_k * of_q * u;
  }
}
