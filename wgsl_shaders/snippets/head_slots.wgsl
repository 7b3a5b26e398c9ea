// Adapters at the head's input, in slots that rows refer to from 1 on (py_core/adapters/head.py). A slot is a vector
// (count, odds, tau, temperature), 64 tokens, then 64 rows of K values, of which `count` are states of length 1. Each
// row of a pass has NEAR floats: its slot if its gate is open, else 0, then its neighbours' weights.
// Needs slots: array<vec4u>. Constants: K.
const MOST_NEIGHBOURS = 64u;
const SLOT_TOKENS = 1u;
const SLOT_ROWS = 17u;
const SLOT = SLOT_ROWS + MOST_NEIGHBOURS * K / 4u;
const NEAR = 1u + MOST_NEIGHBOURS;

fn slot_of(number: u32) -> u32 { return (number - 1u) * SLOT; }
fn slot_count(slot: u32) -> u32 { return min(slots[slot].x, MOST_NEIGHBOURS); }
fn slot_odds(slot: u32) -> f32 { return bitcast<f32>(slots[slot].y); }
fn slot_token(slot: u32, i: u32) -> u32 { return slots[slot + SLOT_TOKENS + i / 4u][i % 4u]; }
fn slot_quad(slot: u32, row: u32, quad: u32) -> vec4f {
  return bitcast<vec4f>(slots[slot + SLOT_ROWS + row * (K / 4u) + quad]);
}
