// The global functions of templates, and the formatting of text and time.
#include "jinja.h"

static Value now;  // [year, month, day, hour, minute, second, weekday (Monday is 0), day of the year], local time

void set_clock(Value given) { now = given; }

int is_function(Text name) {
  static const char *const names[] = {"range", "dict", "namespace", "raise_exception", "strftime_now", 0};
  for (u32 i = 0; names[i]; i++) if (is(name, names[i])) return 1;
  return 0;
}

// ---- time ----
static i64 clock_part(u32 index) {
  if (now.kind != LIST || index >= now.list->count) fail("there is no clock", text_of(""));
  return as_int(now.list->items[index]);
}

static void put_padded(Buffer *out, i64 number, u32 width, char with) {
  i64 least = 1;
  for (u32 i = 1; i < width; i++) least *= 10;
  for (; with && number < least && least > 1; least /= 10) put_char(out, with);
  put_number(out, number);
}

static const char *const MONTHS[] = {"January", "February", "March", "April", "May", "June", "July", "August",
                                     "September", "October", "November", "December"};
static const char *const DAYS[] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};

static void put_clock(Buffer *out, char what, char pad) {
  const char zero = pad == '-' ? 0 : '0';
  const i64 hour = clock_part(3);
  switch (what) {
    case 'Y': put_number(out, clock_part(0)); break;
    case 'y': put_padded(out, clock_part(0) % 100, 2, zero); break;
    case 'm': put_padded(out, clock_part(1), 2, zero); break;
    case 'd': put_padded(out, clock_part(2), 2, zero); break;
    case 'e': put_padded(out, clock_part(2), 2, ' '); break;
    case 'H': put_padded(out, hour, 2, zero); break;
    case 'I': put_padded(out, hour % 12 ? hour % 12 : 12, 2, zero); break;
    case 'M': put_padded(out, clock_part(4), 2, zero); break;
    case 'S': put_padded(out, clock_part(5), 2, zero); break;
    case 'j': put_padded(out, clock_part(7), 3, zero); break;
    case 'p': put_text(out, text_of(hour < 12 ? "AM" : "PM")); break;
    case 'B': put_text(out, text_of(MONTHS[(u64)(clock_part(1) - 1) % 12])); break;
    case 'b': case 'h': put_text(out, part(text_of(MONTHS[(u64)(clock_part(1) - 1) % 12]), 0, 3)); break;
    case 'A': put_text(out, text_of(DAYS[(u64)clock_part(6) % 7])); break;
    case 'a': put_text(out, part(text_of(DAYS[(u64)clock_part(6) % 7]), 0, 3)); break;
    case '%': put_char(out, '%'); break;
    default: fail("it asks for a part of the time, '%', that there is not", (Text){(char[]){what}, 1});
  }
}

static Value clock_text(Text layout) {
  Buffer out = {0};
  for (u32 i = 0; i < layout.length; i++) {
    if (layout.bytes[i] != '%' || i + 1 == layout.length) { put_char(&out, layout.bytes[i]); continue; }
    const char c = layout.bytes[++i], pad = c == '-' && i + 1 < layout.length ? '-' : 0;
    if (!pad && (c == 'F' || c == 'T')) {
      put_text(&out, clock_text(text_of(c == 'F' ? "%Y-%m-%d" : "%H:%M:%S")).text);
      continue;
    }
    put_clock(&out, pad ? layout.bytes[++i] : c, pad);
  }
  return string(written(&out));
}

// ---- formatted text ----
// "%s of %d" % (values): %s, %r, %d and %% without widths.
Value format_percent(Text pattern, Value with) {
  Buffer out = {0};
  u32 used = 0;
  for (u32 i = 0; i < pattern.length; i++) {
    const char c = pattern.bytes[i];
    if (c != '%') { put_char(&out, c); continue; }
    const char what = ++i < pattern.length ? pattern.bytes[i] : 0;
    if (what == '%') { put_char(&out, c); continue; }
    Value value = with;
    if (with.kind == TUPLE) {
      if (used == with.list->count) fail("it formats more values than it has", text_of(""));
      value = with.list->items[used];
    } else if (used) {
      fail("it formats more values than it has", text_of(""));
    }
    used++;
    if (what == 's') print(&out, value);
    else if (what == 'r') put_repr(&out, value);
    else if (what == 'd' || what == 'i') put_number(&out, value.kind == FLOAT ? (i64)value.number : as_int(value));
    else fail("it formats text in a way that is not allowed", text_of(""));
  }
  // A value that allows lookups by name does not count as an unused argument.
  const int is_mapping = with.kind == DICT || with.kind == LIST || with.kind == UNDEFINED;
  if (used < (with.kind == TUPLE ? with.list->count : 1) && !is_mapping)
    fail("it formats fewer values than it has", text_of(""));
  return string(written(&out));
}

// "{} of {name}".format(values): no widths, no attributes.
Value format_braces(Text pattern, Arguments *given) {
  Buffer out = {0};
  u32 next = 0;
  for (u32 i = 0; i < pattern.length; i++) {
    const char c = pattern.bytes[i];
    const int twice = i + 1 < pattern.length && pattern.bytes[i + 1] == c;
    if ((c != '{' && c != '}') || twice) { put_char(&out, c); i += (c == '{' || c == '}') && twice; continue; }
    const i64 end = c == '{' ? find(pattern, text_of("}"), i) : -1;
    if (end < 0) fail("it formats text with a bracket that has no other", text_of(""));
    Text name = part(pattern, i + 1, (u32)end);
    for (u32 j = 0; j < name.length; j++) {
      const char sign = name.bytes[j];
      if (sign == ':' || sign == '!' || sign == '.' || sign == '[')
        fail("it formats text in a way that is not allowed", text_of(""));
    }
    Value index = name.length ? number_from(name, 1) : integer(next++), value = undefined(name);
    if (index.kind == INT && index.integer >= 0 && index.integer < given->count) value = given->values[index.integer];
    for (u32 j = 0; index.kind != INT && j < given->named; j++)
      if (same(given->names[j].key.text, name)) value = given->names[j].value;
    print(&out, defined(value));
    i = (u32)end;
  }
  return string(written(&out));
}

// ---- calls ----
static Value range_of(Arguments *given) {
  const i64 first = as_int(argument(given, 0, "", undefined(text_of("range()"))));
  const i64 begin = given->count > 1 ? first : 0, end = given->count > 1 ? as_int(given->values[1]) : first;
  const i64 step = given->count > 2 ? as_int(given->values[2]) : 1;
  if (!step) fail("a range has the step 0", text_of(""));
  List *list = new_list(0);
  for (i64 i = begin; step > 0 ? i < end : i > end;) {
    if (list->count == MAX_RANGE) stop(COSTLY, text_of("it makes a range of more than 100000 numbers"));
    append(list, integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return list_of(RANGE, list);
}

static Value dict_from(Arguments *given) {
  Dict *dict = new_dict();
  if (given->count) {
    Value from = given->values[0];
    List *items = items_of(from);
    for (u32 i = 0; i < items->count; i++) {
      if (from.kind == DICT) { set_key(dict, from.dict->pairs[i].key, from.dict->pairs[i].value); continue; }
      List *pair = items_of(items->items[i]);
      if (pair->count != 2) fail("a dict is made of pairs", text_of(""));
      set_key(dict, pair->items[0], pair->items[1]);
    }
  }
  for (u32 i = 0; i < given->named; i++) set_key(dict, given->names[i].key, given->names[i].value);
  return dict_value(dict);
}

Value call_function(Text name, Arguments *given) {
  if (is(name, "range")) return range_of(given);
  if (is(name, "dict")) return dict_from(given);
  if (is(name, "namespace")) {
    Value made = dict_from(given);
    made.kind = NAMESPACE;
    return made;
  }
  if (is(name, "strftime_now")) return clock_text(printed(argument(given, 0, "format", none())));
  Text words = printed(argument(given, 0, "message", string(text_of("it refuses without a word"))));
  stop(FAILED, part(words, 0, byte_at(words, 500)));
}
