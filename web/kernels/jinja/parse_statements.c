// Parses tags into a tree.
#include "jinja.h"

static u32 loops;  // open around the current statement, in the current macro

static Node *parse_body(const char *const *ends);

// The target of {% for %}, {% set %} and {% with %}: a name, a field of a namespace, or a tuple of these.
Node *parse_target(void) {
  Node *target = parse_tuple(1, 0);
  for (Node *part = target->kind == TUPLE_OF ? target->first : target; part; part = part->next) {
    if (part->kind != NAME && part->kind != ATTRIBUTE)
      broken(part->line, "it assigns to something that is not a name", text_of(""));
    if (target == part) break;
  }
  return target;
}

static void end_tag(void) {
  if (token.kind != AT_BLOCK_END) broken(token.line, "there is no place for '%' in this tag", token_name());
  advance();
}

// The statements up to one of the tags `ends`, whose word is then the current token.
static Node *parse_body_in_tag(const char *const *ends) {
  end_tag();
  enter();
  Node *body = parse_body(ends);
  leave();
  return body;
}

static Node *parse_for(void) {
  Node *loop = node(FOR);
  loop->a = parse_target();
  if (!skip_name("in")) broken(token.line, "it expects 'in' before '%'", token_name());
  loop->b = parse_tuple(0, 0);
  if (skip_name("if")) loop->c = parse_expression();
  loop->operator = (u32)skip_name("recursive");
  static const char *const ends[] = {"endfor", "else", 0}, *const last[] = {"endfor", 0};
  loops++;
  loop->first = parse_body_in_tag(ends);
  loops--;
  if (skip_name("else")) loop->d = parse_body_in_tag(last);
  advance();
  return loop;
}

// An {% elif %} is an IF in the else branch of the previous one.
static Node *parse_if(void) {
  static const char *const ends[] = {"elif", "else", "endif", 0}, *const last[] = {"endif", 0};
  Node *first = 0, **next = &first;
  for (;;) {
    Node *branch = *next = node(IF);
    branch->a = parse_tuple(0, 0);
    branch->first = parse_body_in_tag(ends);
    next = &branch->d;
    if (skip_name("elif")) continue;
    if (skip_name("else")) branch->d = parse_body_in_tag(last);
    advance();
    return first;
  }
}

static Node *parse_set(void) {
  Node *set = node(SET);
  set->a = parse_target();
  if (skip_operator('=')) {
    set->b = parse_tuple(0, 1);
    return set;
  }
  static const char *const ends[] = {"endset", 0};
  set->kind = SET_BLOCK;
  if (at_operator('|')) {
    Node *text = node(CONSTANT);
    set->b = parse_filters(text);
    set->c = text;
  }
  set->first = parse_body_in_tag(ends);
  advance();
  return set;
}

static void parse_parameters(Node *of) {
  Node **last = &of->a;
  expect_operator('(');
  while (!skip_operator(')')) {
    if (of->a) expect_operator(',');
    Node *parameter = *last = node(ARGUMENT);
    parameter->name = expect_name();
    if (skip_operator('=')) parameter->a = parse_expression();
    last = &parameter->next;
  }
}

static Node *parse_macro_body(Node *macro, const char *const *ends) {
  const u32 around = loops;
  loops = 0;
  macro->first = parse_body_in_tag(ends);
  loops = around;
  advance();
  return macro;
}

static Node *parse_macro(void) {
  static const char *const ends[] = {"endmacro", 0};
  Node *macro = node(MACRO_OF);
  macro->name = expect_name();
  parse_parameters(macro);
  return parse_macro_body(macro, ends);
}

static Node *parse_call_block(void) {
  static const char *const ends[] = {"endcall", 0};
  Node *block = node(CALL_BLOCK);
  if (at_operator('(')) parse_parameters(block);
  block->b = parse_expression();
  if (block->b->kind != CALL) broken(block->line, "a call block calls nothing", text_of(""));
  block->name = text_of("caller");
  return parse_macro_body(block, ends);
}

static Node *parse_filter_block(void) {
  static const char *const ends[] = {"endfilter", 0};
  Node *block = node(FILTER_BLOCK), *text = node(CONSTANT), *filter = node(FILTER);
  filter->a = text;
  filter->name = expect_name();
  if (at_operator('(')) filter->first = parse_arguments();
  block->b = parse_filters(filter);
  block->c = text;
  block->first = parse_body_in_tag(ends);
  advance();
  return block;
}

static Node *parse_with(void) {
  static const char *const ends[] = {"endwith", 0};
  Node *block = node(WITH), **last = &block->a;
  while (token.kind != AT_BLOCK_END) {
    if (block->a) expect_operator(',');
    Node *set = *last = node(SET);
    set->a = parse_target();
    expect_operator('=');
    set->b = parse_expression();
    last = &set->next;
  }
  block->first = parse_body_in_tag(ends);
  advance();
  return block;
}

// The model's output, marked for training: here only its content matters.
static Node *parse_generation(void) {
  static const char *const ends[] = {"endgeneration", 0};
  Node *block = node(BODY);
  block->first = parse_body_in_tag(ends);
  advance();
  return block;
}

static Node *parse_jump(u32 kind) {
  if (!loops) broken(token.line, "it leaves a loop outside of one", text_of(""));
  return node(kind);
}

static Node *parse_statement(void) {
  const u32 line = token.line;
  Text word = expect_name();
  Node *made;
  if (is(word, "for")) made = parse_for();
  else if (is(word, "if")) made = parse_if();
  else if (is(word, "set")) made = parse_set();
  else if (is(word, "macro")) made = parse_macro();
  else if (is(word, "call")) made = parse_call_block();
  else if (is(word, "filter")) made = parse_filter_block();
  else if (is(word, "with")) made = parse_with();
  else if (is(word, "generation")) made = parse_generation();
  else if (is(word, "break")) made = parse_jump(BREAK);
  else if (is(word, "continue")) made = parse_jump(CONTINUE);
  else broken(line, "it has an unknown tag '%', or one in the wrong place", word);
  end_tag();
  return made;
}

static int is_end(const char *const *ends) {
  for (; *ends; ends++) if (at_name(*ends)) return 1;
  return 0;
}

static Node *parse_body(const char *const *ends) {
  Node *first = 0, **last = &first;
  for (;;) {
    Node *part;
    if (token.kind == AT_END) {
      if (*ends) broken(token.line, "it lacks the tag '%'", text_of(*ends));
      return first;
    }
    if (token.kind == AT_TEXT) {
      part = node(PRINT);
      part->a = node(CONSTANT);
      part->a->value = string(token.text);
      advance();
    } else if (token.kind == AT_PRINT) {
      advance();
      part = node(PRINT);
      part->a = parse_tuple(0, 1);
      if (token.kind != AT_PRINT_END) broken(token.line, "it expects '}}' before '%'", token_name());
      advance();
    } else {
      advance();
      if (is_end(ends)) return first;
      part = parse_statement();
    }
    *last = part;
    last = &part->next;
  }
}

Node *parse_template(void) {
  static const char *const no_ends[] = {0};
  return parse_body(no_ends);
}
