// What the host calls for a grammar: which tokens may come next, and where one leads.
#include "grammar.h"

enum { FEW_BYTES = 8, DEAR = 1000 };  // a mask that takes so much work is kept
enum { ALL = NONE - 1 };               // as a state: any text may come

static void add(u32 *mask, const u32 *more) {
  for (u32 i = 0; i < vocabulary.words; i++) mask[i] |= more[i];
}

// Mark the tokens, or ends of tokens, of branches [first, end) that the grammar allows from a state on. The mask has those
// that it allows from the state `base` on, or ALL, or NONE: where both lead to the same state there is nothing to do.
static void walk(Grammar *g, const Trie *trie, u32 first, u32 end, u32 state, u32 base, u32 *mask) {
  struct { u32 state, base; } path[LONGEST + 1];
  path[0].state = state;
  path[0].base = base;
  for (u32 i = first; i < end && !g->failed;) {
    const Branch *b = trie->branches + i;
    const u32 before = path[b->depth - 1].state, base_before = path[b->depth - 1].base;
    u32 next = NONE, base_next = base_before;
    if (++g->work > MOST_WORK) g->failed = 1;
    if (takes(g, before, b)) {
      if (base_before != ALL && !(base_before != NONE && takes(g, base_before, b))) {
        allow(mask, trie, i, b->after);
        g->work += (trie->branches[b->after].from - b->from) / 8;
      }
    } else {
      next = step(g, before, b->byte);
      if (base_before < ALL) base_next = step(g, base_before, b->byte);
      if (next == NONE && base_next != NONE) refuse(mask, trie, i, b->after);
    }
    if (next == NONE || next == base_next) {
      i = b->after;
      continue;
    }
    path[b->depth].state = next;
    path[b->depth].base = base_next;
    if (base_next == NONE) allow(mask, trie, i, i + 1);
    i++;
  }
}

// Find a state of which the mask is mostly the same: one that most tokens lead to by their first byte, and that these
// bytes lead back to, if not `alone`. Or ALL, if most tokens lead to where any letters may come. Else NONE.
static u32 base_of(Grammar *g, u32 state, int alone) {
  const Trie *trie = &vocabulary.trie;
  const Branch letters = {.kinds = kind_of['a'] | kind_of['g'] | kind_of['A'] | kind_of['G'], .characters = 8};
  const u32 half = trie->branches[trie->count].from / 2;
  u32 found = NONE, votes = 0, same = 0, free = 0;
  if (count_of(g->states[state].bytes) <= 4 * FEW_BYTES) return NONE;
  for (u32 i = 0; i < trie->count; i = trie->branches[i].after) {
    const u32 next = step(g, state, trie->branches[i].byte);
    const u32 tokens = trie->branches[trie->branches[i].after].from - trie->branches[i].from;
    if (next != found && next != NONE && votes < tokens) {
      found = next;
      votes = tokens - votes;
    } else if (next != NONE) {
      votes = next == found ? votes + tokens : votes - tokens;
    }
  }
  for (u32 i = 0; i < trie->count && found != NONE && !g->failed; i = trie->branches[i].after) {
    const u32 next = step(g, state, trie->branches[i].byte);
    const u32 tokens = trie->branches[trie->branches[i].after].from - trie->branches[i].from;
    if (next == NONE) continue;
    if (takes(g, next, &letters)) free += tokens;
    if (next == found && found != state && step(g, found, trie->branches[i].byte) == found) same += tokens;
  }
  return same > half && !alone ? found : free > half ? (u32)ALL : NONE;
}

static int mask_of_state(Grammar *g, u32 state, u32 *mask, int alone);

// Mark the tokens that are allowed from a state on, by a walk over all.
static void walk_all(Grammar *g, u32 state, u32 *mask, int alone) {
  const u32 base = base_of(g, state, alone);
  Owner temporary = {0};
  u32 *found = mask;
  if (base != NONE) {
    found = take(&temporary, 4 * vocabulary.words);
    if (!found) g->failed = 1;
    else if (base == ALL) __builtin_memcpy(found, vocabulary.all, 4 * vocabulary.words);
    else mask_of_state(g, base, found, 1);
  }
  const Trie *trie = &vocabulary.trie;
  if (base != NONE && !g->failed) walk(g, trie, 0, trie->count, state, base, found);
  for (u32 byte = 0; byte < 256 && base == NONE; byte++) {
    const u32 first = vocabulary.first[byte];
    if (first != NONE && has_byte(g->states[state].bytes, byte))
      walk(g, trie, first, trie->branches[first].after, state, NONE, mask);
  }
  if (!g->failed && found != mask) add(mask, found);
  release(&temporary);
}

// Mark what a terminal allows, with the tokens of its place. Returns 0 if that would take longer than to follow all.
static int mask_of_terminal(Grammar *g, const Config *c, u32 *mask) {
  const Node *n = g->nodes + c->node;
  Automaton *a = automaton(n->a);
  const u32 follows = state_at(g, n->d, c->frame);
  if (g->failed) return 1;
  u32 bytes[8] = {0};
  if (follows != NONE) __builtin_memcpy(bytes, g->states[follows].bytes, sizeof bytes);
  if (count_of(bytes) > FEW_BYTES) return 0;
  const u32 repeats = n->b != 1 || n->c != 1;
  Place *place = place_of(
      a, c->at, repeats, n->c == NONE ? NONE : n->c - c->count, c->count < n->b ? n->b - c->count : 0);
  if (!place) return g->failed = 1;
  for (u32 byte = 0; byte < 256; byte++) {
    if (!has_byte(bytes, byte)) continue;
    const Trie *trie = behind_place(a, place, (u8)byte);
    if (!trie) return g->failed = 1;
    if (trie == &too_many) return 0;
    walk(g, trie, 0, trie->count, follows, NONE, mask);
  }
  const u32 *within = mask_of_place(a, place);
  if (within) add(mask, within);
  else g->failed = 1;
  return 1;
}

// Find the nodes from which their rule comes to an end: others are never entered.
static void find_ends(const Node *nodes, const u32 *targets, u8 *can_end, u32 count) {
  for (int changed = 1; changed;) {
    changed = 0;
    for (u32 i = 0; i < count; i++) {
      const Node *n = nodes + i;
      if (can_end[i]) continue;
      u32 found = n->op == RETURN;
      if (n->op == LITERAL) found = can_end[n->c];
      if (n->op == TERMINAL) found = can_end[n->d] && (!n->b || automaton(n->a)->has_texts);
      if (n->op == CALL) found = can_end[n->a] && can_end[n->b];
      if (n->op == LOOP) found = (!n->b || can_end[n->a]) && can_end[n->d];
      if (n->op == CHOICE)
        for (u32 j = 0; j < n->b && !found; j++) found = can_end[targets[n->a + j]];
      if (found) can_end[i] = changed = 1;
    }
  }
}

// Returns a grammar of these nodes, which are copied; null if there is no memory.
Grammar *EXPORT(open_grammar)(const Node *nodes, u32 node_count, const u32 *targets, u32 target_count, const u8 *bytes,
                              u32 byte_count) {
  Owner owner = {0};
  Grammar *g = take(&owner, sizeof(Grammar));
  if (!g) return 0;
  g->owner = owner;
  Node *kept = take(&g->owner, node_count * sizeof(Node));
  u32 *kept_targets = take(&g->owner, 4 * target_count);
  u8 *kept_bytes = take(&g->owner, byte_count);
  g->can_end = take(&g->owner, node_count);
  if (!kept || !kept_targets || !kept_bytes || !g->can_end) return 0;
  __builtin_memcpy(kept, nodes, node_count * sizeof(Node));
  __builtin_memcpy(kept_targets, targets, 4 * target_count);
  __builtin_memcpy(kept_bytes, bytes, byte_count);
  g->nodes = kept;
  g->node_count = node_count;
  g->targets = kept_targets;
  g->bytes = kept_bytes;
  find_ends(kept, kept_targets, g->can_end, node_count);
  static u32 serials;
  g->serial = ++serials;
  // Frame 0 is the end of the stack.
  return frame_of(g, NONE, 0, NONE) == 0 ? g : 0;
}

void EXPORT(close_grammar)(Grammar *g) {
  Owner owner = g->owner;
  release(&owner);
}

// The state at the beginning; NONE if there is no text, or it failed.
u32 EXPORT(begin)(Grammar *g, u32 node) {
  g->work = g->failed = 0;
  return state_at(g, node, 0);
}

u32 EXPORT(has_failed)(const Grammar *g) { return g->failed; }

u32 EXPORT(may_end)(const Grammar *g, u32 state) { return g->states[state].accepts; }

u32 EXPORT(state_count)(const Grammar *g) { return g->states_used; }

// The state after bytes; NONE if they are not allowed. `done` gets the number of bytes that are.
u32 EXPORT(after_bytes)(Grammar *g, u32 state, const u8 *bytes, u32 count, u32 *done) {
  g->work = g->failed = 0;
  for (*done = 0; *done < count && state != NONE; ++*done) {
    const u32 next = step(g, state, bytes[*done]);
    if (next == NONE) return NONE;
    state = next;
  }
  return state;
}

// Writes the state behind each of the tokens, as far as they are allowed. Returns their number.
u32 EXPORT(after_tokens)(Grammar *g, u32 state, const u32 *tokens, u32 count, u32 *states) {
  u32 found = 0, done;
  g->failed = 0;
  for (; found < count; found++) {
    const u32 begin = vocabulary.offsets[tokens[found]], length = vocabulary.offsets[tokens[found] + 1] - begin;
    if (!length || length > LONGEST) break;
    state = after_bytes(g, state, vocabulary.bytes + begin, length, &done);
    if (state == NONE) break;
    states[found] = state;
  }
  return found;
}

static void make_mask(Grammar *g, u32 state, u32 *bits, int alone) {
  __builtin_memset(bits, 0, 4 * vocabulary.words);
  const State s = g->states[state];
  Owner temporary = {0};
  Config *rest = take(&temporary, s.count * sizeof(Config));
  u32 count = 0;
  if (!rest) g->failed = 1;
  for (u32 i = 0; i < s.count && !g->failed; i++) {
    const Config c = g->configs[s.first + i];
    if (g->nodes[c.node].op == TERMINAL && mask_of_terminal(g, &c, bits)) continue;
    rest[count++] = c;
  }
  if (count && !g->failed) {
    const u32 others = state_of(g, rest, count, 0);
    if (others != NONE) walk_all(g, others, bits, alone);
  }
  release(&temporary);
}

static int mask_of_state(Grammar *g, u32 state, u32 *bits, int alone) {
  Kept *kept = vocabulary.kept + (g->serial + state) % MOST_KEPT;
  const u32 before = g->work;
  if (kept->mask && kept->grammar == g->serial && kept->state == state) {
    __builtin_memcpy(bits, kept->mask, 4 * vocabulary.words);
    return 1;
  }
  make_mask(g, state, bits, alone);
  if (g->failed) return 0;
  if (g->work - before > DEAR && keep_mask(kept, bits)) {
    kept->grammar = g->serial;
    kept->state = state;
  }
  return 1;
}

// Set the bits of the tokens that may come next. Returns 0 if it failed.
u32 EXPORT(mask)(Grammar *g, u32 state, u32 *bits) {
  g->work = g->failed = 0;
  forget_places();
  return (u32)mask_of_state(g, state, bits, 0);
}

// Write the bytes that must come next, up to `most`. Returns their number.
u32 EXPORT(forced)(Grammar *g, u32 state, u8 *bytes, u32 most) {
  u32 found = 0;
  g->work = g->failed = 0;
  for (; found < most && !g->states[state].accepts; found++) {
    const u32 *next_bytes = g->states[state].bytes;
    u32 byte = 0;
    if (count_of(next_bytes) != 1) break;
    while (!has_byte(next_bytes, byte)) byte++;
    const u32 next = step(g, state, (u8)byte);
    if (next == NONE) break;
    bytes[found] = (u8)byte;
    state = next;
  }
  return found;
}
