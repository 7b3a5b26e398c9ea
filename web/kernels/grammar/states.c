// Frames, configs and states of a grammar, and the step from a state by a byte.
#include "grammar.h"

enum { MOST_CONFIGS = 4096, MOST_STATES = 1 << 20, MOST_FOLLOWED = 8 };

static Config gathered[MOST_CONFIGS];
static struct { u32 count, accepts; } gathering;

INLINE u32 mixed(u32 hash, u32 value) {
  hash = (hash ^ value) * 0x9E3779B1u;
  return hash ^ hash >> 15;
}

// Make room for one more of the items.
static int room_for(Grammar *g, void **items, u32 used, u32 *room, u32 size) {
  if (used < *room) return 1;
  const u32 more = *room ? *room * 2 : 64;
  void *memory = grown(&g->owner, *items, used * size, more * size);
  if (!memory) return !(g->failed = 1);
  *items = memory;
  *room = more;
  return 1;
}
#define ROOM(g, name) room_for(g, (void **)&(g)->name, (g)->name##_used, &(g)->name##_room, sizeof *(g)->name)

// ---- what is interned: items by their hash ----
typedef u32 Hash(const Grammar *g, u32 item);
typedef int Same(const Grammar *g, u32 item, const void *wanted);

// The slot of the item that is wanted, with its number + 1; or, with 0, where it belongs. Null if there is no memory.
INLINE u32 *slot_of(Grammar *g, Slots *table, u32 used, u32 hash, const void *wanted, Hash *hash_of, Same *is_it) {
  if (2 * used >= table->room) {
    const u32 room = table->room ? 2 * table->room : 128;
    u32 *slots = take(&g->owner, 4 * room);
    if (!slots) return g->failed = 1, (u32 *)0;
    for (u32 i = 0; i < used; i++) {
      u32 at = hash_of(g, i) & (room - 1);
      while (slots[at]) at = (at + 1) & (room - 1);
      slots[at] = i + 1;
    }
    give_back(&g->owner, table->slots);
    *table = (Slots){slots, room};
  }
  u32 at = hash & (table->room - 1);
  while (table->slots[at] && !is_it(g, table->slots[at] - 1, wanted)) at = (at + 1) & (table->room - 1);
  return table->slots + at;
}

// ---- frames ----
static u32 hash_frame(const Frame *f) { return mixed(mixed(mixed(1, f->node), f->count), f->parent); }
static u32 frame_hash(const Grammar *g, u32 frame) { return hash_frame(g->frames + frame); }
static int is_frame(const Grammar *g, u32 frame, const void *wanted) {
  const Frame *one = g->frames + frame, *other = wanted;
  return one->node == other->node && one->count == other->count && one->parent == other->parent;
}

u32 frame_of(Grammar *g, u32 node, u32 count, u32 parent) {
  const Frame wanted = {node, count, parent};
  u32 *slot = slot_of(g, &g->frame_slots, g->frames_used, hash_frame(&wanted), &wanted, frame_hash, is_frame);
  if (!slot) return NONE;
  if (*slot) return *slot - 1;
  if (!ROOM(g, frames)) return NONE;
  g->frames[g->frames_used] = wanted;
  *slot = ++g->frames_used;
  return g->frames_used - 1;
}

// ---- configs ----
static struct { u32 round, place; } seen[4 * MOST_CONFIGS];
static u32 rounds;

static u32 config_hash(u32 hash, const Config *c) {
  return mixed(mixed(mixed(mixed(hash, c->node), c->at), c->count), c->frame);
}
static int is_same(const Config *a, const Config *b) {
  return a->node == b->node && a->at == b->at && a->count == b->count && a->frame == b->frame;
}

static void begin_gathering(void) {
  gathering.count = gathering.accepts = 0;
  rounds++;
}

// Returns 0 if it is there already.
static int gather(Grammar *g, Config config) {
  u32 at = config_hash(0, &config) % (4 * MOST_CONFIGS);
  for (; seen[at].round == rounds; at = (at + 1) % (4 * MOST_CONFIGS))
    if (is_same(gathered + seen[at].place, &config)) return 0;
  if (gathering.count == MOST_CONFIGS || ++g->work > MOST_WORK) return !(g->failed = 1);
  seen[at].round = rounds;
  seen[at].place = gathering.count;
  gathered[gathering.count++] = config;
  return 1;
}

// Add the configs that begin at a node, with those behind what may be empty.
static void enter(Grammar *g, u32 node, u32 frame, u32 depth);

static void again(Grammar *g, u32 node, u32 count, u32 frame, u32 depth) {
  const Node *n = g->nodes + node;
  // Without an end only the least number counts.
  if (n->c == NONE && count > n->b) count = n->b;
  // A body that is empty comes back with the same count, or with one of many.
  if (!gather(g, (Config){node, 0, count, frame})) return;
  if (n->c == NONE || count < n->c) {
    const u32 inner = frame_of(g, node, count + 1, frame);
    if (inner != NONE) enter(g, n->a, inner, depth);
  }
  if (count >= n->b) enter(g, n->d, frame, depth);
}

static void enter(Grammar *g, u32 node, u32 frame, u32 depth) {
  if (depth > 2000) g->failed = 1;
  while (!g->failed) {
    const Node *n = g->nodes + node;
    if (!g->can_end[node]) return;
    if (n->op != LOOP && !gather(g, (Config){node, 0, 0, frame})) return;
    switch (n->op) {
      case LITERAL: return;
      case TERMINAL: {
        const int repeats = n->b != 1 || n->c != 1;
        if (repeats ? n->b : !automaton(n->a)->accepts[0]) return;
        node = n->d;
        break;
      }
      case CHOICE:
        for (u32 i = 0; i < n->b; i++) enter(g, g->targets[n->a + i], frame, depth + 1);
        return;
      case CALL:
        // The last thing that a rule does needs no frame: so lists do not grow the stack.
        if (g->nodes[n->b].op != RETURN) frame = frame_of(g, n->b, 0, frame);
        if (frame == NONE) return;
        node = n->a;
        break;
      case LOOP:
        again(g, node, 0, frame, depth + 1);
        return;
      default: {  // RETURN
        if (!frame) {
          gathering.accepts = 1;
          return;
        }
        const Frame f = g->frames[frame];
        if (g->nodes[f.node].op == LOOP) {
          again(g, f.node, f.count, f.parent, depth + 1);
          return;
        }
        node = f.node;
        frame = f.parent;
      }
    }
  }
}

// ---- states ----
static int is_before(const Config *a, const Config *b) {
  if (a->node != b->node) return a->node < b->node;
  if (a->at != b->at) return a->at < b->at;
  if (a->count != b->count) return a->count < b->count;
  return a->frame < b->frame;
}

typedef struct { const Config *configs; u32 count, accepts; } Wanted;
static u32 hash_configs(const Wanted *w) {
  u32 hash = w->accepts;
  for (u32 i = 0; i < w->count; i++) hash = config_hash(hash, w->configs + i);
  return hash;
}
static u32 state_hash(const Grammar *g, u32 state) {
  const State *s = g->states + state;
  return hash_configs(&(Wanted){g->configs + s->first, s->count, s->accepts});
}
static int is_state(const Grammar *g, u32 state, const void *wanted) {
  const State *s = g->states + state;
  const Wanted *w = wanted;
  if (s->count != w->count || s->accepts != w->accepts) return 0;
  for (u32 i = 0; i < w->count; i++)
    if (!is_same(g->configs + s->first + i, w->configs + i)) return 0;
  return 1;
}

// Add the bytes that may come next.
static void find_bytes(const Grammar *g, const Config *c, u32 *bytes) {
  const Node *n = g->nodes + c->node;
  if (n->op == LITERAL) {
    const u8 byte = g->bytes[n->a + c->at];
    bytes[byte / 32] |= 1u << byte % 32;
  } else {
    for (u32 i = 0; i < 8; i++) bytes[i] |= automaton(n->a)->first[c->at][i];
  }
}

u32 state_of(Grammar *g, Config *configs, u32 count, u32 accepts) {
  for (u32 i = 1; i < count; i++) {
    const Config one = configs[i];
    u32 at = i;
    for (; at && is_before(&one, configs + at - 1); at--) configs[at] = configs[at - 1];
    configs[at] = one;
  }
  const Wanted wanted = {configs, count, accepts};
  u32 *slot = slot_of(g, &g->state_slots, g->states_used, hash_configs(&wanted), &wanted, state_hash, is_state);
  if (!slot) return NONE;
  if (*slot) return *slot - 1;
  if (g->states_used == MOST_STATES) return g->failed = 1, NONE;
  while (g->configs_used + count > g->configs_room) {
    const u32 used = g->configs_used;
    g->configs_used = g->configs_room;
    const int has_room = ROOM(g, configs);
    g->configs_used = used;
    if (!has_room) return NONE;
  }
  if (!ROOM(g, states)) return NONE;
  State *made = g->states + g->states_used;
  *made = (State){.first = g->configs_used, .count = count, .accepts = accepts};
  for (u32 i = 0; i < count; i++) find_bytes(g, configs + i, made->bytes);
  __builtin_memcpy(g->configs + g->configs_used, configs, count * sizeof(Config));
  g->configs_used += count;
  *slot = ++g->states_used;
  return g->states_used - 1;
}

// Other nodes than these two were gathered to be entered once only.
static u32 gathered_state(Grammar *g) {
  u32 kept = 0;
  for (u32 i = 0; i < gathering.count; i++)
    if (g->nodes[gathered[i].node].op <= TERMINAL) gathered[kept++] = gathered[i];
  if (g->failed || (!kept && !gathering.accepts)) return NONE;
  return state_of(g, gathered, kept, gathering.accepts);
}

u32 state_at(Grammar *g, u32 node, u32 frame) {
  begin_gathering();
  enter(g, node, frame, 0);
  return gathered_state(g);
}

static void moved(Grammar *g, Config c, u8 byte) {
  const Node *n = g->nodes + c.node;
  if (n->op == LITERAL) {
    if (g->bytes[n->a + c.at] != byte) return;
    if (c.at + 1 < n->b) gather(g, (Config){c.node, c.at + 1, 0, c.frame});
    else enter(g, n->c, c.frame, 0);
    return;
  }
  const Automaton *a = automaton(n->a);
  const u16 next = a->moves[c.at * 256 + byte];
  if (!next) return;
  const u32 state = next - 1u;
  if (!a->accepts[state]) {
    gather(g, (Config){c.node, state, c.count, c.frame});
    return;
  }
  if (n->b == 1 && n->c == 1) {
    if (a->accepts[state] == 1) gather(g, (Config){c.node, state, 0, c.frame});
    enter(g, n->d, c.frame, 0);
    return;
  }
  u32 count = c.count + 1;
  if (n->c == NONE && count > n->b) count = n->b;
  if (n->c == NONE || count < n->c) gather(g, (Config){c.node, 0, count, c.frame});
  if (count >= n->b) enter(g, n->d, c.frame, 0);
}

// ---- steps ----
u32 step(Grammar *g, u32 state, u8 byte) {
  if (!has_byte(g->states[state].bytes, byte)) return NONE;
  const u64 key = (u64)(state + 1) << 8 | byte;
  if (2 * g->steps_used >= g->steps_room) {
    const u32 room = g->steps_room ? 2 * g->steps_room : 1024;
    u64 *keys = take(&g->owner, 8 * room);
    u32 *to = take(&g->owner, 4 * room);
    if (!keys || !to) return g->failed = 1, NONE;
    for (u32 i = 0; i < g->steps_room; i++) {
      if (!g->steps[i]) continue;
      u32 at = mixed(mixed(0, (u32)(g->steps[i] >> 8)), (u32)g->steps[i] & 255) & (room - 1);
      while (keys[at]) at = (at + 1) & (room - 1);
      keys[at] = g->steps[i];
      to[at] = g->step_to[i];
    }
    give_back(&g->owner, g->steps);
    give_back(&g->owner, g->step_to);
    g->steps = keys;
    g->step_to = to;
    g->steps_room = room;
  }
  u32 at = mixed(mixed(0, state + 1), byte) & (g->steps_room - 1);
  for (; g->steps[at]; at = (at + 1) & (g->steps_room - 1))
    if (g->steps[at] == key) return g->step_to[at];
  const State s = g->states[state];
  begin_gathering();
  for (u32 i = 0; i < s.count; i++) moved(g, g->configs[s.first + i], byte);
  const u32 to = gathered_state(g);
  if (g->failed) return NONE;
  g->steps[at] = key;
  g->step_to[at] = to;
  g->steps_used++;
  return to;
}

// ---- kinds of characters ----
// Those of which any may come, for as long as a terminal lasts.
static u32 own_kinds(Grammar *g, const Config *c) {
  const Node *n = g->nodes + c->node;
  if (n->op != TERMINAL) return 0;
  if (n->b == 1 && n->c == 1) return kinds_that_stay(automaton(n->a), c->at);
  return c->at || n->c != NONE ? 0 : whole_kinds(automaton(n->a));
}

// Two sets do not add up: behind a character of one, one of the other may not come.
static u32 larger(u32 kinds, u32 others) {
  return __builtin_popcount(others) > __builtin_popcount(kinds) ? others : kinds;
}

void find_kinds(Grammar *g, u32 state) {
  g->states[state].has_kinds = 1;
  const u32 count = g->states[state].count;
  u32 kinds = 0, some = 0, most = 0, followed = 0;
  for (u32 i = 0; i < count; i++) {
    const Config c = g->configs[g->states[state].first + i];
    const Node *n = g->nodes + c.node;
    kinds = larger(kinds, own_kinds(g, &c));
    if (n->op != TERMINAL || c.at) continue;
    const u32 whole = whole_kinds(automaton(n->a)), left = n->c - c.count;
    if (n->c != NONE && whole && left > most) {
      some = whole;
      most = left;
    }
    // The terminal may end with one of these, and the next goes on with others of them.
    if (larger(kinds, whole) != kinds && c.count + 1 >= n->b && followed++ < MOST_FOLLOWED) {
      const u32 follows = state_at(g, n->d, c.frame);
      if (follows == NONE) continue;
      const State f = g->states[follows];
      for (u32 j = 0; j < f.count; j++) {
        const Config *d = g->configs + f.first + j;
        kinds = larger(kinds, is_same(d, &c) ? whole : whole & own_kinds(g, d));
      }
    }
  }
  State *s = g->states + state;
  s->kinds = kinds;
  s->some_kinds = some;
  s->characters = most;
}
