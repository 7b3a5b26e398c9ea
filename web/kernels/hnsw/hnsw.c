// HNSW, an index for nearest-neighbour search (arXiv 1603.09320), over rows that Python keeps in the same memory.
//
// py_core/hnsw/hnsw_graph.py has the layout, py_core/hnsw/numpy_kernel.py the same steps in numpy. Both give the same
// graph and the same results, bit for bit. So sums are added in one fixed order, without fused or relaxed instructions,
// and "nearest first" sorts by distance, then by id, then by row. The module has no data of its own: it runs in any
// memory that it is given, such as Pyodide's.
#include <stdint.h>
#include <wasm_simd128.h>

typedef uint32_t u32;
typedef int32_t i32;
typedef float f32;
#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name
#define INLINE static inline __attribute__((always_inline))

enum { COSINE = 0, DOT = 1, L2 = 2 };
enum { CHUNK = 256 };                  // rows, or slots of upper levels, in a chunk
#define LARGEST 1e16f                  // the largest component: sums of squares still fit

typedef struct { f32 distance; u32 row; } Near;

typedef struct {
  u32 size;             // floats of a row's vector: a multiple of 16, zeros at its end
  u32 row_bytes;
  u32 metric;
  u32 m, m0;            // links of a row at levels above 0, at level 0
  u32 ef_construction;
  u32 expansion;        // candidates per step
  u32 rows;
  i32 entry;            // the row at which searches begin, or -1
  i32 top;              // its level
  const u32 *chunks;    // addresses of CHUNK rows each
  const u32 *uppers;    // addresses of CHUNK slots each: count, links[m]
  const uint8_t *alive; // one byte per row
  u32 *visited;         // one bit per row
  Near *todo, *found;   // two heaps with room for each row and one more
  f32 *query;
  int64_t *ids;         // the results of a search, nearest first
  f32 *distances;
  u32 *batch;           // room for the links of `expansion` rows
} Graph;

// The record that follows a row's vector. links[0] is the number of links.
typedef struct {
  int64_t id;
  i32 level;  // -1: not in the graph
  i32 slot;   // of its links at level 1; those of level 2 are in the next slot
  i32 twin;   // the next row with the same vector, or -1: only one of such rows is in the graph
  i32 links[];
} Node;

INLINE f32 *vector_of(const Graph *g, u32 row) {
  return (f32 *)(g->chunks[row / CHUNK] + row % CHUNK * g->row_bytes);
}
INLINE Node *node_of(const Graph *g, u32 row) { return (Node *)(vector_of(g, row) + g->size); }
INLINE i32 *links_of(const Graph *g, u32 row, u32 level) {
  Node *node = node_of(g, row);
  if (level == 0) return node->links;
  const u32 slot = (u32)node->slot + level - 1;
  return (i32 *)g->uppers[slot / CHUNK] + slot % CHUNK * (g->m + 1);
}

// ---- distances ----
INLINE v128_t load(const f32 *p) { return wasm_v128_load(p); }
INLINE v128_t add(v128_t a, v128_t b) { return wasm_f32x4_add(a, b); }
INLINE v128_t square(v128_t a) { return wasm_f32x4_mul(a, a); }

INLINE f32 sum16(v128_t a, v128_t b, v128_t c, v128_t d) {
  v128_t sum = add(add(a, b), add(c, d));
  sum = add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(sum, 0) + wasm_f32x4_extract_lane(sum, 1);
}

static f32 dot(const f32 *a, const f32 *b, u32 size) {
  v128_t s = wasm_f32x4_const_splat(0), t = s, u = s, v = s;
  for (u32 i = 0; i < size; i += 16) {
    s = add(s, wasm_f32x4_mul(load(a + i), load(b + i)));
    t = add(t, wasm_f32x4_mul(load(a + i + 4), load(b + i + 4)));
    u = add(u, wasm_f32x4_mul(load(a + i + 8), load(b + i + 8)));
    v = add(v, wasm_f32x4_mul(load(a + i + 12), load(b + i + 12)));
  }
  return sum16(s, t, u, v);
}

static f32 squared_distance(const f32 *a, const f32 *b, u32 size) {
  v128_t s = wasm_f32x4_const_splat(0), t = s, u = s, v = s;
  for (u32 i = 0; i < size; i += 16) {
    s = add(s, square(wasm_f32x4_sub(load(a + i), load(b + i))));
    t = add(t, square(wasm_f32x4_sub(load(a + i + 4), load(b + i + 4))));
    u = add(u, square(wasm_f32x4_sub(load(a + i + 8), load(b + i + 8))));
    v = add(v, square(wasm_f32x4_sub(load(a + i + 12), load(b + i + 12))));
  }
  return sum16(s, t, u, v);
}

static u32 equal(const f32 *a, const f32 *b, u32 size) {  // bit by bit
  v128_t differ = wasm_i32x4_const_splat(0);
  for (u32 i = 0; i < size; i += 4) differ = wasm_v128_or(differ, wasm_v128_xor(load(a + i), load(b + i)));
  return !wasm_v128_any_true(differ);
}

INLINE f32 distance(const Graph *g, const f32 *a, const f32 *b) {
  if (g->metric == L2) return squared_distance(a, b, g->size);
  const f32 product = dot(a, b, g->size);
  return g->metric == COSINE ? 1 - product : -product;
}

// Prepares g->query: scales it to length 1 for COSINE, unless it is zero. Returns 0 if a component cannot be compared:
// NaN, infinity or more than LARGEST.
u32 EXPORT(prepare)(const Graph *g) {
  f32 *query = g->query;
  v128_t most = wasm_f32x4_const_splat(0), fine = wasm_i32x4_const_splat(-1);
  for (u32 i = 0; i < g->size; i += 4) {
    const v128_t size = wasm_f32x4_abs(load(query + i));
    fine = wasm_v128_and(fine, wasm_f32x4_le(size, wasm_f32x4_const_splat(LARGEST)));  // false for NaN
    most = wasm_f32x4_max(most, size);
  }
  if (!wasm_i32x4_all_true(fine)) return 0;
  if (g->metric != COSINE) return 1;
  most = wasm_f32x4_max(most, wasm_i32x4_shuffle(most, most, 2, 3, 0, 1));
  most = wasm_f32x4_max(most, wasm_i32x4_shuffle(most, most, 1, 0, 3, 2));
  const f32 largest = wasm_f32x4_extract_lane(most, 0);
  if (largest == 0) return 1;
  // Divides by the largest component first, so that no square is too small or too large.
  for (u32 i = 0; i < g->size; i++) query[i] /= largest;
  const f32 length = __builtin_sqrtf(dot(query, query, g->size));
  for (u32 i = 0; i < g->size; i++) query[i] /= length;
  return 1;
}

// ---- heaps: the top is the nearest (away = 0) or the farthest (away = 1) ----
INLINE u32 nearer(const Graph *g, Near a, Near b) {
  if (a.distance != b.distance) return a.distance < b.distance;
  const int64_t first = node_of(g, a.row)->id, second = node_of(g, b.row)->id;
  return first != second ? first < second : a.row < b.row;
}
INLINE u32 above(const Graph *g, Near a, Near b, u32 away) { return away ? nearer(g, b, a) : nearer(g, a, b); }

INLINE void push(const Graph *g, Near *heap, u32 *count, Near x, u32 away) {
  u32 at = (*count)++;
  while (at && above(g, x, heap[(at - 1) / 2], away)) {
    heap[at] = heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap[at] = x;
}

INLINE Near pop(const Graph *g, Near *heap, u32 *count, u32 away) {
  const Near top = heap[0], last = heap[--*count];
  u32 at = 0;
  for (u32 child; (child = 2 * at + 1) < *count; at = child) {
    if (child + 1 < *count && above(g, heap[child + 1], heap[child], away)) child++;
    if (!above(g, heap[child], last, away)) break;
    heap[at] = heap[child];
  }
  heap[at] = last;
  return top;
}

// Turns g->found, a heap with the farthest on top, into a sorted list, nearest first.
static void sort(const Graph *g, u32 count) {
  for (u32 left = count; left;) {
    const Near farthest = pop(g, g->found, &left, 1);
    g->found[left] = farthest;
  }
}

// ---- searching ----
INLINE u32 visit(const Graph *g, u32 row) {  // 1 the first time
  const u32 bit = 1u << row % 32, before = g->visited[row / 32];
  g->visited[row / 32] = before | bit;
  return !(before & bit);
}
static void visit_none(const Graph *g) { __builtin_memset(g->visited, 0, (g->rows + 31) / 32 * 4); }

INLINE void keep(const Graph *g, u32 *found, u32 limit, Near x) {
  if (*found == limit && !nearer(g, x, g->found[0])) return;
  push(g, g->found, found, x, 1);
  if (*found > limit) pop(g, g->found, found, 1);
}

// Finds the ef nearest rows of a level from `entry` on, and sorts them into g->found. Returns their number. With
// `allowed` it finds only rows whose byte in it is not 0, twins included; without it any row of the graph.
static u32 search_level(const Graph *g, const f32 *query, u32 entry, u32 level, u32 ef, const uint8_t *allowed) {
  u32 found = 0, todo = 0, batch = 1;
  visit_none(g);
  visit(g, entry);
  g->batch[0] = entry;
  for (;;) {
    for (u32 i = 0; i < batch; i++) {
      const Near x = {distance(g, query, vector_of(g, g->batch[i])), g->batch[i]};
      if (found == ef && !nearer(g, x, g->found[0])) continue;
      push(g, g->todo, &todo, x, 0);
      if (!allowed) keep(g, &found, ef, x);
      else
        for (i32 row = (i32)x.row; row >= 0; row = node_of(g, (u32)row)->twin)
          if (allowed[row]) keep(g, &found, ef, (Near){x.distance, (u32)row});
    }
    u32 taken = batch = 0;
    for (; taken < g->expansion && todo && !(found == ef && nearer(g, g->found[0], g->todo[0])); taken++) {
      const i32 *links = links_of(g, pop(g, g->todo, &todo, 0).row, level);
      for (i32 i = 1; i <= links[0]; i++)
        if (visit(g, (u32)links[i])) g->batch[batch++] = (u32)links[i];
    }
    if (!taken) break;
  }
  sort(g, found);
  return found;
}

// Descends from the entry point to the level above `level`: each search begins at the nearest row of the level above.
// Returns the last one.
static u32 descend(const Graph *g, const f32 *query, i32 level) {
  u32 at = (u32)g->entry;
  for (i32 l = g->top; l > level; l--) {
    search_level(g, query, at, (u32)l, 1, 0);
    at = g->found[0].row;
  }
  return at;
}

static u32 tell(const Graph *g, u32 found, u32 k) {
  if (found > k) found = k;
  for (u32 i = 0; i < found; i++) {
    g->ids[i] = node_of(g, g->found[i].row)->id;
    g->distances[i] = g->found[i].distance;
  }
  return found;
}

// Finds the k nearest rows to g->query, which is prepared, through the graph. Returns their number.
u32 EXPORT(search)(const Graph *g, u32 k, u32 ef, const uint8_t *allowed) {
  if (g->entry < 0) return 0;
  return tell(g, search_level(g, g->query, descend(g, g->query, 0), 0, ef, allowed), k);
}

// The same, by comparing each row.
u32 EXPORT(scan)(const Graph *g, u32 k, const uint8_t *allowed) {
  u32 found = 0;
  for (u32 row = 0; row < g->rows; row++)
    if (allowed[row]) keep(g, &found, k, (Near){distance(g, g->query, vector_of(g, row)), row});
  sort(g, found);
  return tell(g, found, k);
}

// ---- building ----
// Chooses a row's links from g->found (`count` candidates, nearest to the row first): algorithm 4. It leaves out a
// candidate that is nearer to a chosen link than to the row. Fewer candidates than `limit` are all kept.
static void select_links(const Graph *g, u32 count, u32 limit, i32 *links) {
  u32 chosen = 0;
  for (u32 i = 0; i < count && chosen < limit; i++) {
    const Near x = g->found[i];
    u32 j = 1;
    if (count >= limit)
      while (j <= chosen && distance(g, vector_of(g, x.row), vector_of(g, (u32)links[j])) >= x.distance) j++;
    if (j > chosen || count < limit) links[++chosen] = (i32)x.row;
  }
  links[0] = (i32)chosen;
}

INLINE u32 limit_of(const Graph *g, u32 level) { return level ? g->m : g->m0; }

INLINE void consider(const Graph *g, u32 from, u32 row, u32 *count) {
  push(g, g->found, count, (Near){distance(g, vector_of(g, from), vector_of(g, row)), row}, 1);
}

static void link_back(const Graph *g, u32 row, u32 other, u32 level) {
  i32 *links = links_of(g, row, level);
  if ((u32)links[0] < limit_of(g, level)) {
    links[++links[0]] = (i32)other;
    return;
  }
  u32 count = 0;
  for (i32 i = 1; i <= links[0]; i++) consider(g, row, (u32)links[i], &count);
  consider(g, row, other, &count);
  sort(g, count);
  select_links(g, count, limit_of(g, level), links);
}

// Inserts a stored row into the graph: algorithm 1. The caller has set its level and slot.
void EXPORT(link)(Graph *g, u32 row) {
  const f32 *vector = vector_of(g, row);
  Node *node = node_of(g, row);
  const i32 level = node->level, joined = level < g->top ? level : g->top;
  if (g->entry >= 0) {
    const f32 own = distance(g, vector, vector);
    u32 at = descend(g, vector, level), count = 0;
    for (i32 l = joined; l >= 0; l--) {
      count = search_level(g, vector, at, (u32)l, g->ef_construction, 0);
      at = g->found[0].row;
      select_links(g, count, g->m, links_of(g, row, (u32)l));
    }
    for (u32 i = 0; i < count; i++) {
      const Near x = g->found[i];
      if (x.distance != own || !g->alive[x.row] || !equal(vector, vector_of(g, x.row), g->size)) continue;
      node->twin = node_of(g, x.row)->twin;
      node_of(g, x.row)->twin = (i32)row;
      node->level = -1;
      node->links[0] = 0;
      return;
    }
    for (i32 l = joined; l >= 0; l--) {
      const i32 *links = links_of(g, row, (u32)l);
      for (i32 i = 1; i <= links[0]; i++) link_back(g, (u32)links[i], row, (u32)l);
    }
  }
  if (level > g->top) {
    g->entry = (i32)row;
    g->top = level;
  }
}

INLINE u32 has(const i32 *links, u32 row) {
  for (i32 i = 1; i <= links[0]; i++)
    if ((u32)links[i] == row) return 1;
  return 0;
}

INLINE u32 has_dead(const Graph *g, const i32 *links) {
  for (i32 i = 1; i <= links[0]; i++)
    if (!g->alive[links[i]]) return 1;
  return 0;
}

// Prepares the removal of dead rows: replaces links of the living rows first .. last - 1 to dead rows by links to the
// rows behind these, in both directions.
void EXPORT(bridge)(const Graph *g, u32 first, u32 last) {
  for (u32 row = first; row < last; row++) {
    const i32 top = g->alive[row] ? node_of(g, row)->level : -1;
    for (i32 l = 0; l <= top; l++) {
      const u32 level = (u32)l;
      i32 *links = links_of(g, row, level);
      if (!has_dead(g, links)) continue;
      u32 count = 0, passed = 1;
      visit_none(g);
      visit(g, row);
      g->todo[0].row = row;  // g->todo: this row, and the dead ones on the way
      for (u32 i = 0; i < passed && count < g->ef_construction; i++) {
        const i32 *behind = links_of(g, g->todo[i].row, level);
        for (i32 j = 1; j <= behind[0]; j++) {
          const u32 other = (u32)behind[j];
          if (!visit(g, other)) continue;
          if (g->alive[other]) consider(g, row, other, &count);
          else g->todo[passed++].row = other;
        }
      }
      sort(g, count);
      select_links(g, count, limit_of(g, level), links);
      for (i32 i = 1; i <= links[0]; i++)
        if (!has(links_of(g, (u32)links[i], level), row)) link_back(g, (u32)links[i], row, level);
    }
  }
}
