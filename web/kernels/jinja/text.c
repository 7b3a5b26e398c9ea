// Text by characters: UTF-8, in which a lone surrogate (Python and JavaScript allow them) is three bytes.
#include "jinja.h"

// Facts about characters beyond ASCII that only the host knows: bits as in jinja.h, and up to three characters of
// another case.
u32 IMPORT(traits)(u32 code);
u32 IMPORT(recase)(u32 code, u32 to, u32 *out);

u32 next_code(Text text, u32 *at) {
  const u8 *bytes = (const u8 *)text.bytes + *at;
  const u32 left = text.length - *at;
  const u32 more = bytes[0] < 0xc0 ? 0 : bytes[0] < 0xe0 ? 1 : bytes[0] < 0xf0 ? 2 : 3;
  if (more >= left || !more) { *at += 1; return bytes[0]; }
  u32 code = bytes[0] & (0x3f >> more);
  for (u32 i = 1; i <= more; i++) code = code << 6 | (bytes[i] & 0x3f);
  *at += more + 1;
  return code;
}

void put_code(Buffer *out, u32 code) {
  if (code < 0x80) { put_char(out, (char)code); return; }
  if (code > 0x10ffff) fail("it has a character that there is not", text_of(""));
  char bytes[4];
  const u32 count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const u8 first[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (u32 i = count - 1; i; i--, code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
  bytes[0] = (char)(first[count] | code);
  put(out, bytes, count);
}

u32 characters(Text text) {
  u32 count = 0;
  for (u32 i = 0; i < text.length; i++) count += (text.bytes[i] & 0xc0) != 0x80;
  return count;
}

u32 byte_at(Text text, u32 character) {
  u32 at = 0;
  for (; at < text.length; at++) {
    if ((text.bytes[at] & 0xc0) == 0x80) continue;
    if (!character--) break;
  }
  return at;
}

Text part(Text text, u32 begin, u32 end) { return (Text){text.bytes + begin, end > begin ? end - begin : 0}; }

int begins(Text text, Text with, u32 at) {
  if (with.length > text.length || at > text.length - with.length) return 0;
  for (u32 i = 0; i < with.length; i++) if (text.bytes[at + i] != with.bytes[i]) return 0;
  return 1;
}

i64 find(Text text, Text what, u32 from) {
  for (u32 at = from; at + what.length <= text.length; at++) if (begins(text, what, at)) return at;
  return -1;
}

int is_space(u32 code) {
  return (code >= 9 && code <= 13) || (code >= 28 && code <= 32) || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

u32 traits_of(u32 code) {
  if (code >= 0x80) return traits(code);
  if (code >= '0' && code <= '9') return DIGIT | DECIMAL | NUMERIC | PRINTABLE;
  if (code >= 'a' && code <= 'z') return ALPHA | LOWER | PRINTABLE;
  if (code >= 'A' && code <= 'Z') return ALPHA | UPPER | PRINTABLE;
  return code >= 32 && code < 127 ? PRINTABLE : 0;
}

void put_case(Buffer *out, u32 code, Case to) {
  if (code >= 0x80) {
    u32 others[3], count = recase(code, to, others);
    for (u32 i = 0; i < count; i++) put_code(out, others[i]);
    return;
  }
  if (to == TO_LOWER && code >= 'A' && code <= 'Z') code += 32;
  if (to != TO_LOWER && code >= 'a' && code <= 'z') code -= 32;
  put_char(out, (char)code);
}

// At the end of a word, a Greek sigma has a different lower case.
static int ends_word(Text text, u32 before, u32 after) {
  u32 last = 0;
  for (u32 at = 0; at < before;) last = next_code(text, &at);
  const int follows = before && (traits_of(last) & ALPHA);
  if (after < text.length) {
    u32 at = after;
    if (traits_of(next_code(text, &at)) & ALPHA) return 0;
  }
  return follows;
}

Text cased(Text text, Case to) {
  Buffer out = {0};
  for (u32 at = 0; at < text.length;) {
    const u32 begin = at, code = next_code(text, &at);
    if (to == TO_LOWER && code == 0x3a3 && ends_word(text, begin, at)) put_code(&out, 0x3c2);
    else put_case(&out, code, to);
  }
  return written(&out);
}

Text capitalized(Text text) {
  if (!text.length) return text;
  Buffer out = {0};
  u32 at = 0;
  put_case(&out, next_code(text, &at), TO_TITLE);
  put_text(&out, cased(part(text, at, text.length), TO_LOWER));
  return written(&out);
}

static int is_one_of(u32 code, const Text *of) {
  if (!of) return is_space(code);
  for (u32 at = 0; at < of->length;) if (next_code(*of, &at) == code) return 1;
  return 0;
}

Text stripped(Text text, const Text *of, int left, int right) {
  u32 begin = 0, end = text.length;
  while (left && begin < end) {
    u32 at = begin;
    if (!is_one_of(next_code(text, &at), of)) break;
    begin = at;
  }
  while (right && end > begin) {
    u32 last = end - 1;
    while (last > begin && (text.bytes[last] & 0xc0) == 0x80) last--;
    u32 at = last;
    if (!is_one_of(next_code(text, &at), of)) break;
    end = last;
  }
  return part(text, begin, end);
}

Text replaced(Text text, Text old, Text new, i64 most) {
  Buffer out = {0};
  u32 at = 0;
  for (i64 count = 0; count != most; count++) {
    // An empty text is found before each character, and at the end.
    i64 found = find(text, old, at);
    if (!old.length) {
      if (count && at >= text.length) break;
      if (count) { const u32 begin = at; next_code(text, &at); put_text(&out, part(text, begin, at)); }
      found = at;
    }
    if (found < 0) break;
    put_text(&out, part(text, at, (u32)found));
    put_text(&out, new);
    at = (u32)found + old.length;
  }
  if (!at && !out.length) return text;
  put_text(&out, part(text, at, text.length));
  return written(&out);
}

// ---- slices ----
static i64 bound(Value value, i64 otherwise, i64 length, i64 least, i64 most) {
  if (value.kind == NONE) return otherwise;
  i64 number = as_int(value);
  if (number < 0) number += length;
  return number < least ? least : number > most ? most : number;
}

Value sliced(Value value, Value begin, Value end, Value step) {
  const int is_string = value.kind == STRING;
  if (!is_string && !is_sequence(defined(value))) fail("a value of the kind % cannot be cut", text_of(kind_name(value)));
  const i64 by = step.kind == NONE ? 1 : as_int(step);
  if (!by) fail("a slice has the step 0", text_of(""));
  const i64 length = is_string ? characters(value.text) : value.list->count;
  const i64 least = by < 0 ? -1 : 0, most = by < 0 ? length - 1 : length;
  const i64 from = bound(begin, by < 0 ? length - 1 : 0, length, least, most);
  const i64 to = bound(end, by < 0 ? -1 : length, length, least, most);
  if (is_string && by == 1)
    return string(from < to ? part(value.text, byte_at(value.text, (u32)from), byte_at(value.text, (u32)to)) : text_of(""));
  List *from_items = items_of(value), *items = new_list(0);
  for (i64 i = from; by > 0 ? i < to : i > to; i += by) {
    append(items, from_items->items[i]);
    if (by > 0 ? by > to - i : by < to - i) break;
  }
  if (!is_string) return list_of(value.kind, items);
  Buffer out = {0};
  for (u32 i = 0; i < items->count; i++) put_text(&out, items->items[i].text);
  return string(written(&out));
}
