// Runs statements: output goes to a buffer, assignments to a scope.
#include "jinja.h"

static u32 jump;  // BREAK or CONTINUE, on its way to its loop

void assign(Node *target, Value value, Scope *scope) {
  if (target->kind == NAME) { bind(scope, target->name, value); return; }
  if (target->kind == ATTRIBUTE) {
    Value owner = evaluate(target->a, scope);
    if (owner.kind != NAMESPACE) fail("it sets a field of '%', which is no namespace", target->a->name);
    set_key(owner.dict, string(target->name), value);
    return;
  }
  List *items = items_of(defined(value));
  u32 i = 0;
  for (Node *part = target->first; part; part = part->next) {
    if (i == items->count) fail("it assigns too few values to several names", text_of(""));
    assign(part, items->items[i++], scope);
  }
  if (i < items->count) fail("it assigns too many values to several names", text_of(""));
}

static Text captured(Node *first, Scope *scope) {
  Buffer out = {0};
  run(first, scope, &out);
  return written(&out);
}

// ---- loops ----
// Returns whether there is another iteration. A condition is evaluated only when its item is needed, as it may depend
// on earlier iterations.
static int looks_ahead(Loop *loop) {
  while (!loop->has_next && loop->at < loop->items->count) {
    loop->next = loop->items->items[loop->at++];
    loop->has_next = 1;
    if (!loop->node->c || loop->counted) break;
    Scope *scope = scope_in(loop->scope);
    assign(loop->node->a, loop->next, scope);
    loop->has_next = truth(evaluate(loop->node->c, scope));
  }
  return loop->has_next;
}

static u32 rounds(Loop *loop) {
  if (!loop->node->c) return loop->items->count;
  if (!loop->counted) {
    List *left = new_list(0);
    while (looks_ahead(loop)) { append(left, loop->next); loop->has_next = 0; }
    loop->items = left;
    loop->at = 0;
    loop->counted = 1;
    loop->total = loop->index + left->count;
  }
  return loop->total;
}

Value loop_attribute(Loop *loop, Text name) {
  if (is(name, "index")) return integer(loop->index);
  if (is(name, "index0")) return integer((i64)loop->index - 1);
  if (is(name, "first")) return boolean(loop->index == 1);
  if (is(name, "last")) return boolean(!looks_ahead(loop));
  if (is(name, "length")) return integer(rounds(loop));
  if (is(name, "revindex")) return integer((i64)rounds(loop) - loop->index + 1);
  if (is(name, "revindex0")) return integer((i64)rounds(loop) - loop->index);
  if (is(name, "previtem")) return loop->previous;
  if (is(name, "nextitem")) return looks_ahead(loop) ? loop->next : undefined(name);
  if (is(name, "depth")) return integer(loop->depth);
  if (is(name, "depth0")) return integer(loop->depth - 1);
  if (is(name, "cycle") || is(name, "changed")) {
    Method *method = take(sizeof(Method));
    *method = (Method){{.kind = LOOP, .loop = loop}, name};
    return (Value){.kind = METHOD, .method = method};
  }
  return undefined(name);
}

static void run_loop(Node *node, List *items, Scope *scope, int depth, Buffer *out) {
  Loop *loop = take(sizeof(Loop));
  *loop = (Loop){.items = items, .depth = depth, .node = node, .scope = scope};
  loop->current = undefined(text_of("loop.previtem"));
  while (looks_ahead(loop)) {
    loop->previous = loop->current;
    loop->current = loop->next;
    loop->has_next = 0;
    loop->index++;
    Scope *inner = scope_in(scope);
    assign(node->a, loop->current, inner);
    bind(inner, text_of("loop"), (Value){.kind = LOOP, .loop = loop});
    run(node->first, inner, out);
    const u32 jumped = jump;
    jump = 0;
    if (jumped == BREAK) break;
  }
  if (!loop->index) run(node->d, scope_in(scope), out);
}

Value call_loop(Loop *loop, Arguments *given) {
  if (!loop->node->operator) fail("it calls a loop that is not recursive", text_of(""));
  Buffer out = {0};
  run_loop(loop->node, items_of(argument(given, 0, "", undefined(text_of("")))), loop->scope, loop->depth + 1, &out);
  return string(written(&out));
}

// ---- macros ----
static Value macro_of(Node *node, Scope *scope) {
  Macro *macro = take(sizeof(Macro));
  *macro = (Macro){node->name, node, scope};
  return (Value){.kind = MACRO, .macro = macro};
}

Value call_macro(Macro *macro, Arguments *given) {
  Scope *scope = scope_in(macro->scope);
  List *more = new_list(0);
  Dict *others = new_dict();
  u32 position = 0;
  for (Node *one = macro->node->a; one; one = one->next, position++) {
    Value value = argument(given, position, "", undefined(one->name));
    u32 i = 0;
    while (i < given->named && !same(given->names[i].key.text, one->name)) i++;
    if (i < given->named) value = given->names[i].value;
    else if (position >= given->count && one->a) value = evaluate(one->a, scope);
    bind(scope, one->name, value);
  }
  for (; position < given->count; position++) append(more, given->values[position]);
  for (u32 i = 0; i < given->named; i++) {
    Node *one = macro->node->a;
    while (one && !same(one->name, given->names[i].key.text)) one = one->next;
    if (one) continue;
    if (is(given->names[i].key.text, "caller")) bind(scope, text_of("caller"), given->names[i].value);
    else set_key(others, given->names[i].key, given->names[i].value);
  }
  bind(scope, text_of("varargs"), list_of(TUPLE, more));
  bind(scope, text_of("kwargs"), dict_value(others));
  return string(captured(macro->node->first, scope));
}

static Value call_block(Node *block, Scope *scope) {
  Value callee = evaluate(block->b->a, scope);
  Arguments given = arguments_of(block->b->first, scope);
  Pair *names = take((u64)(given.named + 1) * sizeof(Pair));
  for (u32 i = 0; i < given.named; i++) names[i] = given.names[i];
  names[given.named++] = (Pair){string(text_of("caller")), macro_of(block, scope)};
  given.names = names;
  return call(callee, &given);
}

// ---- running statements ----
static void run_one(Node *of, Scope *scope, Buffer *out) {
  switch (of->kind) {
    case PRINT: print(out, evaluate(of->a, scope)); break;
    case FOR: run_loop(of, items_of(evaluate(of->b, scope)), scope, 1, out); break;
    case IF: run(truth(evaluate(of->a, scope)) ? of->first : of->d, scope, out); break;
    case SET: assign(of->a, evaluate(of->b, scope), scope); break;
    case SET_BLOCK: {
      Value text = string(captured(of->first, scope_in(scope)));
      if (of->b) {
        of->c->value = text;
        text = evaluate(of->b, scope);
      }
      assign(of->a, text, scope);
      break;
    }
    case MACRO_OF: bind(scope, of->name, macro_of(of, scope)); break;
    case CALL_BLOCK: print(out, call_block(of, scope)); break;
    case FILTER_BLOCK:
      of->c->value = string(captured(of->first, scope_in(scope)));
      print(out, evaluate(of->b, scope));
      break;
    case WITH: {
      Scope *inner = scope_in(scope);
      for (Node *set = of->a; set; set = set->next) assign(set->a, evaluate(set->b, scope), inner);
      run(of->first, inner, out);
      break;
    }
    case BODY: run(of->first, scope_in(scope), out); break;
    default: jump = of->kind;
  }
}

void run(Node *first, Scope *scope, Buffer *out) {
  enter();
  for (Node *one = first; one && !jump; one = one->next) run_one(one, scope, out);
  leave();
}
