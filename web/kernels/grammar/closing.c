// The shortest way to end a text: with the fewest bytes, and of those the most readable ones.
#include "grammar.h"

enum { MOST_BYTES = 1 << 14 };
enum { FAR = 0x7fffffff };  // bytes; as many and more are not told apart

static u32 sum(u64 some, u64 more) { return some + more < FAR ? (u32)(some + more) : FAR; }
static u32 lacking(u32 least, u32 count) { return least > count ? least - count : 0; }

// The fewest bytes from each state of an automaton to the end of a text. States mostly lead to later ones.
static const u32 *left_of_automaton(Automaton *a) {
  if (a->left) return a->left;
  u32 *left = take(&a->owner, 4 * a->states);
  if (!left) return 0;
  for (u32 state = 0; state < a->states; state++) left[state] = a->accepts[state] ? 0 : FAR;
  for (int changed = 1; changed;) {
    changed = 0;
    for (u32 state = a->states; state--;)
      for (u32 byte = 0; byte < 256; byte++) {
        const u32 next = a->moves[state * 256 + byte];
        if (!next || left[next - 1] + 1 >= left[state]) continue;
        left[state] = left[next - 1] + 1;
        changed = 1;
      }
  }
  return a->left = left;
}

// The same of a place in a terminal: `at` is a state of its automaton, `count` the texts of it that are over.
static u32 left_of_terminal(Grammar *g, const Node *n, u32 at, u32 count) {
  const u32 *left = left_of_automaton(automaton(n->a));
  if (!left) return g->failed = 1, FAR;
  const u64 more = at ? lacking(n->b, count + 1) : lacking(n->b, count);
  return sum(sum(at ? left[at] : 0, more * left[0]), g->node_left[n->d]);
}

static u32 left_of_node(Grammar *g, const Node *n) {
  const u32 *left = g->node_left;
  u32 best = FAR;
  switch (n->op) {
    case LITERAL: return sum(n->b, left[n->c]);
    case TERMINAL: return left_of_terminal(g, n, 0, 0);
    case CALL: return sum(left[n->a], left[n->b]);
    case LOOP: return sum((u64)n->b * left[n->a], left[n->d]);
    case CHOICE:
      for (u32 i = 0; i < n->b; i++)
        if (left[g->targets[n->a + i]] < best) best = left[g->targets[n->a + i]];
      return best;
    default: return 0;  // RETURN
  }
}

// From each node to the end of its rule, once: nodes mostly go on with earlier ones.
static int find_left(Grammar *g) {
  if (g->node_left) return 1;
  if (!(g->node_left = take(&g->owner, 4 * g->node_count))) return 0;
  for (u32 i = 0; i < g->node_count; i++) g->node_left[i] = FAR;
  for (int changed = 1; changed && !g->failed;) {
    changed = 0;
    for (u32 i = 0; i < g->node_count; i++) {
      const u32 left = left_of_node(g, g->nodes + i);
      if (left >= g->node_left[i]) continue;
      g->node_left[i] = left;
      changed = 1;
    }
  }
  return !g->failed;
}

// From the end of the rule that a frame has called to the end of the text. Those below a frame came before it.
static u32 left_of_frame(Grammar *g, u32 frame) {
  if (g->frame_left_room < g->frames_used) {
    u32 *left = grown(&g->owner, g->frame_left, 4 * g->frame_left_used, 4 * g->frames_room);
    if (!left) return g->failed = 1, FAR;
    g->frame_left = left;
    g->frame_left_room = g->frames_room;
  }
  for (; g->frame_left_used < g->frames_used; g->frame_left_used++) {
    const Frame f = g->frames[g->frame_left_used];
    u32 left = 0;
    if (g->frame_left_used) {
      const Node *n = g->nodes + f.node;
      left = n->op == LOOP ? sum((u64)lacking(n->b, f.count) * g->node_left[n->a], g->node_left[n->d]) : g->node_left[f.node];
      left = sum(left, g->frame_left[f.parent]);
    }
    g->frame_left[g->frame_left_used] = left;
  }
  return g->frame_left[frame];
}

static u32 left_of_state(Grammar *g, u32 state) {
  const State s = g->states[state];
  u32 best = s.accepts ? 0 : FAR;
  for (u32 i = 0; i < s.count; i++) {
    const Config c = g->configs[s.first + i];
    const Node *n = g->nodes + c.node;
    u32 left = n->op == LITERAL ? sum(n->b - c.at, g->node_left[n->c]) : left_of_terminal(g, n, c.at, c.count);
    left = sum(left, left_of_frame(g, c.frame));
    if (left < best) best = left;
  }
  return best;
}

// Spaces, zeros and letters before other characters, and those before control characters.
static u8 byte_at(u32 rank) { return rank < 4 ? (u8) " 0aA"[rank] : (u8)(rank - 4 + ' '); }

// Find the bytes that end the text. Returns their number; NONE if there are more than `most`, or it failed.
static u32 find_end(Grammar *g, u32 state, u8 *bytes, u32 most) {
  if (!find_left(g)) return NONE;
  const u32 count = left_of_state(g, state);
  if (count > most) return NONE;
  for (u32 found = 0; found < count; found++) {
    u32 next = NONE;
    for (u32 rank = 0; rank < 256 + 4 && next == NONE; rank++) {
      bytes[found] = byte_at(rank);
      next = step(g, state, bytes[found]);
      if (next != NONE && left_of_state(g, next) != count - found - 1) next = NONE;
    }
    if (next == NONE) return NONE;
    state = next;
  }
  return g->failed ? NONE : count;
}

// The longest token with which some bytes begin, and its length; 0 if there is none.
static u32 token_of(const u8 *bytes, u32 count, u32 *token) {
  const Branch *branches = vocabulary.trie.branches;
  u32 length = 0, i = 0, end = vocabulary.trie.count;
  for (u32 at = 0; at < count; at++) {
    while (i < end && branches[i].byte != bytes[at]) i = branches[i].after;
    if (i >= end) break;
    if (branches[i].from < branches[i + 1].from) {
      *token = vocabulary.trie.tokens[branches[i].from];
      length = at + 1;
    }
    end = branches[i++].after;
  }
  return length;
}

// Write the tokens that end the text. Returns their number; NONE if there are more than MOST_BYTES bytes, some are no
// tokens, or it failed.
u32 EXPORT(closing)(Grammar *g, u32 state, u32 *tokens) {
  static u8 bytes[MOST_BYTES];
  g->work = 0;
  const u32 count = find_end(g, state, bytes, MOST_BYTES);
  if (count == NONE) return NONE;
  u32 found = 0;
  for (u32 at = 0, length; at < count; at += length)
    if (!(length = token_of(bytes + at, count - at, tokens + found++))) return NONE;
  return found;
}
