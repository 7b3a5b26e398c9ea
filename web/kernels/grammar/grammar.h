// Follows grammars byte by byte, and says which tokens of a vocabulary may come next.
//
// A grammar is a graph of nodes (py_core/grammar/program.py). A *config* is a place in it: a node, how far it is, and a
// frame, the stack of nodes that called it. A *state* is a set of configs, interned: the same set has the same number.
// So the step from a state by a byte is looked up once it was made, and a mask can be kept by its state.
//
// Most of a mask's tokens lie within one automaton, such as the characters of a string. For each place in an automaton
// these are found once for all grammars (places.c); only tokens that go on behind it are followed with the frames.
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
typedef struct { Block *blocks; } Owner;
void *take(Owner *owner, u32 bytes);  // null if there is no memory
void *grown(Owner *owner, void *old, u32 bytes, u32 wanted);
void release(Owner *owner);
void give_back(Owner *owner, void *block);

// ---- vocabulary.c: tokens by their bytes ----
typedef struct { const u8 *bytes; u32 length, token; } Text;
// The nodes stand in the order of their texts, those below one directly behind it; so do the tokens.
typedef struct {
  u32 count;
  u8 *byte, *depth;  // of a node: the byte that leads to it, and the number of bytes up to it
  u8 *plain;         // the deepest of the bytes below it, if it and they are plain; else 0
  u32 *after;        // the node behind those below it
  u32 *from;         // the first of its tokens; those of the next node follow. One more than there are nodes
  u32 *tokens;
} Trie;
typedef struct {
  Trie trie;
  const u8 *bytes;
  const u32 *offsets;
  u32 tokens, words;
} Vocabulary;
extern Vocabulary vocabulary;
int trie_of(Trie *trie, Owner *owner, Text *texts, u32 count);  // sorts the texts; 0 if there is no memory
INLINE void allow_tokens(u32 *mask, const Trie *trie, u32 from, u32 end) {
  for (u32 i = from; i < end; i++) mask[trie->tokens[i] / 32] |= 1u << trie->tokens[i] % 32;
}
INLINE void allow(u32 *mask, const Trie *trie, u32 node) {
  allow_tokens(mask, trie, trie->from[node], trie->from[node + 1]);
}

// ---- automata.c ----
// Plain bytes mean nothing in JSON's strings, and are characters of their own. Most tokens have no others: where any of
// them may come, those need not be followed byte by byte.
INLINE int is_plain(u8 byte) { return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\'; }
typedef struct Place Place;
typedef struct {
  Owner owner;
  u16 *moves;   // states x 256: the next state + 1, 0 if there is none
  u8 *accepts;  // by state: 1 if a text ends there, 2 if none goes on
  u8 *stays;    // by state: 1 if all plain bytes lead back to it
  u32 states, has_texts, takes_plain;  // takes_plain: each plain byte is a whole text
  Place *places;
} Automaton;
Automaton *automaton(u32 number);

// A place in an automaton: the tokens that stay within it, and what tokens have behind it.
struct Place {
  Place *next;
  u32 state, repeats, left, needed;  // of automata that repeat: how often at most, and at least
  u32 *mask;
  Trie *behind[256];  // the ends of tokens behind the automaton, by their first byte, once they were needed
};
extern Trie too_many;
Place *place_of(Automaton *a, u32 state, u32 repeats, u32 left, u32 needed);  // null if there is no memory
Trie *behind_place(Automaton *a, Place *place, u8 byte);                       // the same; &too_many

// ---- states.c ----
enum { LITERAL, TERMINAL, CHOICE, CALL, RETURN, LOOP };
typedef struct { u32 op, a, b, c, d; } Node;
typedef struct { u32 node, count, parent; } Frame;
typedef struct { u32 node, at, count, frame; } Config;
typedef struct { u32 first, count, accepts; } State;
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
  u32 *frame_slots, *state_slots;
  u32 frame_slots_room, state_slots_room;
  u64 *steps;  // state and byte
  u32 *step_to, steps_used, steps_room;
  u32 failed, work;  // work: of this call of the host
} Grammar;
u32 step(Grammar *g, u32 state, u8 byte);  // NONE if nothing follows, or `failed` is set
u32 state_of(Grammar *g, Config *configs, u32 count, u32 accepts);
u32 state_at(Grammar *g, u32 node, u32 frame);
u32 frame_of(Grammar *g, u32 node, u32 count, u32 parent);
int takes_plain(const Grammar *g, u32 state, u32 count);  // any plain bytes may come next, `count` of them
void first_bytes(const Grammar *g, u32 state, u32 *set);
