// Memory is only allocated, never freed: an instance renders one template. Also growing text, and error exits.
#include "jinja.h"

void IMPORT(refuse)(u32 kind, const char *words, u32 length);  // throws

extern char __heap_base;
static char *top;  // the beginning of free memory
static u32 depth;

static void reserve(u64 bytes) {
  if (!top) top = &__heap_base;
  const u64 end = (u64)(u32)top + bytes;
  const u64 there = (u64)__builtin_wasm_memory_size(0) << 16;
  if (end <= there) return;
  const u64 pages = (end - there + 65535) >> 16;
  if (pages > 65535 || __builtin_wasm_memory_grow(0, (u32)pages) == (u32)-1)
    stop(COSTLY, text_of("it takes too much memory"));
}

void *take(u64 bytes) {
  reserve(bytes + 8);
  char *begin = (char *)(((u32)top + 7) & ~7u);
  top = begin + bytes;
  return begin;
}

void stop(u32 kind, Text words) {
  refuse(kind, words.bytes, words.length);
  __builtin_trap();
}

static Text filled(const char *pattern, Text what) {
  static char words[400];
  u32 length = 0;
  for (; *pattern && length < 300; pattern++) {
    if (*pattern != '%') { words[length++] = *pattern; continue; }
    // A long name is cut between two characters.
    u32 shown = what.length;
    if (shown > 80) for (shown = 80; shown && (what.bytes[shown] & 0xc0) == 0x80; shown--) {}
    __builtin_memcpy(words + length, what.bytes, shown);
    length += shown;
  }
  return (Text){words, length};
}

void fail(const char *pattern, Text what) { stop(FAILED, filled(pattern, what)); }
void too_large(void) { stop(COSTLY, text_of("it makes a number that is too large")); }

void broken(u32 line, const char *pattern, Text what) {
  Buffer out = {0};
  put_text(&out, text_of("in line "));
  put_number(&out, line);
  put_text(&out, text_of(": "));
  put_text(&out, filled(pattern, what));
  stop(BROKEN, written(&out));
}

void enter(void) { if (++depth > MAX_DEPTH) stop(COSTLY, text_of("it nests too deep")); }
void leave(void) { depth--; }

// ---- text ----
static char *text_room(u32 bytes) {
  reserve(bytes);
  char *begin = top;
  top += bytes;
  return begin;
}

static void check_length(u64 bytes) {
  if (bytes > MAX_OUTPUT) stop(COSTLY, text_of("it makes a text that is too long"));
}

void put(Buffer *out, const char *bytes, u32 length) {
  const u64 needed = (u64)out->length + length;
  if (needed > out->room) {
    check_length(needed);
    const u64 room = needed * 2 < 64 ? 64 : needed * 2;
    if (out->bytes && out->bytes + out->room == top) {
      text_room((u32)room - out->room);  // it is the last allocation: grow in place
    } else {
      char *moved = text_room((u32)room);
      if (out->length) __builtin_memcpy(moved, out->bytes, out->length);
      out->bytes = moved;
    }
    out->room = (u32)room;
  }
  __builtin_memcpy(out->bytes + out->length, bytes, length);
  out->length += length;
}

void put_text(Buffer *out, Text text) { put(out, text.bytes, text.length); }
void put_char(Buffer *out, char c) { put(out, &c, 1); }

void put_number(Buffer *out, i64 number) {
  char digits[24];
  u32 at = sizeof digits;
  u64 rest = number < 0 ? 0 - (u64)number : (u64)number;
  do { digits[--at] = (char)('0' + rest % 10); rest /= 10; } while (rest);
  if (number < 0) digits[--at] = '-';
  put(out, digits + at, sizeof digits - at);
}

Text text_of(const char *bytes) {
  u32 length = 0;
  while (bytes[length]) length++;
  return (Text){bytes, length};
}

Text written(const Buffer *out) { return (Text){out->length ? out->bytes : "", out->length}; }

// If `a` is the last allocation, `b` is appended in place: text that a loop adds to is not copied each time.
Text joined(Text a, Text b) {
  if (!a.length) return b;
  if (!b.length) return a;
  check_length((u64)a.length + b.length);
  if (a.bytes + a.length == top) {
    __builtin_memcpy(text_room(b.length), b.bytes, b.length);
    return (Text){a.bytes, a.length + b.length};
  }
  char *both = text_room(a.length + b.length);
  __builtin_memcpy(both, a.bytes, a.length);
  __builtin_memcpy(both + a.length, b.bytes, b.length);
  return (Text){both, a.length + b.length};
}

int same(Text a, Text b) {
  if (a.length != b.length) return 0;
  for (u32 i = 0; i < a.length; i++) if (a.bytes[i] != b.bytes[i]) return 0;
  return 1;
}

int is(Text a, const char *b) {
  u32 i = 0;
  for (; i < a.length && b[i]; i++) if (a.bytes[i] != b[i]) return 0;
  return i == a.length && !b[i];
}

// ---- entry points ----
static Text given;
static Buffer output;

char *EXPORT(request)(u32 bytes) {
  given = (Text){take(bytes), bytes};
  return (char *)given.bytes;
}

static Value field(Value of, const char *name) {
  const Value *found = find_key(of.dict, string(text_of(name)));
  return found ? *found : none();
}

static Node *parsed(Value asked) {
  Value source = field(asked, "source");
  if (source.kind != STRING) stop(BROKEN, text_of("it is not text"));
  lex(source.text);
  return parse_template();
}

// Returns whether the template is valid; the request needs only its source.
void EXPORT(check)(void) { parsed(parse_json(given)); }

// Returns the number of bytes at `output`.
u32 EXPORT(render)(void) {
  Value asked = parse_json(given), variables = field(asked, "variables");
  Node *tree = parsed(asked);
  set_clock(field(asked, "now"));
  Scope *scope = scope_in(0);
  if (variables.kind == DICT) {
    for (u32 i = 0; i < variables.dict->count; i++) {
      Pair *pair = variables.dict->pairs + i;
      bind(scope, pair->key.text, pair->value);
    }
  }
  run(tree, scope_in(scope), &output);
  return output.length;
}

const char *EXPORT(output_bytes)(void) { return written(&output).bytes; }
