// Where the tokens of a state lead, for kernels that follow a grammar beside a model.
#include "grammar.h"

// Where more tokens and first bytes may come, and none leads back to the state, as in a string of bounded length, nearly all
// tokens lead to states of their own.
enum { MANY_TOKENS = 256, MANY_BYTES = 16 };

typedef struct { u32 token, state; } Exit;
typedef struct { Exit *exits; u32 count, most; } Exits;

// The order of tokens: the shortest are the likeliest to be said, and behind all others those that end in a character, or
// have an escape.
static u32 rank_of(u32 token) {
  const u32 begin = vocabulary.offsets[token], end = vocabulary.offsets[token + 1];
  u32 rank = end - begin + (vocabulary.bytes[end - 1] >= 0x80 ? LONGEST : 0);
  for (u32 i = begin; i < end && rank < LONGEST; i++) rank += vocabulary.bytes[i] == '\\' ? LONGEST : 0;
  return rank;
}

static void add_exit(Exits *found, u32 token, u32 state) {
  const u32 rank = rank_of(token);
  u32 at = found->count;
  if (at == found->most) {
    if (rank_of(found->exits[at - 1].token) <= rank) return;
    at--;
  } else {
    found->count++;
  }
  for (; at && rank_of(found->exits[at - 1].token) > rank; at--) found->exits[at] = found->exits[at - 1];
  found->exits[at] = (Exit){token, state};
}

// The kinds of characters that lead back to a state. `stays` is set for the bytes that do.
static u32 kinds_of_state(Grammar *g, u32 state, u8 *stays) {
  u32 kinds = ~(u32)(LONG_KIND | BROKEN), terminals = 0, has_long = 0;
  for (u32 byte = 0; byte < 256; byte++) {
    stays[byte] = has_byte(g->states[state].bytes, byte) && step(g, state, (u8)byte) == state;
    if (byte < 0x80 && !stays[byte]) kinds &= ~kind_of[byte];
  }
  // Longer characters are followed by one terminal alone, which comes back to where it is.
  const State s = g->states[state];
  for (u32 i = 0; i < s.count; i++) {
    const Config *c = g->configs + s.first + i;
    const Node *n = g->nodes + c->node;
    if (n->op == TERMINAL && n->b == 1 && n->c == 1 && kinds_that_stay(automaton(n->a), c->at) & LONG_KIND) {
      terminals++;
      continue;
    }
    const u32 *first = n->op == TERMINAL ? automaton(n->a)->first[c->at] : 0;
    if (first ? first[4] | first[5] | first[6] | first[7] : g->bytes[n->a + c->at] >= 0x80) has_long = 1;
  }
  return kinds && terminals == 1 && !has_long ? kinds | LONG_KIND : kinds;
}

// Set the bits in `bits` of the tokens that may come next, and in `keeps` of those that lead back to the state; write others
// with the states that they lead to, up to `most`, the likeliest. There may be more of either. Returns the number of those
// that were written; NONE if it failed.
u32 EXPORT(moves)(Grammar *g, u32 state, u32 *bits, u32 *keeps, u32 *exits, u32 most) {
  Exits found = {(Exit *)exits, 0, most};
  const Trie *trie = &vocabulary.trie;
  u8 stays[256];
  u32 count = 0, path[LONGEST + 1];
  if (!mask(g, state, bits)) return NONE;
  __builtin_memset(keeps, 0, 4 * vocabulary.words);
  for (u32 i = 0; i < vocabulary.words; i++) count += (u32)__builtin_popcount(bits[i]);
  const u32 kinds = kinds_of_state(g, state, stays);
  if (!kinds && count > MANY_TOKENS && count_of(g->states[state].bytes) > MANY_BYTES) return 0;
  path[0] = state;
  for (u32 i = 0; i < trie->count && !g->failed;) {
    const Branch *b = trie->branches + i;
    const u32 before = path[b->depth - 1];
    if (before == state && !(b->kinds & ~kinds)) {
      allow(keeps, trie, i, b->after);
      i = b->after;
      continue;
    }
    if (++g->work > MOST_WORK) break;
    const u32 next = before == state && stays[b->byte] ? state : step(g, before, b->byte);
    if (next == NONE) {
      i = b->after;
      continue;
    }
    path[b->depth] = next;
    if (next == state) allow(keeps, trie, i, i + 1);
    else
      for (u32 j = b->from; j < trie->branches[i + 1].from; j++) add_exit(&found, trie->tokens[j], next);
    i++;
  }
  return found.count;
}
