// Deterministic automata of bytes, which grammars share.
#include "grammar.h"

enum { MOST = 1 << 16 };
static Owner of_automata;
static Automaton *all;
static u32 used, room, *unused, unused_count;  // numbers of automata that were dropped

Automaton *automaton(u32 number) { return all + number; }

// runs: of each state in turn (first byte, last byte, next state), `counts` of them; accepts: a byte a state. Returns the
// automaton's number, NONE if there is no memory, or if it has more states than 16 bits number. Moves to states from which
// no text ends are left out.
u32 EXPORT(add_automaton)(const u32 *runs, const u32 *counts, const u8 *accepts, u32 states) {
  if (states >= MOST - 1) return NONE;
  if (!unused_count && used == room) {
    Automaton *more = grown(&of_automata, all, used * sizeof(Automaton), (room ? room * 2 : 64) * sizeof(Automaton));
    if (!more) return NONE;
    u32 *numbers = grown(&of_automata, unused, 4 * unused_count, (room ? room * 2 : 64) * 4);
    if (!numbers) return NONE;
    all = more;
    unused = numbers;
    room = room ? room * 2 : 64;
  }
  Automaton a = {.states = states};
  a.moves = take(&a.owner, states * 512);
  a.accepts = take(&a.owner, states);
  a.first = take(&a.owner, states * sizeof *a.first);
  a.stays = take(&a.owner, 4 * states);
  u8 *ends = take(&a.owner, states);
  if (!a.moves || !a.accepts || !a.first || !a.stays || !ends) {
    release(&a.owner);
    return NONE;
  }
  u32 count = 0;
  for (u32 state = 0; state < states; state++) {
    ends[state] = a.accepts[state] = accepts[state];
    count += counts[state];
  }
  // Backwards, since most moves lead to later states: so a long text takes one round, and not one a byte.
  for (int changed = 1; changed;) {
    changed = 0;
    const u32 *run = runs + 3 * count;
    for (u32 state = states; state-- > 0;)
      for (u32 i = 0; i < counts[state]; i++) {
        run -= 3;
        if (!ends[state] && ends[run[2]]) ends[state] = changed = 1;
      }
  }
  for (u32 state = 0; state < states; state++)
    for (u32 i = 0; i < counts[state]; i++, runs += 3)
      for (u32 byte = runs[0]; byte <= runs[1] && ends[runs[2]]; byte++) a.moves[state * 256 + byte] = (u16)(runs[2] + 1);
  for (u32 state = 0; state < states; state++) {
    u32 moves = 0;
    for (u32 byte = 0; byte < 256; byte++)
      if (a.moves[state * 256 + byte]) a.first[state][byte / 32] |= 1u << byte % 32;
    for (u32 i = 0; i < 8; i++) moves |= a.first[state][i];
    if (a.accepts[state] && !moves) a.accepts[state] = 2;
  }
  a.has_texts = ends[0];
  give_back(&a.owner, ends);
  const u32 number = unused_count ? unused[--unused_count] : used++;
  all[number] = a;
  return number;
}

// No grammar that is open has this automaton.
void EXPORT(drop_automaton)(u32 number) {
  Owner owner = all[number].owner;
  release(&owner);
  unused[unused_count++] = number;
}

// Whether each character of several bytes, of which `utf8` tells what was read, leads to the state `home`; or, if that is
// NONE, is the end of a text.
static int long_lead(const Automaton *a, u32 state, u32 utf8, u32 home) {
  u32 before = 0;
  for (u32 byte = 0x80; byte < 256; byte++) {
    const u32 more = after_utf8(utf8, byte), next = a->moves[state * 256 + byte];
    if (more == NO_UTF8) continue;
    if (!next || (home == NONE ? !a->accepts[next - 1] == !more : !more && next - 1 != home)) return 0;
    // The same as for the byte before.
    if (more && before != (next << 4 | more) && !long_lead(a, next - 1, more, home)) return 0;
    before = next << 4 | more;
  }
  return 1;
}

// The kinds of which each character leads from a state to the state `home`; or, if that is NONE, is the end of a text.
static u32 kinds_that_lead(const Automaton *a, u32 state, u32 home) {
  u32 kinds = ~(u32)BROKEN;
  for (u32 byte = 0; byte < 128; byte++) {
    const u32 next = a->moves[state * 256 + byte];
    if (!next || (home == NONE ? !a->accepts[next - 1] : next - 1 != home)) kinds &= ~kind_of[byte];
  }
  return long_lead(a, state, 0, home) ? kinds : kinds & ~(u32)LONG_KIND;
}

// BROKEN says that they are known; no automaton goes on with all that is not UTF-8.
u32 kinds_that_stay(Automaton *a, u32 state) {
  if (!a->stays[state]) a->stays[state] = kinds_that_lead(a, state, state) | (u32)BROKEN;
  return a->stays[state] & ~(u32)BROKEN;
}

u32 whole_kinds(Automaton *a) {
  if (!a->whole) a->whole = kinds_that_lead(a, 0, NONE) | (u32)BROKEN;
  return a->whole & ~(u32)BROKEN;
}

static u32 least(u32 a, u32 b) { return a < b ? a : b; }

Trie too_many;

enum { MOST_BEHIND = 1 << 13, FEW_CHARACTERS = 8 };
typedef struct { u16 state; u8 times, leaves; } Depth;
enum { STAYS, MAY_LEAVE, MUST_LEAVE };

// Whether more than half of the tokens most likely stay within the automaton: those whose first byte leads to a state
// that stays for all letters.
static int keeps_most(Automaton *a, const Place *place) {
  const Trie *trie = &vocabulary.trie;
  const u32 letters = kind_of['a'] | kind_of['g'] | kind_of['A'] | kind_of['G'];
  u32 tokens = 0;
  if (place->repeats && (place->left < FEW_CHARACTERS || letters & ~whole_kinds(a))) return 0;
  for (u32 i = 0; i < trie->count; i = trie->branches[i].after) {
    const Branch *b = trie->branches + i;
    const u32 next = a->moves[place->state * 256 + b->byte];
    if (next && (place->repeats || !(letters & ~kinds_that_stay(a, next - 1))))
      tokens += trie->branches[b->after].from - b->from;
  }
  return 2 * tokens > trie->branches[trie->count].from;
}

// Follow all tokens through the automaton. Mark those that end within it; or append what the others have behind it, if
// that begins with `byte`. Returns 0 if there are too many.
static int follow(Automaton *a, const Place *place, u32 *mask, u32 byte, Text *texts, u32 *found) {
  const Trie *trie = &vocabulary.trie;
  const int from_all = mask && keeps_most(a, place);
  static Depth path[LONGEST + 1];
  path[0] = (Depth){(u16)place->state, 0, STAYS};
  if (from_all) __builtin_memcpy(mask, vocabulary.all, 4 * vocabulary.words);
  for (u32 i = 0; i < trie->count;) {
    const Branch *b = trie->branches + i;
    const Depth before = path[b->depth - 1];
    if (mask) {
      const int fits = before.leaves != MUST_LEAVE && before.times + b->characters <= place->left;
      const u32 kinds = !place->repeats ? kinds_that_stay(a, before.state) : fits && !before.state ? whole_kinds(a) : 0;
      if (!(b->kinds & ~kinds)) {
        if (!from_all) allow(mask, trie, i, b->after);
        i = b->after;
        continue;
      }
    } else if (!(b->kinds & kind_of[byte])) {
      i = b->after;
      continue;
    }
    if (texts && before.leaves && b->byte == byte)
      for (u32 j = b->from; j < trie->branches[b->after].from; j++) {
        if (*found == MOST_BEHIND) return 0;
        const u32 token = trie->tokens[j], begin = vocabulary.offsets[token] + b->depth - 1;
        texts[(*found)++] = (Text){vocabulary.bytes + begin, vocabulary.offsets[token + 1] - begin, token};
      }
    const u16 next = before.leaves == MUST_LEAVE ? 0 : a->moves[before.state * 256 + b->byte];
    if (!next) {
      if (from_all) refuse(mask, trie, i, b->after);
      i = b->after;
      continue;
    }
    Depth now = {(u16)(next - 1), before.times, STAYS};
    if (a->accepts[now.state] && place->repeats) {
      now.state = 0;
      now.times++;
      now.leaves = now.times >= place->left ? MUST_LEAVE : now.times >= place->needed ? MAY_LEAVE : STAYS;
    } else if (a->accepts[now.state]) {
      now.leaves = MAY_LEAVE;
    }
    path[b->depth] = now;
    if (mask && !from_all) allow(mask, trie, i, i + 1);
    i++;
  }
  return 1;
}

// Of all automata: those that were dropped leave theirs until all are forgotten.
static Owner of_places;
enum { MOST_PLACES = 64 << 20 };  // bytes

void forget_places(void) {
  if (of_places.bytes < MOST_PLACES) return;
  release(&of_places);
  for (u32 i = 0; i < used; i++) all[i].places = 0;
}

Place *place_of(Automaton *a, u32 state, u32 repeats, u32 left, u32 needed) {
  // A token has LONGEST characters at most: if more are left or needed, it makes no difference how many.
  left = least(left, LONGEST + 1);
  needed = least(needed, LONGEST + 1);
  for (Place *one = a->places; one; one = one->next)
    if (one->state == state && one->left == left && one->needed == needed && one->repeats == repeats) return one;
  Place *place = take(&of_places, sizeof(Place));
  if (!place) return 0;
  *place = (Place){.next = a->places, .state = state, .repeats = repeats, .left = left, .needed = needed};
  a->places = place;
  return place;
}

const u32 *mask_of_place(Automaton *a, Place *place) {
  if (place->mask) return place->mask;
  place->mask = take(&of_places, 4 * vocabulary.words);
  if (place->mask) follow(a, place, place->mask, 0, 0, 0);
  return place->mask;
}

Trie *behind_place(Automaton *a, Place *place, u8 byte) {
  if (place->behind[byte]) return place->behind[byte];
  static Text texts[MOST_BEHIND];
  Trie *trie = take(&of_places, sizeof(Trie));
  u32 found = 0;
  if (!trie) return 0;
  if (!follow(a, place, 0, byte, texts, &found)) trie = &too_many;
  else if (!trie_of(trie, &of_places, texts, found)) trie = 0;
  return place->behind[byte] = trie;
}
