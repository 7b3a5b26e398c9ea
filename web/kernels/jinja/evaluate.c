// Evaluates an expression in a scope.
#include "jinja.h"

Scope *scope_in(Scope *parent) {
  Scope *scope = take(sizeof(Scope));
  *scope = (Scope){.parent = parent};
  return scope;
}

void bind(Scope *scope, Text name, Value value) {
  for (Binding *one = scope->first; one; one = one->next) {
    if (same(one->name, name)) { one->value = value; return; }
  }
  Binding *made = take(sizeof(Binding));
  *made = (Binding){name, value, scope->first};
  scope->first = made;
}

Value lookup(Scope *scope, Text name) {
  for (; scope; scope = scope->parent)
    for (Binding *one = scope->first; one; one = one->next) if (same(one->name, name)) return one->value;
  return is_function(name) ? (Value){.kind = FUNCTION, .text = name} : undefined(name);
}

// ---- parts of a value ----
static Value method_of(Value owner, Text name) {
  Method *method = take(sizeof(Method));
  *method = (Method){owner, name};
  return (Value){.kind = METHOD, .method = method};
}

// The lookup order of jinja2: first an attribute (a Python method), then a key of this name.
Value attribute(Value owner, Text name) {
  defined(owner);
  if (name.length && name.bytes[0] == '_') return undefined(name);
  if (owner.kind == LOOP) return loop_attribute(owner.loop, name);
  if (has_method(owner, name)) return method_of(owner, name);
  const Value *found = 0;
  if (owner.kind == DICT || owner.kind == NAMESPACE) found = find_key(owner.dict, string(name));
  return found ? *found : undefined(name);
}

Value item(Value owner, Value key) {
  defined(owner);
  if (owner.kind == DICT) {
    const Value *found = find_key(owner.dict, key);
    if (found) return *found;
  }
  if (is_whole(key) && (owner.kind == STRING || (is_sequence(owner) && owner.kind != GENERATOR))) {
    const i64 length = length_of(owner), index = key.integer < 0 ? key.integer + length : key.integer;
    if (index < 0 || index >= length) return undefined(text_of("an item beyond the end"));
    if (owner.kind != STRING) return owner.list->items[index];
    const u32 begin = byte_at(owner.text, (u32)index);
    u32 end = begin;
    next_code(owner.text, &end);
    return string(part(owner.text, begin, end));
  }
  return key.kind == STRING ? attribute(owner, key.text) : undefined(text_of("an item"));
}

// A path such as "function.name" or "0", which some filters accept.
Value attribute_path(Value value, Text path) {
  for (u32 at = 0; at <= path.length;) {
    const i64 point = find(path, text_of("."), at);
    Text name = part(path, at, point < 0 ? path.length : (u32)point);
    Value index = number_from(name, 1);
    if (value.kind == UNDEFINED) return value;
    value = item(value, index.kind == INT ? index : string(name));
    if (point < 0) break;
    at = (u32)point + 1;
  }
  return value;
}

// ---- calls ----
static void add_named(Arguments *given, Pair *pairs, u32 count) {
  Pair *all = take((u64)(given->named + count) * sizeof(Pair));
  for (u32 i = 0; i < given->named; i++) all[i] = given->names[i];
  for (u32 i = 0; i < count; i++) all[given->named + i] = pairs[i];
  given->names = all;
  given->named += count;
}

Arguments arguments_of(Node *first, Scope *scope) {
  List *values = new_list(0);
  Arguments given = {0};
  for (Node *one = first; one; one = one->next) {
    Value value = evaluate(one->a, scope);
    if (one->operator == 1) {
      List *more = items_of(value);
      for (u32 i = 0; i < more->count; i++) append(values, more->items[i]);
    } else if (one->operator == 2) {
      if (value.kind != DICT) fail("a value of the kind % is no dict of arguments", text_of(kind_name(value)));
      add_named(&given, value.dict->pairs, value.dict->count);
    } else if (one->name.length) {
      add_named(&given, &(Pair){string(one->name), value}, 1);
    } else {
      append(values, value);
    }
  }
  given.values = values->items;
  given.count = values->count;
  return given;
}

Value call(Value callee, Arguments *given) {
  enter();
  Value result;
  switch (callee.kind) {
    case FUNCTION: result = call_function(callee.text, given); break;
    case METHOD: result = call_method(callee.method->owner, callee.method->name, given); break;
    case MACRO: result = call_macro(callee.macro, given); break;
    case LOOP: result = call_loop(callee.loop, given); break;
    default:
      defined(callee);
      fail("a value of the kind % cannot be called", text_of(kind_name(callee)));
  }
  leave();
  return result;
}

// ---- expressions ----
static Value collection(Node *of, u32 kind, Scope *scope) {
  List *list = new_list(0);
  for (Node *one = of->first; one; one = one->next) append(list, evaluate(one, scope));
  return list_of(kind, list);
}

static Value dict_of(Node *of, Scope *scope) {
  Dict *dict = new_dict();
  for (Node *one = of->first; one; one = one->next) {
    Value key = evaluate(one->a, scope);
    set_key(dict, key, evaluate(one->b, scope));
  }
  return dict_value(dict);
}

static Value slice(Node *of, Scope *scope) {
  Value value = evaluate(of->a, scope);
  Value begin = of->b ? evaluate(of->b, scope) : none();
  Value end = of->c ? evaluate(of->c, scope) : none();
  return sliced(value, begin, end, of->d ? evaluate(of->d, scope) : none());
}

static int compares(u32 operator, Value a, Value b) {
  switch (operator) {
    case OP('=', '='): return equal(a, b);
    case OP('!', '='): return !equal(a, b);
    case '<': return order(a, b) < 0;
    case OP('<', '='): return order(a, b) <= 0;
    case '>': return order(a, b) > 0;
    case OP('>', '='): return order(a, b) >= 0;
    case IN: return contains(b, a);
    default: return !contains(b, a);
  }
}

static Value comparison(Node *of, Scope *scope) {
  Value left = evaluate(of->a, scope);
  for (Node *side = of->first; side; side = side->next) {
    Value right = evaluate(side->a, scope);
    if (!compares(side->operator, left, right)) return boolean(0);
    left = right;
  }
  return boolean(1);
}

static Value concatenation(Node *of, Scope *scope) {
  Text text = printed(evaluate(of->first, scope));
  for (Node *one = of->first->next; one; one = one->next) text = joined(text, printed(evaluate(one, scope)));
  return string(text);
}

static Value evaluated(Node *of, Scope *scope) {
  Value value;
  Arguments given;
  switch (of->kind) {
    case CONSTANT: return of->value;
    case NAME: return lookup(scope, of->name);
    case LIST_OF: return collection(of, LIST, scope);
    case TUPLE_OF: return collection(of, TUPLE, scope);
    case DICT_OF: return dict_of(of, scope);
    case ATTRIBUTE: return attribute(evaluate(of->a, scope), of->name);
    case ITEM: value = evaluate(of->a, scope); return item(value, evaluate(of->b, scope));
    case SLICE: return slice(of, scope);
    case CALL:
      value = evaluate(of->a, scope);
      given = arguments_of(of->first, scope);
      return call(value, &given);
    case FILTER:
      value = evaluate(of->a, scope);
      given = arguments_of(of->first, scope);
      return call_filter(of->name, value, &given);
    case TEST:
      value = evaluate(of->a, scope);
      given = arguments_of(of->first, scope);
      return boolean(call_test(of->name, value, &given) != (int)of->operator);
    case NOT: return boolean(!truth(evaluate(of->a, scope)));
    case NEGATIVE: return negative(evaluate(of->a, scope));
    case POSITIVE: return arithmetic('+', integer(0), evaluate(of->a, scope));
    case ARITHMETIC: value = evaluate(of->a, scope); return arithmetic(of->operator, value, evaluate(of->b, scope));
    case AND: value = evaluate(of->a, scope); return truth(value) ? evaluate(of->b, scope) : value;
    case OR: value = evaluate(of->a, scope); return truth(value) ? value : evaluate(of->b, scope);
    case COMPARE: return comparison(of, scope);
    case CONCAT: return concatenation(of, scope);
    case CONDITIONAL:
      if (truth(evaluate(of->a, scope))) return evaluate(of->b, scope);
      return of->c ? evaluate(of->c, scope) : undefined(text_of("the value of an if without an else"));
    default: __builtin_trap();
  }
}

Value evaluate(Node *expression, Scope *scope) {
  enter();
  Value value = evaluated(expression, scope);
  leave();
  return value;
}
