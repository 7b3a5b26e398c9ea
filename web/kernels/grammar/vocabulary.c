// The tokens of a model as a trie, whose nodes stand in the order of their texts. Also tries of other texts.
#include "grammar.h"

Vocabulary vocabulary;
static Owner of_vocabulary;

typedef struct { Trie *trie; Text *spare; } Building;

// Sort texts[first, end), which are longer than `depth`, by their byte there.
static void sort(Text *texts, Text *spare, u32 first, u32 end, u32 depth) {
  u32 places[257] = {0};
#define KEY(text) ((text).bytes[depth])
  if (end - first < 24) {
    for (u32 i = first + 1; i < end; i++) {
      const Text text = texts[i];
      u32 at = i;
      for (; at > first && KEY(texts[at - 1]) > KEY(text); at--) texts[at] = texts[at - 1];
      texts[at] = text;
    }
    return;
  }
  for (u32 i = first; i < end; i++) places[KEY(texts[i]) + 1u]++;
  for (u32 key = 1; key < 257; key++) places[key] += places[key - 1];
  for (u32 i = first; i < end; i++) spare[first + places[KEY(texts[i])]++] = texts[i];
  __builtin_memcpy(texts + first, spare + first, (end - first) * sizeof(Text));
#undef KEY
}

// Add the nodes below the one of texts[first, end), which begin with the same `depth` bytes, and are longer.
static void build(const Building *b, Text *texts, u32 first, u32 end, u32 depth) {
  Trie *trie = b->trie;
  sort(texts, b->spare, first, end, depth);
  while (first < end) {
    const u8 byte = texts[first].bytes[depth];
    const u32 node = trie->count++;
    u32 last = first;
    while (last < end && texts[last].bytes[depth] == byte) last++;
    trie->byte[node] = byte;
    trie->depth[node] = (u8)(depth + 1);
    trie->from[node] = first;
    // Those that end here go first.
    for (u32 i = first; i < last; i++) {
      if (texts[i].length > depth + 1) continue;
      const Text text = texts[i];
      texts[i] = texts[first];
      texts[first] = text;
      trie->tokens[first++] = text.token;
    }
    build(b, texts, first, last, depth + 1);
    trie->after[node] = trie->count;
    u8 plain = is_plain(byte) ? (u8)(depth + 1) : 0;
    for (u32 i = node + 1; plain && i < trie->count; i = trie->after[i])
      plain = trie->plain[i] > plain || !trie->plain[i] ? trie->plain[i] : plain;
    trie->plain[node] = plain;
    first = last;
  }
}

// What is larger than needed is copied to what is just large enough.
static void *fitting(Owner *owner, void *memory, u32 bytes) { return grown(owner, memory, bytes, bytes); }

int trie_of(Trie *trie, Owner *owner, Text *texts, u32 count) {
  u32 bytes = 0;
  for (u32 i = 0; i < count; i++) bytes += texts[i].length;
  *trie = (Trie){0, take(owner, bytes), take(owner, bytes), take(owner, bytes), take(owner, 4 * bytes),
                 take(owner, 4 * bytes + 4), take(owner, 4 * count)};
  const Building building = {trie, take(owner, count * sizeof(Text))};
  if (!trie->byte || !trie->depth || !trie->plain || !trie->after || !trie->from || !trie->tokens || !building.spare) return 0;
  build(&building, texts, 0, count, 0);
  trie->from[trie->count] = count;
  give_back(owner, building.spare);
  trie->byte = fitting(owner, trie->byte, trie->count);
  trie->depth = fitting(owner, trie->depth, trie->count);
  trie->plain = fitting(owner, trie->plain, trie->count);
  trie->after = fitting(owner, trie->after, 4 * trie->count);
  trie->from = fitting(owner, trie->from, 4 * trie->count + 4);
  return trie->byte && trie->depth && trie->plain && trie->after && trie->from;
}

// bytes: of all tokens, one after the other; offsets: count + 1. A token without bytes is never allowed. Both stay.
u32 EXPORT(set_vocabulary)(const u8 *bytes, const u32 *offsets, u32 count) {
  release(&of_vocabulary);
  vocabulary = (Vocabulary){.bytes = bytes, .offsets = offsets, .tokens = count, .words = (count + 31) / 32};
  Text *texts = take(&of_vocabulary, count * sizeof(Text));
  if (!texts) return 0;
  u32 used = 0;
  for (u32 token = 0; token < count; token++) {
    const u32 length = offsets[token + 1] - offsets[token];
    if (length && length <= LONGEST) texts[used++] = (Text){bytes + offsets[token], length, token};
  }
  const int made = trie_of(&vocabulary.trie, &of_vocabulary, texts, used);
  give_back(&of_vocabulary, texts);
  return (u32)made;
}

static Owner of_host;
void *EXPORT(allocate)(u32 bytes) { return take(&of_host, bytes); }
void EXPORT(give)(void *memory) { give_back(&of_host, memory); }
