// Reads a page for attention: a quad (4 values) of a key (which 0) or of a value (1), and its conversion to floats.
// They are separate, so that several reads can be in flight. Here all pages are hot; kv_quads_demoted.wgsl reads those
// of all tiers.
// Needs kv: array<vec4f>.
alias Quad = vec4f;
fn read_quad(page: u32, position: u32, head: u32, which: u32, quad: u32) -> Quad {
  return kv[index_in(page, position, head, which) + quad];
}
fn floats_of(quad: Quad, which: u32) -> vec4f { return quad; }
fn quad_of(floats: vec4f) -> Quad { return floats; }
