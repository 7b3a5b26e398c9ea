// Converts the host's JSON to values. The host writes it, so an error in it is a bug of the host.
#include "jinja.h"

static Text text;
static u32 at;

static _Noreturn void wrong(void) { fail("the conversation cannot be read", text_of("")); }

static char here(void) {
  while (at < text.length && (u8)text.bytes[at] <= ' ') at++;
  if (at >= text.length) wrong();
  return text.bytes[at];
}

static u32 read_hex(void) {
  u32 code = 0;
  for (u32 end = at + 4; at < end; at++) {
    if (at >= text.length) wrong();
    const char c = text.bytes[at];
    code = code << 4 | (u32)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  }
  return code & 0xffff;
}

static Text read_text(void) {
  Buffer out = {0};
  for (at++;;) {
    // A run without escapes is copied unchanged.
    const u32 begin = at;
    while (at < text.length && text.bytes[at] != '"' && text.bytes[at] != '\\') at++;
    if (at >= text.length) wrong();
    put_text(&out, part(text, begin, at));
    if (text.bytes[at++] == '"') return written(&out);
    if (at >= text.length) wrong();
    const char c = text.bytes[at++];
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    u32 known = 0;
    while (from[known] && from[known] != c) known++;
    if (from[known]) { put_char(&out, to[known]); continue; }
    if (c != 'u') { put_char(&out, c); continue; }
    u32 code = read_hex();
    if (code >= 0xd800 && code < 0xdc00 && begins(text, text_of("\\u"), at)) {
      const u32 back = at;
      at += 2;
      const u32 low = read_hex();
      if (low >= 0xdc00 && low < 0xe000) code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      else at = back;
    }
    put_code(&out, code);
  }
}

static Value read_number(void) {
  const u32 begin = at;
  int whole = 1;
  for (; at < text.length; at++) {
    const char c = text.bytes[at];
    if (c == '.' || (c | 32) == 'e') whole = 0;
    else if (c != '-' && c != '+' && (c < '0' || c > '9')) break;
  }
  Value number = number_from(part(text, begin, at), whole);
  if (number.kind == UNDEFINED) wrong();
  return number;
}

static int skip_word(const char *word) {
  if (!begins(text, text_of(word), at)) return 0;
  at += text_of(word).length;
  return 1;
}

static Value read_value(void);

static Value read_list(void) {
  List *list = new_list(0);
  for (at++; here() != ']';) {
    if (list->count && text.bytes[at++] != ',') wrong();
    append(list, read_value());
  }
  at++;
  return list_of(LIST, list);
}

static Value read_dict(void) {
  Dict *dict = new_dict();
  for (at++; here() != '}';) {
    if (dict->count && text.bytes[at++] != ',') wrong();
    if (here() != '"') wrong();
    Value key = string(read_text());
    if (here() != ':') wrong();
    at++;
    set_key(dict, key, read_value());
  }
  at++;
  return dict_value(dict);
}

static Value read_value(void) {
  Value value;
  enter();
  const char c = here();
  if (c == '"') value = string(read_text());
  else if (c == '[') value = read_list();
  else if (c == '{') value = read_dict();
  else if (skip_word("null")) value = none();
  else if (skip_word("true")) value = boolean(1);
  else if (skip_word("false")) value = boolean(0);
  else if (skip_word("NaN")) value = floating(__builtin_nan(""));
  else if (skip_word("Infinity")) value = floating(__builtin_inf());
  else if (skip_word("-Infinity")) value = floating(-__builtin_inf());
  else value = read_number();
  leave();
  return value;
}

Value parse_json(Text given) {
  text = given;
  at = 0;
  Value value = read_value();
  if (value.kind != DICT) wrong();
  return value;
}
