// Recodes pages that filled up long ago in fewer bits (pages.h).
#include "pages.h"

// Rounds a float to the nearest half, clamped to the largest.
static uint16_t half_of(f32 x) {
  const u32 sign = __builtin_bit_cast(u32, x) >> 16 & 0x8000;
  f32 size = sign ? -x : x;
  if (!(size < 65504.0f)) size = 65504.0f;
  // The exponents' biases differ by 112; the remaining bits are rounded.
  const u32 bits = __builtin_bit_cast(u32, size * 1.9259299443872359e-34f);
  return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
}
static f32 of_half(uint16_t half) { return wasm_f32x4_extract_lane(halves4(wasm_i16x8_splat((int16_t)half)), 0); }

// Four stored numbers of a plane, for `outer` o: those of the inner indices i .. i + 3.
static void stored4(u32 form, const uint8_t *data, u32 room, u32 o, u32 i, i32 *out) {
  const u32 quad = o / 4 * (room / 4) + i / 4, pair = o / 8 * (room / 4) + i / 4, lane = o % 4 * 4, second = o / 4 % 2;
  for (u32 j = 0; j < 4; j++) {
    const uint8_t *one = data + pair * 32 + second * 16 + lane + j, *two = data + quad * 32 + lane + j;
    if (form == TWO_LIMBS && WHOLE(2)) out[j] = *(const int16_t *)(data + o / 4 * room * 8 + (i + j) / 2 * 16 + lane + j % 2 * 2);
    else if (form == TWO_LIMBS) out[j] = 128 * (int8_t)two[0] + (int8_t)two[16];
    else if (form == HALF_BYTES) out[j] = data[pair * 16 + lane + j] >> 4 * second & 15;
    else out[j] = (int8_t)one[0];
  }
}

// Recodes a plane of keys (outer: positions, inner: dims) or of values (the other way round) as codes up to `most`,
// with a scale and an offset for each inner index. If the source has limbs, its scales are per outer index or per inner
// index.
typedef struct { u32 form; const uint8_t *data; const f32 *of_outer, *of_inner; const uint16_t *halves; } Plane;

static void recode(Plane from, u32 form, u32 outer, u32 room, uint8_t *to, uint16_t *halves) {
  const i32 most = form == HALF_BYTES ? 15 : 127;
  f32 numbers[MOST_HEAD_DIM][4];
  for (u32 i = 0; i < room; i += 4) {
    f32 least[4], largest[4], factor[4];
    for (u32 o = 0; o < outer; o++) {
      i32 whole[4];
      stored4(from.form, from.data, room, o, i, whole);
      for (u32 j = 0; j < 4; j++) {
        f32 x = (f32)whole[j];
        if (from.halves) x = x * of_half(from.halves[i + j]) + of_half(from.halves[room + i + j]);
        else x *= from.of_outer ? from.of_outer[o] : from.of_inner[i + j];
        numbers[o][j] = x;
        if (!o || x < least[j]) least[j] = x;
        if (!o || x > largest[j]) largest[j] = x;
      }
    }
    for (u32 j = 0; j < 4; j++) {
      halves[room + i + j] = half_of(least[j]);
      least[j] = of_half(halves[room + i + j]);
      halves[i + j] = half_of((largest[j] - least[j]) / (f32)most);
      const f32 scale = of_half(halves[i + j]);
      factor[j] = scale > 0 ? 1 / scale : 0;
    }
    for (u32 o = 0; o < outer; o++)
      for (u32 j = 0; j < 4; j++) {
        const f32 x = (numbers[o][j] - least[j]) * factor[j] + 0.5f;
        const i32 code = x > 0 ? (x < (f32)most + 0.5f ? (i32)x : most) : 0;
        const u32 pair = o / 8 * (room / 4) + i / 4, lane = o % 4 * 4 + j, second = o / 4 % 2;
        if (form == BYTES) to[pair * 32 + second * 16 + lane] = (uint8_t)code;
        else if (second) to[pair * 16 + lane] |= (uint8_t)(code << 4);
        else to[pair * 16 + lane] = (uint8_t)code;
      }
  }
}

// Writes a copy of a page of each head of each layer in another tier.
// a: source, target (of the first head of the first layer), the tiers and the bytes from head to head of both, heads, layers, bytes
//    from layer to layer, head_dim, limbs of a HOT page
void demote(const Op *op, const Context *c) {
  const u32 *a = op->a, heads = a[6], size = a[9];
  const u32 source_form = a[2] == HOT ? a[10] : a[2] == WARM ? BYTES : HALF_BYTES, form = a[3] == WARM ? BYTES : HALF_BYTES;
  const u32 source_plane = PAGE * size * (source_form == HALF_BYTES ? 1 : source_form == TWO_LIMBS ? 4 : 2) / 2;
  const u32 plane = PAGE * size / (form == BYTES ? 1 : 2);
  for (u32 piece = c->worker; piece < heads * a[7]; piece += c->workers) {
    const u32 head = piece % heads, layer = piece / heads;
    const uint8_t *from = at(a[0] + layer * a[8] + head * a[4]);
    uint8_t *to = at(a[1] + layer * a[8] + head * a[5]);
    const f32 *scales = (f32 *)(from + 2 * source_plane);
    const uint16_t *halves = a[2] == HOT ? 0 : (uint16_t *)scales;
    uint16_t *out = (uint16_t *)(to + 2 * plane);
    recode((Plane){source_form, from, scales, 0, halves}, form, PAGE, size, to, out);
    recode((Plane){source_form, from + source_plane, 0, scales + 2 * PAGE, halves ? halves + 2 * size : 0}, form, size, PAGE,
           to + plane, out + 2 * size);
  }
}
