// Parses expressions into a tree, with jinja2's precedence: if-else, or, and, not, comparisons, + -, ~, * / // %, **,
// signs.
#include "jinja.h"

int at_operator(u32 operator) { return token.kind == AT_OPERATOR && token.operator == operator; }
int at_name(const char *name) { return token.kind == AT_NAME && is(token.text, name); }

int skip_operator(u32 operator) {
  if (!at_operator(operator)) return 0;
  advance();
  return 1;
}

int skip_name(const char *name) {
  if (!at_name(name)) return 0;
  advance();
  return 1;
}

void expect_operator(u32 operator) {
  if (skip_operator(operator)) return;
  Buffer words = {0};
  put_text(&words, text_of("it expects '"));
  put_char(&words, (char)operator);
  put_text(&words, text_of("' before '%'"));
  put_char(&words, 0);
  broken(token.line, words.bytes, token_name());
}

Text expect_name(void) {
  if (token.kind != AT_NAME) broken(token.line, "it expects a name before '%'", token_name());
  Text name = token.text;
  advance();
  return name;
}

Node *node(u32 kind) {
  Node *made = take(sizeof(Node));
  *made = (Node){.kind = kind, .line = token.line};
  return made;
}

static Node *with_parts(u32 kind, Node *a, Node *b) {
  Node *made = node(kind);
  made->a = a;
  made->b = b;
  return made;
}

static Node *constant(Value value) {
  Node *made = node(CONSTANT);
  made->value = value;
  return made;
}

// ---- primary expressions ----
static Node *parse_list(void) {
  Node *list = node(LIST_OF), **last = &list->first;
  while (!skip_operator(']')) {
    if (list->first) { expect_operator(','); if (skip_operator(']')) break; }
    *last = parse_expression();
    last = &(*last)->next;
  }
  return list;
}

static Node *parse_dict(void) {
  Node *dict = node(DICT_OF), **last = &dict->first;
  while (!skip_operator('}')) {
    if (dict->first) { expect_operator(','); if (skip_operator('}')) break; }
    Node *key = parse_expression();
    expect_operator(':');
    *last = with_parts(ARGUMENT, key, parse_expression());
    last = &(*last)->next;
  }
  return dict;
}

Node *parse_primary(int names_of_namespaces) {
  if (token.kind == AT_NAME) {
    Node *name = node(NAME);
    name->name = token.text;
    advance();
    if (is(name->name, "true") || is(name->name, "True")) return constant(boolean(1));
    if (is(name->name, "false") || is(name->name, "False")) return constant(boolean(0));
    if (is(name->name, "none") || is(name->name, "None")) return constant(none());
    if (names_of_namespaces && skip_operator('.')) {
      Node *field = with_parts(ATTRIBUTE, name, 0);
      field->name = expect_name();
      return field;
    }
    return name;
  }
  if (token.kind == AT_STRING) {
    Text text = token.text;
    for (advance(); token.kind == AT_STRING; advance()) text = joined(text, token.text);
    return constant(string(text));
  }
  if (token.kind == AT_INT || token.kind == AT_FLOAT) {
    Node *number = constant(token.value);
    advance();
    return number;
  }
  if (skip_operator('(')) {
    Node *inside;
    if (at_operator(')')) inside = node(TUPLE_OF);
    else inside = parse_tuple(0, 1);
    expect_operator(')');
    return inside;
  }
  if (skip_operator('[')) return parse_list();
  if (skip_operator('{')) return parse_dict();
  broken(token.line, "there is no place for '%'", token_name());
}

static Node *parse_or(void);

static int ends_tuple(void) {
  return token.kind == AT_PRINT_END || token.kind == AT_BLOCK_END || at_operator(')') || at_name("in");
}

// One expression, or several separated by commas, which form a tuple. simple: names and literals only.
Node *parse_tuple(int simple, int with_condition) {
  Node *first = 0, **last = &first;
  int is_tuple = 0;
  for (;;) {
    if (first && ends_tuple()) break;
    *last = simple ? parse_primary(1) : with_condition ? parse_expression() : parse_or();
    last = &(*last)->next;
    if (!skip_operator(',')) break;
    is_tuple = 1;
  }
  if (!is_tuple) return first;
  Node *tuple = node(TUPLE_OF);
  tuple->first = first;
  return tuple;
}

// ---- postfix expressions ----
Node *parse_arguments(void) {
  Node *first = 0, **last = &first;
  expect_operator('(');
  while (!skip_operator(')')) {
    if (first) { expect_operator(','); if (skip_operator(')')) break; }
    Node *argument = node(ARGUMENT);
    if (skip_operator(OP('*', '*'))) argument->operator = 2;
    else if (skip_operator('*')) argument->operator = 1;
    argument->a = parse_expression();
    if (!argument->operator && argument->a->kind == NAME && at_operator('=')) {
      advance();
      argument->name = argument->a->name;
      argument->a = parse_expression();
    }
    *last = argument;
    last = &argument->next;
  }
  return first;
}

static Node *parse_subscript(Node *of) {
  Node *begin = 0, *end = 0, *step = 0;
  int is_slice = 0;
  if (!at_operator(':')) begin = parse_expression();
  if (skip_operator(':')) {
    is_slice = 1;
    if (!at_operator(']') && !at_operator(':')) end = parse_expression();
    if (skip_operator(':') && !at_operator(']')) step = parse_expression();
  }
  expect_operator(']');
  if (!is_slice) return with_parts(ITEM, of, begin);
  Node *slice = with_parts(SLICE, of, begin);
  slice->c = end;
  slice->d = step;
  return slice;
}

static Node *parse_call(Node *of) {
  Node *made = with_parts(CALL, of, 0);
  made->first = parse_arguments();
  return made;
}

static Node *parse_postfix(Node *of) {
  for (;;) {
    if (skip_operator('.')) {
      if (token.kind == AT_INT) {
        Node *index = constant(token.value);
        advance();
        of = with_parts(ITEM, of, index);
      } else {
        of = with_parts(ATTRIBUTE, of, 0);
        of->name = expect_name();
      }
    } else if (skip_operator('[')) {
      of = parse_subscript(of);
    } else if (at_operator('(')) {
      of = parse_call(of);
    } else {
      return of;
    }
  }
}

static Node *parse_filter(Node *of) {
  Node *filter = with_parts(FILTER, of, 0);
  filter->name = expect_name();
  if (at_operator('(')) filter->first = parse_arguments();
  return filter;
}

static int begins_argument(void) {
  if (token.kind == AT_NAME) return !at_name("else") && !at_name("or") && !at_name("and");
  return token.kind == AT_STRING || token.kind == AT_INT || token.kind == AT_FLOAT || at_operator('(') ||
         at_operator('[') || at_operator('{');
}

static Node *parse_test(Node *of) {
  Node *test = with_parts(TEST, of, 0);
  test->operator = (u32)skip_name("not");
  test->name = expect_name();
  if (at_operator('(')) {
    test->first = parse_arguments();
  } else if (begins_argument() && !at_name("is")) {
    // In "x is divisibleby 3 if y" the "if" is not an argument, though jinja2's list of exceptions lacks it.
    if (at_name("if")) return test;
    Node *argument = node(ARGUMENT);
    argument->a = parse_postfix(parse_primary(0));
    test->first = argument;
  }
  return test;
}

Node *parse_filters(Node *of) {
  for (;;) {
    if (skip_operator('|')) of = parse_filter(of);
    else if (skip_name("is")) of = parse_test(of);
    else if (at_operator('(')) of = parse_call(of);
    else return of;
  }
}

// ---- operators ----
static Node *parse_unary(int with_filters) {
  enter();
  Node *of;
  if (skip_operator('-')) of = with_parts(NEGATIVE, parse_unary(0), 0);
  else if (skip_operator('+')) of = with_parts(POSITIVE, parse_unary(0), 0);
  else of = parse_primary(0);
  of = parse_postfix(of);
  if (with_filters) of = parse_filters(of);
  leave();
  return of;
}

static Node *operation(Node *left, Node *(*parse)(void)) {
  Node *made = with_parts(ARITHMETIC, left, 0);
  made->operator = token.operator;
  advance();
  made->b = parse();
  return made;
}

static Node *parse_signed(void) { return parse_unary(1); }

static Node *parse_power(void) {
  Node *left = parse_signed();
  while (at_operator(OP('*', '*'))) left = operation(left, parse_signed);
  return left;
}

static Node *parse_product(void) {
  Node *left = parse_power();
  while (at_operator('*') || at_operator('/') || at_operator(OP('/', '/')) || at_operator('%'))
    left = operation(left, parse_power);
  return left;
}

static Node *parse_concat(void) {
  Node *first = parse_product();
  if (!at_operator('~')) return first;
  Node *concat = node(CONCAT), **last = &first->next;
  concat->first = first;
  while (skip_operator('~')) {
    *last = parse_product();
    last = &(*last)->next;
  }
  return concat;
}

static Node *parse_sum(void) {
  Node *left = parse_concat();
  while (at_operator('+') || at_operator('-')) left = operation(left, parse_concat);
  return left;
}

static u32 comparison(void) {
  static const u32 operators[] = {OP('=', '='), OP('!', '='), '<', OP('<', '='), '>', OP('>', '=')};
  for (u32 i = 0; i < 6; i++) if (skip_operator(operators[i])) return operators[i];
  return skip_name("in") ? IN : 0;
}

static Node *parse_comparison(void) {
  Node *left = parse_sum(), *compare = 0, **last = 0;
  for (;;) {
    u32 operator = comparison();
    if (!operator && at_name("not")) {
      // After a complete operand, "not" can only begin "not in".
      advance();
      if (!skip_name("in")) broken(token.line, "it expects 'in' before '%'", token_name());
      operator = NOT_IN;
    }
    if (!operator) return compare ? compare : left;
    if (!compare) { compare = with_parts(COMPARE, left, 0); last = &compare->first; }
    Node *side = with_parts(ARGUMENT, parse_sum(), 0);
    side->operator = operator;
    *last = side;
    last = &side->next;
  }
}

static Node *parse_not(void) {
  if (!at_name("not")) return parse_comparison();
  advance();
  enter();
  Node *made = with_parts(NOT, parse_not(), 0);
  leave();
  return made;
}

static Node *parse_and(void) {
  Node *left = parse_not();
  while (skip_name("and")) left = with_parts(AND, left, parse_not());
  return left;
}

static Node *parse_or(void) {
  Node *left = parse_and();
  while (skip_name("or")) left = with_parts(OR, left, parse_and());
  return left;
}

static Node *parse_conditional(Node *then) {
  Node *made = with_parts(CONDITIONAL, parse_or(), then);
  if (skip_name("else")) { enter(); made->c = parse_expression(); leave(); }
  return made;
}

Node *parse_expression(void) {
  enter();
  Node *made = parse_or();
  while (skip_name("if")) made = parse_conditional(made);
  leave();
  return made;
}
