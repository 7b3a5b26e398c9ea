// The tokens of a model as a trie, whose nodes stand in the order of their texts. Also tries of other texts.
#include "grammar.h"

Vocabulary vocabulary;
static Owner of_vocabulary;

u32 kind_of[256];

// Of each kind of ASCII the first character: sets that patterns often take whole, and marks of JSON alone.
static const char kinds[] = "\0 !\"#'(*+,-./0:;AG[\\]^_`ag{|}~";

static void make_kinds(void) {
  for (u32 byte = 0, kind = 0; byte < 128; byte++) {
    if (kind + 2 < sizeof kinds && byte == (u8)kinds[kind + 1]) kind++;
    kind_of[byte] = 1u << kind;
  }
  for (u32 byte = 128; byte < 256; byte++) kind_of[byte] = LONG_KIND;
}

u32 after_utf8(u32 state, u32 byte) {
  static const u8 low[] = {0, 0x80, 0xa0, 0x80, 0x80, 0x90, 0x80, 0x80};
  static const u8 high[] = {0, 0xbf, 0xbf, 0xbf, 0x9f, 0xbf, 0xbf, 0x8f};
  static const u8 next[] = {0, 0, 1, 1, 1, 3, 3, 3};
  if (state) return low[state] <= byte && byte <= high[state] ? next[state] : NO_UTF8;
  if (byte < 0x80) return 0;
  if (byte < 0xc2 || byte > 0xf4) return NO_UTF8;
  if (byte < 0xe0) return 1;
  if (byte < 0xf0) return byte == 0xe0 ? 2 : byte == 0xed ? 4 : 3;
  return byte == 0xf0 ? 5 : byte == 0xf4 ? 7 : 6;
}

typedef struct { Trie *trie; Text *spare; } Building;

// Whether what follows below a branch is UTF-8, where its own byte has led to this state.
static int is_utf8(const Branch *branches, u32 branch, u32 state) {
  if (state == NO_UTF8) return 0;
  for (u32 i = branch + 1; i < branches[branch].after; i = branches[i].after)
    if (state ? !is_utf8(branches, i, after_utf8(state, branches[i].byte)) : branches[i].kinds >> 31) return 0;
  return 1;
}

// What a branch has by itself and by those below it.
static void sum_up(Branch *branches, u32 branch) {
  Branch *b = branches + branch;
  u8 most = 0;
  b->kinds = kind_of[b->byte];
  for (u32 i = branch + 1; i < b->after; i = branches[i].after) {
    b->kinds |= branches[i].kinds;
    if (branches[i].characters > most) most = branches[i].characters;
  }
  b->characters = (u8)(most + ((b->byte & 0xc0) != 0x80));
  b->kinds &= ~(u32)BROKEN;
  if (!is_utf8(branches, branch, after_utf8(0, b->byte))) b->kinds |= (u32)BROKEN;
}

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

// Add the branches below the one of texts[first, end), which begin with the same `depth` bytes, and are longer.
static void build(const Building *b, Text *texts, u32 first, u32 end, u32 depth) {
  Trie *trie = b->trie;
  sort(texts, b->spare, first, end, depth);
  while (first < end) {
    const u8 byte = texts[first].bytes[depth];
    const u32 branch = trie->count++;
    u32 last = first;
    while (last < end && texts[last].bytes[depth] == byte) last++;
    trie->branches[branch] = (Branch){.byte = byte, .depth = (u8)(depth + 1), .from = first};
    // Those that end here go first.
    for (u32 i = first; i < last; i++) {
      if (texts[i].length > depth + 1) continue;
      const Text text = texts[i];
      texts[i] = texts[first];
      texts[first] = text;
      trie->tokens[first++] = text.token;
    }
    build(b, texts, first, last, depth + 1);
    trie->branches[branch].after = trie->count;
    sum_up(trie->branches, branch);
    first = last;
  }
}

int trie_of(Trie *trie, Owner *owner, Text *texts, u32 count) {
  u32 bytes = 0;
  for (u32 i = 0; i < count; i++) bytes += texts[i].length;
  *trie = (Trie){0, take(owner, (bytes + 1) * sizeof(Branch)), take(owner, 4 * count)};
  const Building building = {trie, take(owner, count * sizeof(Text))};
  if (!trie->branches || !trie->tokens || !building.spare) return 0;
  build(&building, texts, 0, count, 0);
  trie->branches[trie->count] = (Branch){.from = count, .after = trie->count};
  give_back(owner, building.spare);
  // Copied to what is just large enough.
  const u32 used = (trie->count + 1) * sizeof(Branch);
  return (trie->branches = grown(owner, trie->branches, used, used)) != 0;
}

// bytes: of all tokens, one after the other; offsets: count + 1. A token without bytes is never allowed. Both stay.
u32 EXPORT(set_vocabulary)(const u8 *bytes, const u32 *offsets, u32 count) {
  release(&of_vocabulary);
  vocabulary = (Vocabulary){.bytes = bytes, .offsets = offsets, .tokens = count, .words = (count + 31) / 32};
  Text *texts = take(&of_vocabulary, count * sizeof(Text));
  vocabulary.all = take(&of_vocabulary, 4 * vocabulary.words);
  if (!texts || !vocabulary.all) return 0;
  make_kinds();
  u32 used = 0;
  for (u32 token = 0; token < count; token++) {
    const u32 length = offsets[token + 1] - offsets[token];
    if (length && length <= LONGEST) texts[used++] = (Text){bytes + offsets[token], length, token};
  }
  const int made = trie_of(&vocabulary.trie, &of_vocabulary, texts, used);
  give_back(&of_vocabulary, texts);
  if (!made) return 0;
  const Trie *trie = &vocabulary.trie;
  allow(vocabulary.all, trie, 0, trie->count);
  for (u32 byte = 0; byte < 256; byte++) vocabulary.first[byte] = NONE;
  for (u32 i = 0; i < trie->count; i = trie->branches[i].after) vocabulary.first[trie->branches[i].byte] = i;
  return 1;
}

int keep_mask(Kept *kept, const u32 *mask) {
  if (!kept->mask) kept->mask = take(&of_vocabulary, 4 * vocabulary.words);
  if (kept->mask) __builtin_memcpy(kept->mask, mask, 4 * vocabulary.words);
  return kept->mask != 0;
}

static Owner of_host;
void *EXPORT(allocate)(u32 bytes) { return take(&of_host, bytes); }
void EXPORT(give)(void *memory) { give_back(&of_host, memory); }
