// The filters that chat templates use, with the behaviour of jinja2 (and, for tojson, of transformers).
#include "jinja.h"

Value argument(Arguments *given, u32 index, const char *name, Value otherwise) {
  if (index < given->count) return given->values[index];
  for (u32 i = 0; i < given->named; i++)
    if (name[0] && is(given->names[i].key.text, name)) return given->names[i].value;
  return otherwise;
}

static Text text_argument(Arguments *given, u32 index, const char *name, const char *otherwise) {
  return printed(argument(given, index, name, string(text_of(otherwise))));
}

static i64 int_argument(Arguments *given, u32 index, const char *name, i64 otherwise) {
  return as_int(argument(given, index, name, integer(otherwise)));
}

// ---- text ----
static Text escaped(Text text) {
  Buffer out = {0};
  for (u32 i = 0; i < text.length; i++) {
    const char c = text.bytes[i];
    if (c == '&') put_text(&out, text_of("&amp;"));
    else if (c == '<') put_text(&out, text_of("&lt;"));
    else if (c == '>') put_text(&out, text_of("&gt;"));
    else if (c == '"') put_text(&out, text_of("&#34;"));
    else if (c == '\'') put_text(&out, text_of("&#39;"));
    else put_char(&out, c);
  }
  return written(&out);
}

static Text indented(Text text, Arguments *given) {
  Value width = argument(given, 0, "width", integer(4));
  const int first = truth(argument(given, 1, "first", boolean(0))), blank = truth(argument(given, 2, "blank", boolean(0)));
  Text by = width.kind == STRING ? width.text : arithmetic('*', string(text_of(" ")), width).text;
  Buffer out = {0};
  for (u32 at = 0, line = 0; at <= text.length; line++) {
    const i64 newline = find(text, text_of("\n"), at);
    const u32 end = newline < 0 ? text.length : (u32)newline;
    if (line) put_char(&out, '\n');
    if (line ? end > at || blank : first) put_text(&out, by);
    put_text(&out, part(text, at, end));
    at = end + 1;
  }
  return written(&out);
}

// Capitalizes each word; words end at white space and at some brackets.
static Text titled(Text text) {
  Buffer out = {0};
  for (u32 at = 0, inside = 0; at < text.length;) {
    const u32 code = next_code(text, &at);
    const int ends = code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || is_space(code);
    if (ends) put_code(&out, code);
    else put_case(&out, code, inside ? TO_LOWER : TO_UPPER);
    inside = !ends;
  }
  return written(&out);
}

static Value joined_items(Value value, Arguments *given) {
  Text between = text_argument(given, 0, "d", ""), by = text_argument(given, 1, "attribute", "");
  List *items = items_of(value);
  Buffer out = {0};
  for (u32 i = 0; i < items->count; i++) {
    if (i) put_text(&out, between);
    print(&out, by.length ? attribute_path(items->items[i], by) : items->items[i]);
  }
  return string(written(&out));
}

static Value to_json(Value value, Arguments *given) {
  Value separators = argument(given, 2, "separators", none()), indent = argument(given, 1, "indent", none());
  Text between = text_of(indent.kind == NONE ? ", " : ","), after_key = text_of(": ");
  if (separators.kind != NONE) {
    List *both = items_of(separators);
    if (both->count != 2) fail("tojson takes two separators", text_of(""));
    between = as_text(both->items[0], "tojson");
    after_key = as_text(both->items[1], "tojson");
  }
  if (indent.kind != NONE && indent.kind != STRING) as_int(indent);
  return string(as_json(value, truth(argument(given, 0, "ensure_ascii", boolean(0))), indent, between, after_key,
                        truth(argument(given, 3, "sort_keys", boolean(0)))));
}

// ---- numbers ----
static Value to_int(Value value, Arguments *given) {
  Value otherwise = argument(given, 0, "default", integer(0)), number = undefined(text_of(""));
  if (is_whole(defined(value))) return integer(value.integer);
  if (value.kind == STRING) {
    number = number_from(value.text, 1);
    if (number.kind == UNDEFINED) number = number_from(value.text, 0);
  }
  if (value.kind == FLOAT) number = value;
  if (number.kind == UNDEFINED) return otherwise;
  if (number.kind == INT) return number;
  if (!(__builtin_fabs(number.number) < 9e18)) too_large();
  return integer((i64)number.number);
}

static Value to_float(Value value, Arguments *given) {
  Value number = is_number(defined(value)) ? value : value.kind == STRING ? number_from(value.text, 0) : undefined(text_of(""));
  return number.kind == UNDEFINED ? argument(given, 0, "default", floating(0)) : floating(as_float(number));
}

static Value rounded(Value value, Arguments *given) {
  if (!is_number(defined(value))) fail("it rounds a value of the kind %", text_of(kind_name(value)));
  const i64 places = int_argument(given, 0, "precision", 0);
  Text how = text_argument(given, 1, "method", "common");
  if (is_whole(value) && is(how, "common")) return value;
  if (places < 0 || places > 15) stop(COSTLY, text_of("it rounds to a number of places that is too large"));
  f64 scale = 1;
  for (i64 i = 0; i < places; i++) scale *= 10;
  const f64 large = as_float(value) * scale;
  const f64 whole = is(how, "ceil") ? __builtin_ceil(large) : is(how, "floor") ? __builtin_floor(large)
                                                                               : __builtin_rint(large);
  return floating(whole / scale);
}

// ---- lists ----
static Value key_of(Value value, Text by, int with_case) {
  if (by.length) value = attribute_path(value, by);
  return value.kind == STRING && !with_case ? string(cased(value.text, TO_LOWER)) : value;
}

// Merge sort, so that equal items keep their order.
static void sort_range(Value *items, Value *keys, Value *room, u32 count, int reverse) {
  if (count < 2) return;
  const u32 half = count / 2;
  sort_range(items, keys, room, half, reverse);
  sort_range(items + half, keys + half, room, count - half, reverse);
  u32 left = 0, right = half;
  for (u32 i = 0; i < count; i++) {
    int first = right == count;
    if (!first && left < half) {
      // Python compares keys in lists, so equal ones need no order.
      const int way = equal(keys[right], keys[left]) ? 0 : order(keys[right], keys[left]);
      first = reverse ? way <= 0 : way >= 0;
    }
    const u32 from = first ? left++ : right++;
    room[2 * i] = items[from];
    room[2 * i + 1] = keys[from];
  }
  for (u32 i = 0; i < count; i++) {
    items[i] = room[2 * i];
    keys[i] = room[2 * i + 1];
  }
}

void sort_list(List *list, int reverse, int with_case, Text by) {
  Value *keys = take((u64)list->count * sizeof(Value)), *room = take((u64)list->count * 2 * sizeof(Value));
  for (u32 i = 0; i < list->count; i++) keys[i] = key_of(list->items[i], by, with_case);
  sort_range(list->items, keys, room, list->count, reverse);
}

static List *copy_of(List *list) {
  List *copy = new_list(list->count);
  for (u32 i = 0; i < list->count; i++) append(copy, list->items[i]);
  return copy;
}

static Value sorted(Value value, Arguments *given) {
  List *list = copy_of(items_of(value));
  sort_list(list, truth(argument(given, 0, "reverse", boolean(0))), truth(argument(given, 1, "case_sensitive", boolean(0))),
            text_argument(given, 2, "attribute", ""));
  return list_of(LIST, list);
}

static Value dict_sorted(Value value, Arguments *given) {
  if (value.kind != DICT) fail("dictsort takes a dict, but gets a value of the kind %", text_of(kind_name(value)));
  List *list = new_list(value.dict->count);
  for (u32 i = 0; i < value.dict->count; i++)
    append(list, list_of(TUPLE, pair_list(value.dict->pairs[i].key, value.dict->pairs[i].value)));
  const int with_case = truth(argument(given, 0, "case_sensitive", boolean(0)));
  sort_list(list, truth(argument(given, 2, "reverse", boolean(0))), with_case,
            text_of(is(text_argument(given, 1, "by", "key"), "value") ? "1" : "0"));
  return list_of(LIST, list);
}

static Value unique(Value value, Arguments *given) {
  const int with_case = truth(argument(given, 0, "case_sensitive", boolean(0)));
  Text by = text_argument(given, 1, "attribute", "");
  List *list = items_of(value), *out = new_list(0), *keys = new_list(0);
  for (u32 i = 0; i < list->count; i++) {
    Value key = key_of(list->items[i], by, with_case);
    if (contains(list_of(LIST, keys), key)) continue;
    append(keys, key);
    append(out, list->items[i]);
  }
  return list_of(GENERATOR, out);
}

static Value extreme(Value value, Arguments *given, int sign) {
  const int with_case = truth(argument(given, 0, "case_sensitive", boolean(0)));
  Text by = text_argument(given, 1, "attribute", "");
  List *list = items_of(value);
  if (!list->count) return undefined(text_of("the largest or smallest of nothing"));
  Value best = list->items[0];
  for (u32 i = 1; i < list->count; i++)
    if (order(key_of(list->items[i], by, with_case), key_of(best, by, with_case)) == sign) best = list->items[i];
  return best;
}

static Value sum(Value value, Arguments *given) {
  Text by = text_argument(given, 0, "attribute", "");
  List *list = items_of(value);
  Value total = argument(given, 1, "start", integer(0));
  for (u32 i = 0; i < list->count; i++)
    total = arithmetic('+', total, by.length ? attribute_path(list->items[i], by) : list->items[i]);
  return total;
}

static Value reversed(Value value) {
  if (value.kind == STRING) return sliced(value, none(), none(), integer(-1));
  List *list = items_of(value), *out = new_list(list->count);
  for (u32 i = list->count; i--;) append(out, list->items[i]);
  return list_of(GENERATOR, out);
}

static Value end_of(Value value, int last) {
  List *list = items_of(value);
  return list->count ? list->items[last ? list->count - 1 : 0] : undefined(text_of("an item of an empty list"));
}

static Arguments after(Arguments *given, u32 count) {
  Arguments rest = *given;
  if (rest.count < count) count = rest.count;
  rest.values += count;
  rest.count -= count;
  return rest;
}

static Value mapped(Value value, Arguments *given) {
  Value by = argument(given, 99, "attribute", undefined(text_of("")));
  List *list = truth(value) ? items_of(value) : new_list(0), *out = new_list(list->count);
  Arguments rest = after(given, 1);
  if (by.kind == UNDEFINED && !given->count) fail("map takes a filter or an attribute", text_of(""));
  for (u32 i = 0; i < list->count; i++) {
    if (by.kind == UNDEFINED) { append(out, call_filter(as_text(given->values[0], "map"), list->items[i], &rest)); continue; }
    Value found = attribute_path(list->items[i], printed(by));
    append(out, found.kind == UNDEFINED ? argument(given, 99, "default", found) : found);
  }
  return list_of(GENERATOR, out);
}

static Value chosen(Value value, Arguments *given, int keeps, int by_attribute) {
  List *list = truth(value) ? items_of(value) : new_list(0), *out = new_list(0);
  const u32 first = by_attribute ? 1 : 0;
  Arguments rest = after(given, first + 1);
  if (given->count < first) fail("it chooses by an attribute without a name", text_of(""));
  for (u32 i = 0; i < list->count; i++) {
    Value looked_at = by_attribute ? attribute_path(list->items[i], printed(given->values[0])) : list->items[i];
    const int passes = given->count > first ? call_test(as_text(given->values[first], "a choice"), looked_at, &rest)
                                            : truth(looked_at);
    if (passes == keeps) append(out, list->items[i]);
  }
  return list_of(GENERATOR, out);
}

static Value list_filter(Value value) {
  return list_of(LIST, copy_of(items_of(value)));
}

Value call_filter(Text name, Value value, Arguments *given) {
  enter();
  Value v = value;
  Arguments no = {0};
  if (is(name, "abs")) v = order(value, integer(0)) < 0 ? negative(value) : arithmetic('+', integer(0), value);
  else if (is(name, "attr")) v = attribute(value, text_argument(given, 0, "name", ""));
  else if (is(name, "capitalize")) v = string(capitalized(printed(value)));
  else if (is(name, "center")) {
    Arguments width = {.count = 1, .values = &(Value){.kind = INT, .integer = int_argument(given, 0, "width", 80)}};
    v = call_method(string(printed(value)), name, &width);
  }
  else if (is(name, "count") || is(name, "length")) v = integer(length_of(value));
  else if (is(name, "d") || is(name, "default")) {
    const int falsy = truth(argument(given, 1, "boolean", boolean(0))) && !truth(value);
    if (value.kind == UNDEFINED || falsy) v = argument(given, 0, "default_value", string(text_of("")));
  }
  else if (is(name, "dictsort")) v = dict_sorted(value, given);
  else if (is(name, "e") || is(name, "escape")) v = string(escaped(printed(value)));
  else if (is(name, "first")) v = end_of(value, 0);
  else if (is(name, "float")) v = to_float(value, given);
  else if (is(name, "format")) v = format_percent(printed(value), list_of(TUPLE, &(List){given->count, 0, given->values}));
  else if (is(name, "indent")) v = string(indented(printed(value), given));
  else if (is(name, "int")) v = to_int(value, given);
  else if (is(name, "items")) v = value.kind == UNDEFINED ? list_of(GENERATOR, new_list(0))
                                                          : call_method(value, text_of("items"), &no);
  else if (is(name, "join")) v = joined_items(value, given);
  else if (is(name, "last")) v = end_of(value, 1);
  else if (is(name, "list")) v = list_filter(value);
  else if (is(name, "lower")) v = string(cased(printed(value), TO_LOWER));
  else if (is(name, "map")) v = mapped(value, given);
  else if (is(name, "max")) v = extreme(value, given, 1);
  else if (is(name, "min")) v = extreme(value, given, -1);
  else if (is(name, "reject")) v = chosen(value, given, 0, 0);
  else if (is(name, "rejectattr")) v = chosen(value, given, 0, 1);
  else if (is(name, "replace")) v = string(replaced(printed(value), text_argument(given, 0, "old", ""),
                                                    text_argument(given, 1, "new", ""), int_argument(given, 2, "count", -1)));
  else if (is(name, "reverse")) v = reversed(value);
  else if (is(name, "round")) v = rounded(value, given);
  else if (is(name, "safe") || is(name, "string")) v = string(printed(value));
  else if (is(name, "select")) v = chosen(value, given, 1, 0);
  else if (is(name, "selectattr")) v = chosen(value, given, 1, 1);
  else if (is(name, "sort")) v = sorted(value, given);
  else if (is(name, "sum")) v = sum(value, given);
  else if (is(name, "title")) v = string(titled(printed(value)));
  else if (is(name, "tojson")) v = to_json(value, given);
  else if (is(name, "trim")) {
    Value of = argument(given, 0, "chars", none());
    v = string(stripped(printed(value), of.kind == NONE ? 0 : &of.text, 1, 1));
  }
  else if (is(name, "unique")) v = unique(value, given);
  else if (is(name, "upper")) v = string(cased(printed(value), TO_UPPER));
  else fail("it uses the filter '%', which chat templates have no use for", name);
  leave();
  return v;
}
