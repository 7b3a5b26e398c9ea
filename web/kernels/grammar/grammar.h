// Follows grammars byte by byte, and says which tokens of a vocabulary may come next.
//
// A grammar is a graph of nodes (py_core/grammar/program.py). A *config* is a place in it: a node, how far it is, and a
// frame, the stack of nodes that called it. A *state* is a set of configs, interned: the same set has the same number.
// So the step from a state by a byte is looked up once it was made, and a mask can be kept by its state.
//
// Most of a mask's tokens lie within one automaton, such as the characters of a string. For each place in an automaton
// these are found once for all grammars (automata.c); only tokens that go on behind it are followed with the frames.
#pragma once
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name
#define INLINE static inline __attribute__((always_inline))

enum { NONE = 0xffffffff };
enum { MOST_WORK = 20000000 };  // steps that a call of the host may take
enum { LONGEST = 255 };  // bytes of a token; a longer one is never allowed

// ---- memory.c: blocks of an owner, which are freed together ----
typedef struct Block { struct Block *next, *before; u32 class, unused; } Block;
typedef struct { Block *blocks; u32 bytes; } Owner;
void *take(Owner *owner, u32 bytes);  // null if there is no memory
void *grown(Owner *owner, void *old, u32 bytes, u32 wanted);
void release(Owner *owner);
void give_back(Owner *owner, void *block);

// ---- vocabulary.c: tokens by their bytes ----
typedef struct { const u8 *bytes; u32 length, token; } Text;
// A branch has all texts with the same first bytes. `kinds` and `characters` are of their rests, its own byte included.
typedef struct {
  u32 kinds;                   // of their characters
  u32 after;                   // the branch behind those of this one
  u32 from;                    // the first token that ends here; those of the next branch follow
  u8 byte, depth, characters;  // its last byte, the number of its bytes, the most characters
} Branch;
// The branches stand in the order of their texts, and so do the tokens. Behind the last branch is an empty one.
typedef struct {
  u32 count;
  Branch *branches;
  u32 *tokens;
} Trie;
// The mask of a state that took long to find.
typedef struct { u32 grammar, state, *mask; } Kept;
enum { MOST_KEPT = 64 };
typedef struct {
  Trie trie;
  const u8 *bytes;
  const u32 *offsets;
  u32 tokens, words;
  u32 *all;        // the mask of all tokens that have bytes
  u32 first[256];  // the branch of each byte that a token begins with, or NONE
  Kept kept[MOST_KEPT];
} Vocabulary;
extern Vocabulary vocabulary;
int keep_mask(Kept *kept, const u32 *mask);  // 0 if there is no memory

// Kinds of characters, as a set of bits. An automaton mostly goes on with all characters of some kinds, such as the
// letters: then it does so for all texts of a branch that has no others, which need not be followed byte by byte.
enum { LONG_KIND = 1 << 30, BROKEN = (i32)(1u << 31) };  // characters of several bytes; what is not UTF-8
extern u32 kind_of[256];                                 // of a byte
enum { NO_UTF8 = 8 };
u32 after_utf8(u32 state, u32 byte);  // the state within a character, 0 between them, NO_UTF8 if it is none
int trie_of(Trie *trie, Owner *owner, Text *texts, u32 count);  // sorts the texts; 0 if there is no memory
// Allow the tokens of some branches, or those that end at one; or take them away.
INLINE void allow(u32 *mask, const Trie *trie, u32 branch, u32 end) {
  for (u32 i = trie->branches[branch].from; i < trie->branches[end].from; i++)
    mask[trie->tokens[i] / 32] |= 1u << trie->tokens[i] % 32;
}
INLINE void refuse(u32 *mask, const Trie *trie, u32 branch, u32 end) {
  for (u32 i = trie->branches[branch].from; i < trie->branches[end].from; i++)
    mask[trie->tokens[i] / 32] &= ~(1u << trie->tokens[i] % 32);
}

// ---- automata.c ----
typedef struct Place Place;
typedef struct {
  Owner owner;
  u16 *moves;       // states x 256: the next state + 1, 0 if there is none
  u8 *accepts;      // by state: 1 if a text ends there, 2 if none goes on
  u32 (*first)[8];  // by state: the bytes that it has a move for, as bits
  u32 *stays;       // by state, once it was needed: the kinds of which each character leads back to it
  u32 whole;        // the same for state 0: of which each character is a whole text
  u32 states, has_texts;
  u32 *left;        // by state, once it was needed: the fewest bytes to the end of a text (closing.c)
  Place *places;
} Automaton;
Automaton *automaton(u32 number);
u32 kinds_that_stay(Automaton *a, u32 state);  // as `stays`
u32 whole_kinds(Automaton *a);                 // as `whole`

// A place in an automaton: the tokens that stay within it, and what tokens have behind it.
struct Place {
  Place *next;
  u32 state, repeats, left, needed;  // of automata that repeat: how often at most, and at least
  u32 *mask;          // once it was needed
  Trie *behind[256];  // the ends of tokens behind the automaton, by their first byte, once they were needed
};
extern Trie too_many;
Place *place_of(Automaton *a, u32 state, u32 repeats, u32 left, u32 needed);  // null if there is no memory
const u32 *mask_of_place(Automaton *a, Place *place);                          // the same
Trie *behind_place(Automaton *a, Place *place, u8 byte);                       // the same; &too_many
void forget_places(void);  // if they are too many; none may be in use

// ---- states.c ----
enum { LITERAL, TERMINAL, CHOICE, CALL, RETURN, LOOP };
typedef struct { u32 op, a, b, c, d; } Node;
typedef struct { u32 node, count, parent; } Frame;
typedef struct { u32 node, at, count, frame; } Config;
typedef struct {
  u32 first, count, accepts;
  u32 bytes[8];  // that may come next
  // All texts of these kinds of characters may come next; of some kinds those of up to so many characters.
  u32 kinds, some_kinds, characters, has_kinds;
} State;
typedef struct { u32 *slots, room; } Slots;  // a hash table of numbers + 1
typedef struct {
  Owner owner;
  const Node *nodes;
  const u32 *targets;
  const u8 *bytes;
  u8 *can_end;  // of a node: its rule can come to an end from there
  Frame *frames;
  Config *configs;
  State *states;
  u32 frames_used, frames_room, configs_used, configs_room, states_used, states_room;
  Slots frame_slots, state_slots;
  u64 *steps;  // state and byte
  u32 *step_to, steps_used, steps_room;
  u32 serial, failed, work;  // serial: of no other grammar; work: of this call of the host
  u32 node_count, *node_left, *frame_left, frame_left_used, frame_left_room;  // closing.c
} Grammar;
u32 step(Grammar *g, u32 state, u8 byte);  // NONE if nothing follows, or `failed` is set
u32 state_of(Grammar *g, Config *configs, u32 count, u32 accepts);
u32 state_at(Grammar *g, u32 node, u32 frame);
u32 frame_of(Grammar *g, u32 node, u32 count, u32 parent);
void find_kinds(Grammar *g, u32 state);
INLINE int takes(Grammar *g, u32 state, const Branch *branch) {
  if (!g->states[state].has_kinds) find_kinds(g, state);
  const State *s = g->states + state;
  return !(branch->kinds & ~s->kinds) || (!(branch->kinds & ~s->some_kinds) && branch->characters <= s->characters);
}
INLINE int has_byte(const u32 *bytes, u32 byte) { return bytes[byte / 32] >> byte % 32 & 1; }
INLINE u32 count_of(const u32 *bytes) {
  u32 count = 0;
  for (u32 i = 0; i < 8; i++) count += (u32)__builtin_popcount(bytes[i]);
  return count;
}

// ---- masks.c ----
u32 mask(Grammar *g, u32 state, u32 *bits);  // sets the bits of the tokens that may come next; 0 if it failed
