// Columns of several rows of x that another kernel has converted to integers (row_limbs.wgsl): neighbouring lanes read
// neighbouring addresses. Without NORM: the rows are already normalized.
#import limbs_dot
fn stage_columns(m0: u32, first: u32, index: u32) {}
fn cache_columns(lane: u32) {}
fn column_limbs(m0: u32, m: u32, i: u32, first: u32, block: u32) -> Column {
  let at = (m0 + m) * 5u * (K / 32u) + block;
  var scales = bitcast<vec4f>(x[at + 4u * (K / 32u)]);
  scales.x /= UNIT;
  return Column(x[at], x[at + K / 32u], x[at + 2u * (K / 32u)], x[at + 3u * (K / 32u)], bitcast<vec4u>(scales));
}
fn norm_scale(m: u32, index: u32) -> f32 { return 1.0; }
