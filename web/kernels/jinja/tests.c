// The tests: words that may follow "is".
#include "jinja.h"

static Value other(Arguments *given, Text name) {
  if (!given->count) fail("the test '%' compares with nothing", name);
  return given->values[0];
}

static int has_case(Text text, u32 wanted, u32 unwanted) {
  int any = 0;
  for (u32 at = 0; at < text.length;) {
    const u32 traits = traits_of(next_code(text, &at));
    if (traits & unwanted) return 0;
    any |= (traits & wanted) != 0;
  }
  return any;
}

static int is_same(Value a, Value b) {
  if (a.kind != b.kind) return 0;
  if (a.kind == NONE) return 1;
  if (a.kind == STRING) return same(a.text, b.text);
  return a.integer == b.integer;
}

static i64 remainder_of(Value value, i64 by) { return arithmetic('%', value, integer(by)).integer; }

int call_test(Text name, Value value, Arguments *given) {
  const u32 kind = value.kind;
  if (is(name, "defined")) return kind != UNDEFINED;
  if (is(name, "undefined")) return kind == UNDEFINED;
  if (is(name, "none")) return kind == NONE;
  if (is(name, "string")) return kind == STRING;
  if (is(name, "mapping")) return kind == DICT;
  if (is(name, "boolean")) return kind == BOOL;
  if (is(name, "true")) return kind == BOOL && value.integer;
  if (is(name, "false")) return kind == BOOL && !value.integer;
  if (is(name, "integer")) return kind == INT;
  if (is(name, "float")) return kind == FLOAT;
  if (is(name, "number")) return is_number(value);
  if (is(name, "sequence")) return kind == STRING || kind == DICT || kind == UNDEFINED || (is_sequence(value) && kind != GENERATOR);
  if (is(name, "iterable")) return kind == STRING || kind == DICT || kind == UNDEFINED || is_sequence(value);
  if (is(name, "callable")) return kind == MACRO || kind == FUNCTION || kind == METHOD || kind == LOOP || kind == UNDEFINED;
  if (is(name, "in")) return contains(other(given, name), value);
  if (is(name, "sameas")) return is_same(value, other(given, name));
  if (is(name, "even")) return remainder_of(value, 2) == 0;
  if (is(name, "odd")) return remainder_of(value, 2) == 1;
  if (is(name, "divisibleby")) return remainder_of(value, as_int(other(given, name))) == 0;
  if (is(name, "lower")) return has_case(printed(value), LOWER, UPPER);
  if (is(name, "upper")) return has_case(printed(value), UPPER, LOWER);
  if (is(name, "eq") || is(name, "equalto")) return equal(value, other(given, name));
  if (is(name, "ne")) return !equal(value, other(given, name));
  if (is(name, "lt") || is(name, "lessthan")) return order(value, other(given, name)) < 0;
  if (is(name, "le")) return order(value, other(given, name)) <= 0;
  if (is(name, "gt") || is(name, "greaterthan")) return order(value, other(given, name)) > 0;
  if (is(name, "ge")) return order(value, other(given, name)) >= 0;
  // selectattr("role", "==", "user")
  if (is(name, "==")) return equal(value, other(given, name));
  if (is(name, "!=")) return !equal(value, other(given, name));
  fail("it uses the test '%', which there is not", name);
}
