// Equality, truth, order and membership of values, and their arithmetic.
#include "jinja.h"

Value none(void) { return (Value){.kind = NONE}; }
Value boolean(int truth) { return (Value){.kind = BOOL, .integer = truth != 0}; }
Value integer(i64 number) { return (Value){.kind = INT, .integer = number}; }
Value floating(f64 number) { return (Value){.kind = FLOAT, .number = number}; }
Value string(Text text) { return (Value){.kind = STRING, .text = text}; }
Value undefined(Text name) { return (Value){.kind = UNDEFINED, .text = name}; }
Value list_of(u32 kind, List *list) { return (Value){.kind = kind, .list = list}; }
Value dict_value(Dict *dict) { return (Value){.kind = DICT, .dict = dict}; }

List *new_list(u32 room) {
  List *list = take(sizeof(List));
  *list = (List){.room = room, .items = room ? take((u64)room * sizeof(Value)) : 0};
  return list;
}

void append(List *list, Value value) {
  if (list->count == list->room) {
    list->room = list->room ? list->room * 2 : 4;
    Value *moved = take((u64)list->room * sizeof(Value));
    for (u32 i = 0; i < list->count; i++) moved[i] = list->items[i];
    list->items = moved;
  }
  list->items[list->count++] = value;
}

List *pair_list(Value a, Value b) {
  List *pair = new_list(2);
  append(pair, a);
  append(pair, b);
  return pair;
}

Dict *new_dict(void) {
  Dict *dict = take(sizeof(Dict));
  *dict = (Dict){0};
  return dict;
}

const Value *find_key(const Dict *dict, Value key) {
  for (u32 i = 0; i < dict->count; i++) if (equal(dict->pairs[i].key, key)) return &dict->pairs[i].value;
  return 0;
}

void set_key(Dict *dict, Value key, Value value) {
  if (key.kind == LIST || key.kind == DICT || key.kind == NAMESPACE)
    fail("a value of the kind % cannot be the key of a dict", text_of(kind_name(key)));
  Value *found = (Value *)find_key(dict, key);
  if (found) { *found = value; return; }
  if (dict->count == dict->room) {
    dict->room = dict->room ? dict->room * 2 : 4;
    Pair *moved = take((u64)dict->room * sizeof(Pair));
    for (u32 i = 0; i < dict->count; i++) moved[i] = dict->pairs[i];
    dict->pairs = moved;
  }
  dict->pairs[dict->count++] = (Pair){key, value};
}

// ---- kinds ----
const char *kind_name(Value value) {
  static const char *const names[] = {"undefined value", "None", "bool", "int", "float", "str", "list", "tuple",
    "generator", "range", "dict", "namespace", "macro", "loop", "function", "method"};
  return names[value.kind];
}

int is_text(Value value) { return value.kind == STRING; }
int is_whole(Value value) { return value.kind == INT || value.kind == BOOL; }
int is_number(Value value) { return is_whole(value) || value.kind == FLOAT; }
int is_sequence(Value value) { return value.kind >= LIST && value.kind <= RANGE; }
f64 as_float(Value value) { return value.kind == FLOAT ? value.number : (f64)value.integer; }

Value defined(Value value) {
  if (value.kind == UNDEFINED) fail("'%' is undefined", value.text);
  return value;
}

i64 as_int(Value value) {
  if (!is_whole(defined(value))) fail("it takes a value of the kind % for a whole number", text_of(kind_name(value)));
  return value.integer;
}

Text as_text(Value value, const char *who) {
  if (defined(value).kind != STRING) {
    Buffer out = {0};
    put_text(&out, text_of(who));
    put_text(&out, text_of(" takes text, but gets a value of the kind "));
    put_text(&out, text_of(kind_name(value)));
    stop(FAILED, written(&out));
  }
  return value.text;
}

int truth(Value value) {
  switch (value.kind) {
    case UNDEFINED: case NONE: return 0;
    case BOOL: case INT: return value.integer != 0;
    case FLOAT: return value.number != 0;
    case STRING: return value.text.length > 0;
    case LIST: case TUPLE: case RANGE: return value.list->count > 0;
    case DICT: return value.dict->count > 0;
    default: return 1;
  }
}

i64 length_of(Value value) {
  switch (value.kind) {
    case UNDEFINED: return 0;
    case STRING: return characters(value.text);
    case LIST: case TUPLE: case RANGE: return value.list->count;
    case DICT: return value.dict->count;
    default: fail("a value of the kind % has no length", text_of(kind_name(value)));
  }
}

// ---- comparison ----
static int is_ordered(Value value) { return value.kind == LIST || value.kind == TUPLE; }

int equal(Value a, Value b) {
  if (is_number(a) && is_number(b)) {
    if (is_whole(a) && is_whole(b)) return a.integer == b.integer;
    return as_float(a) == as_float(b);
  }
  if (a.kind != b.kind) return 0;
  int answer = 1;
  enter();
  switch (a.kind) {
    case UNDEFINED: case NONE: break;
    case STRING: answer = same(a.text, b.text); break;
    case FUNCTION: answer = same(a.text, b.text); break;
    case LIST: case TUPLE: case RANGE:
      answer = a.list->count == b.list->count;
      for (u32 i = 0; answer && i < a.list->count; i++) answer = equal(a.list->items[i], b.list->items[i]);
      break;
    case DICT:
      answer = a.dict->count == b.dict->count;
      for (u32 i = 0; answer && i < a.dict->count; i++) {
        const Value *other = find_key(b.dict, a.dict->pairs[i].key);
        answer = other && equal(a.dict->pairs[i].value, *other);
      }
      break;
    default: answer = a.list == b.list;  // the same object in memory
  }
  leave();
  return answer;
}

static int order_of_texts(Text a, Text b) {
  for (u32 i = 0; i < a.length && i < b.length; i++)
    if (a.bytes[i] != b.bytes[i]) return (u8)a.bytes[i] < (u8)b.bytes[i] ? -1 : 1;
  return a.length == b.length ? 0 : a.length < b.length ? -1 : 1;
}

int order(Value a, Value b) {
  defined(a);
  defined(b);
  if (is_number(a) && is_number(b)) {
    if (is_whole(a) && is_whole(b)) return a.integer < b.integer ? -1 : a.integer > b.integer;
    return as_float(a) < as_float(b) ? -1 : as_float(a) > as_float(b);
  }
  if (a.kind == STRING && b.kind == STRING) return order_of_texts(a.text, b.text);
  if (!is_ordered(a) || a.kind != b.kind) fail("a value of the kind % cannot be compared with the other one", text_of(kind_name(a)));
  enter();
  int answer = 0;
  for (u32 i = 0; !answer && i < a.list->count && i < b.list->count; i++)
    if (!equal(a.list->items[i], b.list->items[i])) answer = order(a.list->items[i], b.list->items[i]);
  leave();
  return answer ? answer : a.list->count < b.list->count ? -1 : a.list->count > b.list->count;
}

int contains(Value container, Value item) {
  if (container.kind == STRING) return find(container.text, as_text(item, "'in' of a text"), 0) >= 0;
  if (container.kind == UNDEFINED) return 0;
  if (container.kind == DICT) return find_key(container.dict, item) != 0;
  if (!is_sequence(container)) fail("nothing can be in a value of the kind %", text_of(kind_name(container)));
  for (u32 i = 0; i < container.list->count; i++) if (equal(container.list->items[i], item)) return 1;
  return 0;
}

List *items_of(Value value) {
  if (is_sequence(value)) return value.list;
  List *items = new_list(value.kind == DICT ? value.dict->count : 0);
  if (value.kind == DICT) {
    for (u32 i = 0; i < value.dict->count; i++) append(items, value.dict->pairs[i].key);
  } else if (value.kind == STRING) {
    for (u32 at = 0; at < value.text.length;) {
      const u32 begin = at;
      next_code(value.text, &at);
      append(items, string(part(value.text, begin, at)));
    }
  } else if (value.kind != UNDEFINED) {
    fail("a value of the kind % has no items to go over", text_of(kind_name(value)));
  }
  return items;
}

// ---- arithmetic ----
int overflows(i64 a, i64 b, i64 *product) {
  *product = (i64)((u64)a * (u64)b);
  return __builtin_fabs((f64)a * (f64)b) > 9.2e18;
}

static Value repeated(Value of, i64 times) {
  if (times < 0) times = 0;
  if (of.kind == STRING) {
    if ((u64)times * of.text.length > MAX_OUTPUT || times > MAX_OUTPUT)
      stop(COSTLY, text_of("it makes a text that is too long"));
    Buffer out = {0};
    for (i64 i = 0; i < times && of.text.length; i++) put_text(&out, of.text);
    return string(written(&out));
  }
  if (times > MAX_OUTPUT) stop(COSTLY, text_of("it makes a list that is too long"));
  List *list = new_list(0);
  for (i64 i = 0; i < times && of.list->count; i++)
    for (u32 j = 0; j < of.list->count; j++) append(list, of.list->items[j]);
  return list_of(of.kind, list);
}

static i64 floor_divided(i64 a, i64 b) {
  if (!b) fail("it divides by zero", text_of(""));
  if (b == -1) { if (a == INT64_MIN) too_large(); return -a; }
  return a / b - (a % b && (a < 0) != (b < 0));
}

static Value power(Value a, Value b) {
  if (!is_whole(a) || !is_whole(b) || b.integer < 0) fail("it raises to a power that is no whole number", text_of(""));
  if (b.integer > 64 && (a.integer > 1 || a.integer < -1)) too_large();
  i64 result = 1;
  for (i64 i = 0; i < (b.integer > 64 ? 64 + b.integer % 2 : b.integer); i++)
    if (overflows(result, a.integer, &result)) too_large();
  return integer(result);
}

static Value of_whole(u32 operator, i64 a, i64 b) {
  i64 result = 0;
  if (operator == '+' ? __builtin_add_overflow(a, b, &result) : operator == '-' ? __builtin_sub_overflow(a, b, &result)
      : operator == '*' && overflows(a, b, &result)) too_large();
  if (operator == OP('/', '/')) result = floor_divided(a, b);
  if (operator == '%') result = b == -1 ? 0 : a - floor_divided(a, b) * b;
  return integer(result);
}

static Value of_floats(u32 operator, f64 a, f64 b) {
  if (operator == '+') return floating(a + b);
  if (operator == '-') return floating(a - b);
  if (operator == '*') return floating(a * b);
  if (b == 0) fail("it divides by zero", text_of(""));
  if (operator == '/') return floating(a / b);
  const f64 whole = __builtin_floor(a / b);
  return floating(operator == '%' ? a - whole * b : whole);
}

Value negative(Value value) {
  defined(value);
  if (value.kind == FLOAT) return floating(-value.number);
  return of_whole('-', 0, as_int(value));
}

Value arithmetic(u32 operator, Value a, Value b) {
  defined(a);
  if (operator == '%' && a.kind == STRING) return format_percent(a.text, b);
  defined(b);
  if (operator == OP('*', '*')) return power(a, b);
  if (is_number(a) && is_number(b)) {
    if (is_whole(a) && is_whole(b) && operator != '/') return of_whole(operator, a.integer, b.integer);
    return of_floats(operator, as_float(a), as_float(b));
  }
  if (operator == '*' && is_whole(b) && (a.kind == STRING || is_ordered(a))) return repeated(a, b.integer);
  if (operator == '*' && is_whole(a) && (b.kind == STRING || is_ordered(b))) return repeated(b, a.integer);
  if (operator == '+' && a.kind == STRING && b.kind == STRING) return string(joined(a.text, b.text));
  if (operator == '+' && is_ordered(a) && a.kind == b.kind) {
    List *both = new_list(a.list->count + b.list->count);
    for (u32 i = 0; i < a.list->count; i++) append(both, a.list->items[i]);
    for (u32 i = 0; i < b.list->count; i++) append(both, b.list->items[i]);
    return list_of(a.kind, both);
  }
  Buffer out = {0};
  put_text(&out, text_of("it calculates with values of the kinds "));
  put_text(&out, text_of(kind_name(a)));
  put_text(&out, text_of(" and "));
  put_text(&out, text_of(kind_name(b)));
  stop(FAILED, written(&out));
}
