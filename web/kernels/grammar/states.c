// Frames, configs and states of a grammar, and the step from a state by a byte.
#include "grammar.h"

enum { MOST_CONFIGS = 4096, MOST_STATES = 1 << 20 };

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

static u32 frame_hash(Frame f) { return mixed(mixed(mixed(1, f.node), f.count), f.parent); }

u32 frame_of(Grammar *g, u32 node, u32 count, u32 parent) {
  const Frame wanted = {node, count, parent};
  if (2 * g->frames_used >= g->frame_slots_room) {
    const u32 slots = g->frame_slots_room ? 2 * g->frame_slots_room : 128;
    u32 *table = take(&g->owner, 4 * slots);
    if (!table) return g->failed = 1, NONE;
    for (u32 i = 0; i < g->frames_used; i++) {
      u32 at = frame_hash(g->frames[i]) & (slots - 1);
      while (table[at]) at = (at + 1) & (slots - 1);
      table[at] = i + 1;
    }
    give_back(&g->owner, g->frame_slots);
    g->frame_slots = table;
    g->frame_slots_room = slots;
  }
  const u32 last = g->frame_slots_room - 1;
  u32 at = frame_hash(wanted) & last;
  for (; g->frame_slots[at]; at = (at + 1) & last) {
    const Frame *one = g->frames + g->frame_slots[at] - 1;
    if (one->node == node && one->count == count && one->parent == parent) return g->frame_slots[at] - 1;
  }
  if (!ROOM(g, frames)) return NONE;
  g->frames[g->frames_used] = wanted;
  g->frame_slots[at] = ++g->frames_used;
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

static u32 state_hash(const Config *configs, u32 count, u32 accepts) {
  u32 hash = accepts;
  for (u32 i = 0; i < count; i++) hash = config_hash(hash, configs + i);
  return hash;
}

u32 state_of(Grammar *g, Config *configs, u32 count, u32 accepts) {
  for (u32 i = 1; i < count; i++) {
    const Config one = configs[i];
    u32 at = i;
    for (; at && is_before(&one, configs + at - 1); at--) configs[at] = configs[at - 1];
    configs[at] = one;
  }
  if (2 * g->states_used >= g->state_slots_room) {
    const u32 slots = g->state_slots_room ? 2 * g->state_slots_room : 128;
    u32 *table = take(&g->owner, 4 * slots);
    if (!table) return g->failed = 1, NONE;
    for (u32 i = 0; i < g->states_used; i++) {
      const State *s = g->states + i;
      u32 at = state_hash(g->configs + s->first, s->count, s->accepts) & (slots - 1);
      while (table[at]) at = (at + 1) & (slots - 1);
      table[at] = i + 1;
    }
    give_back(&g->owner, g->state_slots);
    g->state_slots = table;
    g->state_slots_room = slots;
  }
  const u32 last = g->state_slots_room - 1;
  u32 at = state_hash(configs, count, accepts) & last;
  for (; g->state_slots[at]; at = (at + 1) & last) {
    const State *one = g->states + g->state_slots[at] - 1;
    u32 same = one->count == count && one->accepts == accepts ? 0 : NONE;
    while (same < count && is_same(g->configs + one->first + same, configs + same)) same++;
    if (same == count) return g->state_slots[at] - 1;
  }
  if (g->states_used == MOST_STATES) return g->failed = 1, NONE;
  while (g->configs_used + count > g->configs_room) {
    const u32 used = g->configs_used;
    g->configs_used = g->configs_room;
    const int made = ROOM(g, configs);
    g->configs_used = used;
    if (!made) return NONE;
  }
  if (!ROOM(g, states)) return NONE;
  g->states[g->states_used] = (State){g->configs_used, count, accepts};
  __builtin_memcpy(g->configs + g->configs_used, configs, count * sizeof(Config));
  g->configs_used += count;
  g->state_slots[at] = ++g->states_used;
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

int takes_plain(const Grammar *g, u32 state, u32 count) {
  const State s = g->states[state];
  for (u32 i = 0; i < s.count; i++) {
    const Config *c = g->configs + s.first + i;
    const Node *n = g->nodes + c->node;
    if (n->op != TERMINAL) continue;
    const Automaton *a = automaton(n->a);
    if (n->b == 1 && n->c == 1 ? a->stays[c->at] : a->takes_plain && !c->at && n->c - c->count >= count) return 1;
  }
  return 0;
}

void first_bytes(const Grammar *g, u32 state, u32 *set) {
  const State s = g->states[state];
  for (u32 i = 0; i < s.count; i++) {
    const Config c = g->configs[s.first + i];
    const Node *n = g->nodes + c.node;
    if (n->op == LITERAL) {
      const u8 byte = g->bytes[n->a + c.at];
      set[byte / 32] |= 1u << byte % 32;
      continue;
    }
    const u16 *moves = automaton(n->a)->moves + c.at * 256;
    for (u32 byte = 0; byte < 256; byte++)
      if (moves[byte]) set[byte / 32] |= 1u << byte % 32;
  }
}
