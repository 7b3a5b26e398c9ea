// Deterministic automata of bytes, which grammars share.
#include "grammar.h"

enum { MOST = 1 << 16 };
static Owner of_automata;
static Automaton *all;
static u32 used, room, *unused, unused_count;  // numbers of automata that were dropped

Automaton *automaton(u32 number) { return all + number; }

// runs: of each state in turn (first byte, last byte, next state), `counts` of them; accepts: a byte a state. Returns the
// automaton's number, NONE if there is no memory. Moves to states from which no text ends are left out.
u32 EXPORT(add_automaton)(const u32 *runs, const u32 *counts, const u8 *accepts, u32 states) {
  if (!unused_count && used == room) {
    Automaton *more = grown(&of_automata, all, used * sizeof(Automaton), (room ? room * 2 : 64) * sizeof(Automaton));
    if (!more || states >= MOST - 1) return NONE;
    u32 *numbers = grown(&of_automata, unused, 4 * unused_count, (room ? room * 2 : 64) * 4);
    if (!numbers) return NONE;
    all = more;
    unused = numbers;
    room = room ? room * 2 : 64;
  }
  Automaton a = {.states = states, .takes_plain = 1};
  a.moves = take(&a.owner, states * 512);
  a.accepts = take(&a.owner, states);
  a.stays = take(&a.owner, states);
  u8 *ends = take(&a.owner, states);
  if (!a.moves || !a.accepts || !a.stays || !ends) return NONE;
  for (u32 state = 0; state < states; state++) ends[state] = a.accepts[state] = accepts[state];
  for (int changed = 1; changed;) {
    changed = 0;
    const u32 *run = runs;
    for (u32 state = 0; state < states; state++)
      for (u32 i = 0; i < counts[state]; i++, run += 3)
        if (!ends[state] && ends[run[2]]) ends[state] = changed = 1;
  }
  for (u32 state = 0; state < states; state++)
    for (u32 i = 0; i < counts[state]; i++, runs += 3)
      for (u32 byte = runs[0]; byte <= runs[1] && ends[runs[2]]; byte++) a.moves[state * 256 + byte] = (u16)(runs[2] + 1);
  for (u32 state = 0; state < states; state++) {
    u32 moves = 0;
    for (u32 byte = 0; byte < 256; byte++) moves |= a.moves[state * 256 + byte];
    if (a.accepts[state] && !moves) a.accepts[state] = 2;
    a.stays[state] = 1;
    for (u32 byte = 0; byte < 256; byte++)
      if (is_plain((u8)byte) && a.moves[state * 256 + byte] != state + 1) a.stays[state] = 0;
  }
  for (u32 byte = 0; byte < 256; byte++)
    if (is_plain((u8)byte) && !(a.moves[byte] && a.accepts[a.moves[byte] - 1] == 2)) a.takes_plain = 0;
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

static u32 least(u32 a, u32 b) { return a < b ? a : b; }

Trie too_many;

enum { MOST_BEHIND = 1 << 13 };
typedef struct { u16 state; u8 times, leaves; } Depth;
enum { STAYS, MAY_LEAVE, MUST_LEAVE };

// Follow all tokens through the automaton. Mark those that end within it; or append what the others have behind it, if
// that begins with `byte`. Returns 0 if there are too many.
static int follow(const Automaton *a, const Place *place, u32 *mask, u32 byte, Text *texts, u32 *found) {
  const Trie *trie = &vocabulary.trie;
  static Depth path[LONGEST + 1];
  path[0] = (Depth){(u16)place->state, 0, STAYS};
  for (u32 i = 0; i < trie->count;) {
    const Depth before = path[trie->depth[i] - 1];
    if (trie->plain[i] && (mask || !is_plain((u8)byte))) {
      const u32 more = trie->plain[i] - trie->depth[i] + 1u;
      const int fits = before.leaves != MUST_LEAVE && before.times + more <= place->left;
      if (place->repeats ? a->takes_plain && !before.state && fits : a->stays[before.state]) {
        if (mask) allow_tokens(mask, trie, trie->from[i], trie->from[trie->after[i]]);
        i = trie->after[i];
        continue;
      }
    }
    if (texts && before.leaves && trie->byte[i] == byte)
      for (u32 j = trie->from[i]; j < trie->from[trie->after[i]]; j++) {
        if (*found == MOST_BEHIND) return 0;
        const u32 token = trie->tokens[j], begin = vocabulary.offsets[token] + trie->depth[i] - 1;
        texts[(*found)++] = (Text){vocabulary.bytes + begin, vocabulary.offsets[token + 1] - begin, token};
      }
    const u16 next = before.leaves == MUST_LEAVE ? 0 : a->moves[before.state * 256 + trie->byte[i]];
    if (!next) {
      i = trie->after[i];
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
    path[trie->depth[i]] = now;
    if (mask) allow(mask, trie, i);
    i++;
  }
  return 1;
}

Place *place_of(Automaton *a, u32 state, u32 repeats, u32 left, u32 needed) {
  // A token has LONGEST characters at most: if more are left or needed, it makes no difference how many.
  left = least(left, LONGEST + 1);
  needed = least(needed, LONGEST + 1);
  for (Place *one = a->places; one; one = one->next)
    if (one->state == state && one->left == left && one->needed == needed && one->repeats == repeats) return one;
  Place *place = take(&a->owner, sizeof(Place));
  if (!place) return 0;
  *place = (Place){.next = a->places, .state = state, .repeats = repeats, .left = left, .needed = needed};
  place->mask = take(&a->owner, 4 * vocabulary.words + 4);
  if (!place->mask) return 0;
  follow(a, place, place->mask, 0, 0, 0);
  a->places = place;
  return place;
}

Trie *behind_place(Automaton *a, Place *place, u8 byte) {
  if (place->behind[byte]) return place->behind[byte];
  static Text texts[MOST_BEHIND];
  Trie *trie = take(&a->owner, sizeof(Trie));
  u32 found = 0;
  if (!trie) return 0;
  if (!follow(a, place, 0, byte, texts, &found)) trie = &too_many;
  else if (!trie_of(trie, &a->owner, texts, found)) trie = 0;
  return place->behind[byte] = trie;
}
