// The non-mutating methods of Python's str, dict, list and tuple.
#include "jinja.h"

static const char *const OF_TEXT[] = {
  "capitalize", "center", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isascii", "isdecimal",
  "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "partition",
  "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split",
  "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill", 0};
static const char *const OF_DICT[] = {"copy", "get", "items", "keys", "values", 0};
static const char *const OF_LIST[] = {"copy", "count", "index", 0};

int has_method(Value owner, Text name) {
  const char *const *names = owner.kind == STRING ? OF_TEXT : owner.kind == DICT ? OF_DICT : 0;
  if (owner.kind == LIST || owner.kind == TUPLE) names = OF_LIST;
  for (; names && *names; names++) if (is(name, *names)) return 1;
  return 0;
}

static Value given_at(Arguments *given, u32 index) {
  return argument(given, index, "", undefined(text_of("an argument of a method")));
}

// ---- searching ----
static u32 search_begin(Text text, Arguments *given, u32 index) {
  Value from = argument(given, index, "", none());
  i64 begin = from.kind == NONE ? 0 : as_int(from);
  if (begin < 0) begin += characters(text);
  return begin < 0 ? 0 : begin > (i64)text.length ? text.length + 1 : begin ? byte_at(text, (u32)begin) : 0;
}

static Text searched(Text text, Arguments *given) {
  Value to = argument(given, 2, "", none());
  return to.kind == NONE ? text : part(text, 0, sliced(string(text), none(), to, none()).text.length);
}

static i64 find_last(Text text, Text what, u32 from) {
  for (i64 at = (i64)text.length - what.length; at >= (i64)from; at--) if (begins(text, what, (u32)at)) return at;
  return -1;
}

static Value position(Text text, Arguments *given, int last, int must) {
  Text what = as_text(given_at(given, 0), "find"), inside = searched(text, given);
  const u32 from = search_begin(text, given, 1);
  const i64 found = from > inside.length ? -1 : last ? find_last(inside, what, from) : find(inside, what, from);
  if (found < 0 && must) fail("it looks for '%' in a value that does not have it", what);
  return integer(found < 0 ? -1 : (i64)characters(part(text, 0, (u32)found)));
}

static int has_end(Text text, Value what, int at_end) {
  if (what.kind == TUPLE) {
    for (u32 i = 0; i < what.list->count; i++) if (has_end(text, what.list->items[i], at_end)) return 1;
    return 0;
  }
  Text with = as_text(what, at_end ? "endswith" : "startswith");
  return with.length <= text.length && begins(text, with, at_end ? text.length - with.length : 0);
}

static Value count_of(Text text, Text what) {
  if (!what.length) return integer((i64)characters(text) + 1);
  i64 count = 0;
  for (i64 at = 0; (at = find(text, what, (u32)at)) >= 0; at += what.length) count++;
  return integer(count);
}

// ---- cutting ----
static Value parts_at(Text text, Text at, int last) {
  if (!at.length) fail("it cuts a text at nothing", text_of(""));
  const i64 found = last ? find_last(text, at, 0) : find(text, at, 0);
  Value empty = string(text_of("")), whole = string(text);
  List *parts = new_list(3);
  if (found < 0) {
    append(parts, last ? empty : whole);
    append(parts, empty);
    append(parts, last ? whole : empty);
  } else {
    append(parts, string(part(text, 0, (u32)found)));
    append(parts, string(at));
    append(parts, string(part(text, (u32)found + at.length, text.length)));
  }
  return list_of(TUPLE, parts);
}

static List *words_of(Text text, i64 most) {
  List *words = new_list(0);
  for (;;) {
    text = stripped(text, 0, 1, 0);
    if (!text.length) return words;
    if (most >= 0 && words->count >= most) break;
    u32 end = 0, at = 0;
    while (at < text.length && !is_space(next_code(text, &at))) end = at;
    append(words, string(part(text, 0, end)));
    text = part(text, end, text.length);
  }
  append(words, string(text));
  return words;
}

static List *last_words_of(Text text, i64 most) {
  List *all = words_of(text, -1);
  if (most < 0 || all->count <= most) return all;
  Text rest = text;
  List *words = new_list(0);
  for (u32 i = all->count; i > all->count - (u32)most; i--) {
    rest = stripped(rest, 0, 0, 1);
    rest.length -= all->items[i - 1].text.length;
  }
  append(words, string(stripped(rest, 0, 0, 1)));
  for (u32 i = all->count - (u32)most; i < all->count; i++) append(words, all->items[i]);
  return words;
}

static Value split(Text text, Arguments *given, int from_end) {
  Value at = argument(given, 0, "sep", none());
  const i64 most = as_int(argument(given, 1, "maxsplit", integer(-1)));
  if (at.kind == NONE) return list_of(LIST, from_end ? last_words_of(text, most) : words_of(text, most));
  Text sign = as_text(at, "split");
  if (!sign.length) fail("it cuts a text at nothing", text_of(""));
  List *parts = new_list(0);
  for (i64 count = 0; count != most; count++) {
    const i64 found = from_end ? find_last(text, sign, 0) : find(text, sign, 0);
    if (found < 0) break;
    append(parts, string(from_end ? part(text, (u32)found + sign.length, text.length) : part(text, 0, (u32)found)));
    text = from_end ? part(text, 0, (u32)found) : part(text, (u32)found + sign.length, text.length);
  }
  append(parts, string(text));
  for (u32 i = 0, j = parts->count - 1; from_end && i < j; i++, j--) {
    Value other = parts->items[i];
    parts->items[i] = parts->items[j];
    parts->items[j] = other;
  }
  return list_of(LIST, parts);
}

static int ends_line(u32 code) {
  return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 || code == 0x2028 || code == 0x2029;
}

static Value lines_of(Text text, int with_ends) {
  List *lines = new_list(0);
  for (u32 at = 0; at < text.length;) {
    const u32 begin = at;
    u32 end = at, code = 0;
    while (at < text.length && !ends_line(code = next_code(text, &at))) end = at;
    if (code == '\r' && at < text.length && text.bytes[at] == '\n') at++;
    append(lines, string(part(text, begin, with_ends || !ends_line(code) ? at : end)));
  }
  return list_of(LIST, lines);
}

// ---- changing ----
static Value padded(Text text, Arguments *given, int left, int right) {
  const i64 width = as_int(given_at(given, 0)), lacking = width - characters(text);
  Value with = argument(given, 1, "", string(text_of(" ")));
  if (characters(as_text(with, "padding")) != 1) fail("it pads a text with more than one character", text_of(""));
  if (lacking <= 0) return string(text);
  const i64 before = left && right ? lacking / 2 + (lacking & width & 1) : left ? lacking : 0;
  Text one = arithmetic('*', with, integer(before)).text, other = arithmetic('*', with, integer(lacking - before)).text;
  return string(joined(joined(one, text), other));
}

static Value zero_filled(Text text, Arguments *given) {
  const i64 lacking = as_int(given_at(given, 0)) - characters(text);
  const u32 sign = text.length && (text.bytes[0] == '-' || text.bytes[0] == '+');
  if (lacking <= 0) return string(text);
  Text zeros = arithmetic('*', string(text_of("0")), integer(lacking)).text;
  return string(joined(joined(part(text, 0, sign), zeros), part(text, sign, text.length)));
}

static Text swapped(Text text, int title) {
  Buffer out = {0};
  for (u32 at = 0, inside = 0; at < text.length;) {
    const u32 code = next_code(text, &at), traits = traits_of(code);
    if (title) put_case(&out, code, inside ? TO_LOWER : TO_TITLE);
    else put_case(&out, code, traits & UPPER ? TO_LOWER : TO_UPPER);
    inside = (traits & (UPPER | LOWER)) != 0;
  }
  return written(&out);
}

static int all_have(Text text, u32 traits) {
  for (u32 at = 0; at < text.length;) if (!(traits_of(next_code(text, &at)) & traits)) return 0;
  return text.length > 0;
}

static int is_titled(Text text) {
  int inside = 0, any = 0;
  for (u32 at = 0; at < text.length;) {
    const u32 traits = traits_of(next_code(text, &at));
    if (traits & UPPER ? inside : traits & LOWER && !inside) return 0;
    inside = (traits & (UPPER | LOWER)) != 0;
    any |= inside;
  }
  return any;
}

static int of_one_case(Text text, const char *name) {
  Arguments no = {0};
  return call_test(text_of(name), string(text), &no);
}

static Value joined_by(Text text, Value items) {
  List *list = items_of(items);
  Buffer out = {0};
  for (u32 i = 0; i < list->count; i++) {
    if (i) put_text(&out, text);
    put_text(&out, as_text(list->items[i], "join"));
  }
  return string(written(&out));
}

static Value strip(Text text, Arguments *given, int left, int right) {
  Value of = argument(given, 0, "chars", none());
  if (of.kind != NONE) as_text(of, "strip");
  return string(stripped(text, of.kind == NONE ? 0 : &of.text, left, right));
}

static Value call_on_text(Text text, Text name, Arguments *given) {
  if (is(name, "strip")) return strip(text, given, 1, 1);
  if (is(name, "lstrip")) return strip(text, given, 1, 0);
  if (is(name, "rstrip")) return strip(text, given, 0, 1);
  if (is(name, "split")) return split(text, given, 0);
  if (is(name, "rsplit")) return split(text, given, 1);
  if (is(name, "startswith")) return boolean(has_end(text, given_at(given, 0), 0));
  if (is(name, "endswith")) return boolean(has_end(text, given_at(given, 0), 1));
  if (is(name, "replace"))
    return string(replaced(text, as_text(given_at(given, 0), "replace"), as_text(given_at(given, 1), "replace"),
                           as_int(argument(given, 2, "count", integer(-1)))));
  if (is(name, "lower")) return string(cased(text, TO_LOWER));
  if (is(name, "upper")) return string(cased(text, TO_UPPER));
  if (is(name, "capitalize")) return string(capitalized(text));
  if (is(name, "title")) return string(swapped(text, 1));
  if (is(name, "swapcase")) return string(swapped(text, 0));
  if (is(name, "join")) return joined_by(text, given_at(given, 0));
  if (is(name, "find")) return position(text, given, 0, 0);
  if (is(name, "rfind")) return position(text, given, 1, 0);
  if (is(name, "index")) return position(text, given, 0, 1);
  if (is(name, "rindex")) return position(text, given, 1, 1);
  if (is(name, "count")) return count_of(text, as_text(given_at(given, 0), "count"));
  if (is(name, "partition")) return parts_at(text, as_text(given_at(given, 0), "partition"), 0);
  if (is(name, "rpartition")) return parts_at(text, as_text(given_at(given, 0), "rpartition"), 1);
  if (is(name, "splitlines")) return lines_of(text, truth(argument(given, 0, "keepends", boolean(0))));
  if (is(name, "removeprefix")) {
    Value with = given_at(given, 0);
    return string(has_end(text, with, 0) ? part(text, with.text.length, text.length) : text);
  }
  if (is(name, "removesuffix")) {
    Value with = given_at(given, 0);
    return string(has_end(text, with, 1) ? part(text, 0, text.length - with.text.length) : text);
  }
  if (is(name, "format")) return format_braces(text, given);
  if (is(name, "center")) return padded(text, given, 1, 1);
  if (is(name, "ljust")) return padded(text, given, 0, 1);
  if (is(name, "rjust")) return padded(text, given, 1, 0);
  if (is(name, "zfill")) return zero_filled(text, given);
  if (is(name, "isalpha")) return boolean(all_have(text, ALPHA));
  if (is(name, "isalnum")) return boolean(all_have(text, ALPHA | NUMERIC));
  if (is(name, "isdigit")) return boolean(all_have(text, DIGIT));
  if (is(name, "isdecimal")) return boolean(all_have(text, DECIMAL));
  if (is(name, "isnumeric")) return boolean(all_have(text, NUMERIC));
  if (is(name, "isascii")) return boolean(characters(text) == text.length);
  if (is(name, "isspace")) return boolean(text.length && !stripped(text, 0, 1, 0).length);
  if (is(name, "islower")) return boolean(of_one_case(text, "lower"));
  if (is(name, "isupper")) return boolean(of_one_case(text, "upper"));
  return boolean(is_titled(text));
}

static Value call_on_dict(Dict *dict, Text name, Arguments *given) {
  if (is(name, "get")) {
    const Value *found = find_key(dict, given_at(given, 0));
    return found ? *found : argument(given, 1, "", none());
  }
  if (is(name, "copy")) {
    Dict *copy = new_dict();
    for (u32 i = 0; i < dict->count; i++) set_key(copy, dict->pairs[i].key, dict->pairs[i].value);
    return dict_value(copy);
  }
  List *list = new_list(dict->count);
  for (u32 i = 0; i < dict->count; i++) {
    Value key = dict->pairs[i].key, value = dict->pairs[i].value;
    append(list, is(name, "keys") ? key : is(name, "values") ? value : list_of(TUPLE, pair_list(key, value)));
  }
  return list_of(LIST, list);
}

static Value call_on_list(Value owner, Text name, Arguments *given) {
  if (is(name, "copy")) return owner;
  Value what = given_at(given, 0);
  i64 count = 0;
  for (u32 i = 0; i < owner.list->count; i++) {
    if (!equal(owner.list->items[i], what)) continue;
    if (is(name, "index")) return integer(i);
    count++;
  }
  if (is(name, "index")) fail("it looks for an item in a list that does not have it", text_of(""));
  return integer(count);
}

static Value call_on_loop(Loop *loop, Text name, Arguments *given) {
  if (is(name, "cycle")) {
    if (!given->count) fail("loop.cycle has nothing to go through", text_of(""));
    return given->values[(loop->index - 1) % given->count];
  }
  List *seen = new_list(given->count);
  for (u32 i = 0; i < given->count; i++) append(seen, given->values[i]);
  Value now = list_of(TUPLE, seen);
  const int changed = loop->changed.kind != TUPLE || !equal(loop->changed, now);
  loop->changed = now;
  return boolean(changed);
}

Value call_method(Value owner, Text name, Arguments *given) {
  if (owner.kind == LOOP) return call_on_loop(owner.loop, name, given);
  if (owner.kind == STRING) return call_on_text(owner.text, name, given);
  if (owner.kind == DICT) return call_on_dict(owner.dict, name, given);
  if (owner.kind == LIST || owner.kind == TUPLE) return call_on_list(owner, name, given);
  fail("a value of the kind % has no such method", text_of(kind_name(owner)));
}
