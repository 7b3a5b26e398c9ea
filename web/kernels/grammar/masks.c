// What the host calls for a grammar: which tokens may come next, and where one leads.
#include "grammar.h"

enum { FEW_BYTES = 8 };

// Mark the tokens, or ends of tokens, of a trie that the grammar allows from a state on.
static void walk(Grammar *g, const Trie *trie, u32 state, u32 *mask) {
  u32 path[LONGEST + 1];
  path[0] = state;
  for (u32 i = 0; i < trie->count && !g->failed;) {
    if (++g->work > MOST_WORK) g->failed = 1;
    const u32 more = trie->plain[i] - trie->depth[i] + 1u;
    if (trie->plain[i] && takes_plain(g, path[trie->depth[i] - 1], more)) {
      const u32 from = trie->from[i], end = trie->from[trie->after[i]];
      allow_tokens(mask, trie, from, end);
      g->work += (end - from) / 8;
      i = trie->after[i];
      continue;
    }
    const u32 next = step(g, path[trie->depth[i] - 1], trie->byte[i]);
    if (next == NONE) {
      i = trie->after[i];
      continue;
    }
    path[trie->depth[i]] = next;
    allow(mask, trie, i);
    i++;
  }
}

// Mark what a terminal allows, with the tokens of its place. Returns 0 if that would take longer than to follow all.
static int mask_of_terminal(Grammar *g, const Config *c, u32 *mask) {
  const Node *n = g->nodes + c->node;
  Automaton *a = automaton(n->a);
  const u32 follows = state_at(g, n->d, c->frame);
  if (g->failed) return 1;
  u32 set[8] = {0}, count = 0;
  if (follows != NONE) first_bytes(g, follows, set);
  for (u32 i = 0; i < 8; i++) count += (u32)__builtin_popcount(set[i]);
  if (count > FEW_BYTES) return 0;
  const u32 repeats = n->b != 1 || n->c != 1;
  Place *place = place_of(
      a, c->at, repeats, n->c == NONE ? NONE : n->c - c->count, c->count < n->b ? n->b - c->count : 0);
  if (!place) return g->failed = 1;
  for (u32 byte = 0; byte < 256; byte++) {
    if (!(set[byte / 32] >> byte % 32 & 1)) continue;
    Trie *trie = behind_place(a, place, (u8)byte);
    if (!trie) return g->failed = 1;
    if (trie == &too_many) return 0;
    walk(g, trie, follows, mask);
  }
  for (u32 i = 0; i < vocabulary.words; i++) mask[i] |= place->mask[i];
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
  g->targets = kept_targets;
  g->bytes = kept_bytes;
  find_ends(kept, kept_targets, g->can_end, node_count);
  // Frame 0 is the end of the stack.
  return frame_of(g, NONE, 0, NONE) == 0 ? g : 0;
}

void EXPORT(close_grammar)(Grammar *g) {
  Owner owner = g->owner;
  release(&owner);
}

// The state at the beginning; NONE if there is no text, or it failed.
u32 EXPORT(begin)(Grammar *g, u32 node) {
  g->work = 0;
  return state_at(g, node, 0);
}

u32 EXPORT(has_failed)(const Grammar *g) { return g->failed; }

u32 EXPORT(may_end)(const Grammar *g, u32 state) { return g->states[state].accepts; }

u32 EXPORT(state_count)(const Grammar *g) { return g->states_used; }

// The state after bytes; NONE if they are not allowed. `done` gets the number of bytes that are.
u32 EXPORT(after_bytes)(Grammar *g, u32 state, const u8 *bytes, u32 count, u32 *done) {
  g->work = 0;
  for (*done = 0; *done < count && state != NONE; ++*done) {
    const u32 next = step(g, state, bytes[*done]);
    if (next == NONE) return NONE;
    state = next;
  }
  return state;
}

u32 EXPORT(after_token)(Grammar *g, u32 state, u32 token) {
  u32 done;
  const u32 begin = vocabulary.offsets[token], count = vocabulary.offsets[token + 1] - begin;
  return count && count <= LONGEST ? after_bytes(g, state, vocabulary.bytes + begin, count, &done) : NONE;
}

// Set the bits of the tokens that may come next. Returns 0 if it failed.
u32 EXPORT(mask)(Grammar *g, u32 state, u32 *bits) {
  g->work = 0;
  __builtin_memset(bits, 0, 4 * vocabulary.words);
  const State s = g->states[state];
  Owner temporary = {0};
  Config *rest = take(&temporary, s.count * sizeof(Config));
  u32 count = 0;
  if (!rest) return 0;
  for (u32 i = 0; i < s.count && !g->failed; i++) {
    const Config c = g->configs[s.first + i];
    if (g->nodes[c.node].op == TERMINAL && mask_of_terminal(g, &c, bits)) continue;
    rest[count++] = c;
  }
  if (count && !g->failed) {
    const u32 others = state_of(g, rest, count, 0);
    if (others != NONE) walk(g, &vocabulary.trie, others, bits);
  }
  release(&temporary);
  return !g->failed;
}

// Write the bytes that must come next, up to `most`. Returns their number.
u32 EXPORT(forced)(Grammar *g, u32 state, u8 *bytes, u32 most) {
  u32 found = 0;
  g->work = 0;
  for (; found < most && !g->states[state].accepts; found++) {
    u32 set[8] = {0}, count = 0, byte = 0;
    first_bytes(g, state, set);
    for (u32 i = 0; i < 8; i++) {
      count += (u32)__builtin_popcount(set[i]);
      if (set[i]) byte = 32 * i + (u32)__builtin_ctz(set[i]);
    }
    if (count != 1) break;
    const u32 next = step(g, state, (u8)byte);
    if (next == NONE) break;
    bytes[found] = (u8)byte;
    state = next;
  }
  return found;
}
