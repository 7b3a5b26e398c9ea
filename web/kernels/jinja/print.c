// Prints values like Python's str and repr, and like its json.dumps.
#include "jinja.h"

// The host's shortest decimal digits of a number, in any notation, and a number from its digits.
u32 IMPORT(number_text)(f64 number, char *out);
f64 IMPORT(text_number)(const char *bytes, u32 length);

void put_float(Buffer *out, f64 number) {
  if (number != number) { put_text(out, text_of("nan")); return; }
  if (__builtin_isinf(number)) { put_text(out, text_of(number < 0 ? "-inf" : "inf")); return; }
  char given[40], digits[40];
  const u32 length = number_text(__builtin_fabs(number), given);
  u32 count = 0;
  i32 point = 0, exponent = 0, sign = 1;
  int behind = 0;
  for (u32 i = 0; i < length; i++) {
    const char c = given[i];
    if (c == '.') { behind = 1; continue; }
    if (c == 'e' || c == 'E') {
      for (i++; i < length; i++) {
        if (given[i] == '-') sign = -1;
        else if (given[i] != '+') exponent = exponent * 10 + (given[i] - '0');
      }
      break;
    }
    if (count || c != '0') digits[count++] = c;
    if (!behind && count) point++;
    if (behind && !count) point--;
  }
  point += sign * exponent;
  while (count > 1 && digits[count - 1] == '0') count--;
  if (__builtin_signbit(number)) put_char(out, '-');
  if (!count) { put_text(out, text_of("0.0")); return; }
  // 0.DIGITS times ten to the power of `point`; Python switches to an exponent below 1e-4 and from 1e16 on.
  if (point > -4 && point <= 16) {
    if (point <= 0) put_text(out, text_of("0."));
    for (i32 i = point; i < 0; i++) put_char(out, '0');
    for (i32 i = 0; i < (i32)count || i < point; i++) {
      if (i && i == point) put_char(out, '.');
      put_char(out, i < (i32)count ? digits[i] : '0');
    }
    if ((i32)count <= point) put_text(out, text_of(".0"));
    return;
  }
  put_char(out, digits[0]);
  if (count > 1) put_char(out, '.');
  put(out, digits + 1, count - 1);
  put_text(out, text_of(point > 0 ? "e+" : "e-"));
  const i32 power = point > 0 ? point - 1 : 1 - point;
  if (power < 10) put_char(out, '0');
  put_number(out, power);
}

// [sign] digits [. digits] [e exponent], with blanks around; whole: only digits.
Value number_from(Text text, int whole) {
  text = stripped(text, 0, 1, 1);
  u32 at = 0, digits = 0;
  i64 number = 0;
  int minus = 0;
  if (at < text.length && (text.bytes[at] == '-' || text.bytes[at] == '+')) minus = text.bytes[at++] == '-';
  for (; at < text.length && text.bytes[at] >= '0' && text.bytes[at] <= '9'; at++, digits++) {
    if (!whole) continue;
    if (overflows(number, (i64)10, &number) ||
        __builtin_sub_overflow(number, (i64)(text.bytes[at] - '0'), &number)) too_large();
  }
  if (whole) {
    if (!digits || at < text.length) return undefined(text);
    if (!minus && number == INT64_MIN) too_large();
    return integer(minus ? number : -number);
  }
  if (at < text.length && text.bytes[at] == '.')
    for (at++; at < text.length && text.bytes[at] >= '0' && text.bytes[at] <= '9'; at++) digits++;
  if (digits && at < text.length && (text.bytes[at] | 32) == 'e') {
    u32 power = at + 1, length = 0;
    if (power < text.length && (text.bytes[power] == '-' || text.bytes[power] == '+')) power++;
    for (; power < text.length && text.bytes[power] >= '0' && text.bytes[power] <= '9'; power++) length++;
    if (length) at = power;
  }
  if (!digits || at < text.length) return undefined(text);
  return floating(text_number(text.bytes, text.length));
}

// ---- str and repr ----
static void put_quoted(Buffer *out, Text text) {
  const int has_single = find(text, text_of("'"), 0) >= 0, has_double = find(text, text_of("\""), 0) >= 0;
  const char quote = has_single && !has_double ? '"' : '\'';
  static const char hex[] = "0123456789abcdef";
  put_char(out, quote);
  for (u32 at = 0; at < text.length;) {
    const u32 code = next_code(text, &at);
    if (code == (u32)quote || code == '\\') { put_char(out, '\\'); put_char(out, (char)code); continue; }
    if (code == '\n') { put_text(out, text_of("\\n")); continue; }
    if (code == '\r') { put_text(out, text_of("\\r")); continue; }
    if (code == '\t') { put_text(out, text_of("\\t")); continue; }
    if (traits_of(code) & PRINTABLE) { put_code(out, code); continue; }
    const u32 width = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    put_char(out, '\\');
    put_char(out, width == 2 ? 'x' : width == 4 ? 'u' : 'U');
    for (u32 i = width; i--;) put_char(out, hex[code >> (4 * i) & 15]);
  }
  put_char(out, quote);
}

static void put_items(Buffer *out, Value value, const char *open, const char *close) {
  put_text(out, text_of(open));
  for (u32 i = 0; i < value.list->count; i++) {
    if (i) put_text(out, text_of(", "));
    put_repr(out, value.list->items[i]);
  }
  if (value.kind == TUPLE && value.list->count == 1) put_char(out, ',');
  put_text(out, text_of(close));
}

static void put_pairs(Buffer *out, const Dict *dict) {
  put_char(out, '{');
  for (u32 i = 0; i < dict->count; i++) {
    if (i) put_text(out, text_of(", "));
    put_repr(out, dict->pairs[i].key);
    put_text(out, text_of(": "));
    put_repr(out, dict->pairs[i].value);
  }
  put_char(out, '}');
}

static void put_range(Buffer *out, const List *list) {
  const i64 begin = list->count ? list->items[0].integer : 0;
  const i64 step = list->count > 1 ? list->items[1].integer - begin : 1;
  put_text(out, text_of("range("));
  put_number(out, begin);
  put_text(out, text_of(", "));
  put_number(out, begin + (i64)list->count * step);
  if (step != 1) { put_text(out, text_of(", ")); put_number(out, step); }
  put_char(out, ')');
}

void put_repr(Buffer *out, Value value) {
  enter();
  switch (value.kind) {
    case UNDEFINED: put_text(out, text_of("Undefined")); break;
    case NONE: put_text(out, text_of("None")); break;
    case BOOL: put_text(out, text_of(value.integer ? "True" : "False")); break;
    case INT: put_number(out, value.integer); break;
    case FLOAT: put_float(out, value.number); break;
    case STRING: put_quoted(out, value.text); break;
    case LIST: put_items(out, value, "[", "]"); break;
    case TUPLE: put_items(out, value, "(", ")"); break;
    case RANGE: put_range(out, value.list); break;
    case DICT: put_pairs(out, value.dict); break;
    case NAMESPACE:
      put_text(out, text_of("<Namespace "));
      put_pairs(out, value.dict);
      put_char(out, '>');
      break;
    default:
      put_char(out, '<');
      put_text(out, text_of(kind_name(value)));
      put_char(out, '>');
  }
  leave();
}

void print(Buffer *out, Value value) {
  if (value.kind == STRING) put_text(out, value.text);
  else if (value.kind != UNDEFINED) put_repr(out, value);
}

Text printed(Value value) {
  if (value.kind == STRING) return value.text;
  Buffer out = {0};
  print(&out, value);
  return written(&out);
}

// ---- JSON ----
typedef struct { int ascii, sorted; Value indent; Text between, after_key; } Style;

static void put_escape(Buffer *out, u32 unit) {
  static const char hex[] = "0123456789abcdef";
  put_text(out, text_of("\\u"));
  for (u32 i = 4; i--;) put_char(out, hex[unit >> (4 * i) & 15]);
}

static void put_json_text(Buffer *out, Text text, const Style *style) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  put_char(out, '"');
  for (u32 at = 0; at < text.length;) {
    const u32 code = next_code(text, &at);
    u32 known = 0;
    while (from[known] && (u32)from[known] != code) known++;
    if (from[known]) { put_char(out, '\\'); put_char(out, to[known]); }
    else if (code < 32 || (style->ascii && code >= 127 && code < 0x10000)) {
      if (code == 127) put_char(out, 127);
      else put_escape(out, code);
    }
    else if (style->ascii && code >= 0x10000) {
      put_escape(out, 0xd800 + ((code - 0x10000) >> 10));
      put_escape(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
    else put_code(out, code);
  }
  put_char(out, '"');
}

static void put_line(Buffer *out, const Style *style, u32 depth) {
  if (style->indent.kind == NONE) return;
  put_char(out, '\n');
  for (u32 i = 0; i < depth; i++) {
    if (style->indent.kind == STRING) put_text(out, style->indent.text);
    else for (i64 j = 0; j < style->indent.integer; j++) put_char(out, ' ');
  }
}

static void put_json(Buffer *out, Value value, const Style *style, u32 depth);

static void put_json_key(Buffer *out, Value key, const Style *style) {
  Buffer text = {0};
  if (key.kind == STRING) { put_json_text(out, key.text, style); return; }
  if (key.kind != NONE && !is_number(key)) fail("JSON has no keys of the kind %", text_of(kind_name(key)));
  put_json(&text, key, style, 0);
  put_json_text(out, written(&text), style);
}

static void put_json_pairs(Buffer *out, Dict *dict, const Style *style, u32 depth) {
  List *keys = new_list(dict->count);
  for (u32 i = 0; i < dict->count; i++) append(keys, dict->pairs[i].key);
  if (style->sorted) sort_list(keys, 0, 1, text_of(""));
  for (u32 i = 0; i < keys->count; i++) {
    if (i) put_text(out, style->between);
    put_line(out, style, depth + 1);
    put_json_key(out, keys->items[i], style);
    put_text(out, style->after_key);
    put_json(out, *find_key(dict, keys->items[i]), style, depth + 1);
  }
  if (keys->count) put_line(out, style, depth);
}

static void put_json(Buffer *out, Value value, const Style *style, u32 depth) {
  enter();
  switch (value.kind) {
    case NONE: put_text(out, text_of("null")); break;
    case BOOL: put_text(out, text_of(value.integer ? "true" : "false")); break;
    case INT: put_number(out, value.integer); break;
    case FLOAT:
      if (value.number != value.number) put_text(out, text_of("NaN"));
      else if (__builtin_isinf(value.number)) put_text(out, text_of(value.number < 0 ? "-Infinity" : "Infinity"));
      else put_float(out, value.number);
      break;
    case STRING: put_json_text(out, value.text, style); break;
    case LIST: case TUPLE:
      put_char(out, '[');
      for (u32 i = 0; i < value.list->count; i++) {
        if (i) put_text(out, style->between);
        put_line(out, style, depth + 1);
        put_json(out, value.list->items[i], style, depth + 1);
      }
      if (value.list->count) put_line(out, style, depth);
      put_char(out, ']');
      break;
    case DICT:
      put_char(out, '{');
      put_json_pairs(out, value.dict, style, depth);
      put_char(out, '}');
      break;
    default: fail("a value of the kind % cannot be written as JSON", text_of(kind_name(value)));
  }
  leave();
}

Text as_json(Value value, int ascii, Value indent, Text between, Text after_key, int sorted) {
  Buffer out = {0};
  const Style style = {ascii, sorted, indent, between, after_key};
  put_json(&out, value, &style, 0);
  return written(&out);
}
