// Renders a chat template: Jinja as jinja2 runs it, over values that print, compare and sort like Python's.
//
// A template comes from a stranger's file. So everything happens in this module's own memory, which the host limits,
// and in a call that the host can stop; the module itself counts no steps. An instance renders once: `request` makes
// room for the JSON {"source", "variables", "now"}, `render` leaves the text at `output`, and every error ends in
// `refuse`, which never returns. The parts: lexer.c and parse*.c build a tree, evaluate.c and statements.c walk it,
// filters.c, tests.c and methods.c are callable from expressions, values.c, text.c and print.c define the values.
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
typedef double f64;

#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name
#define IMPORT(name) __attribute__((import_module("env"), import_name(#name))) name

enum { MAX_DEPTH = 200 };             // of nested expressions, blocks, calls and lists; real templates need 30
enum { MAX_RANGE = 100000 };          // the limit of jinja2's sandbox
enum { MAX_OUTPUT = 32 << 20 };       // bytes of the rendered text, and of any other
enum { BROKEN = 1, FAILED = 2, COSTLY = 3 };

// ---- values ----
typedef enum {
  UNDEFINED, NONE, BOOL, INT, FLOAT, STRING, LIST, TUPLE, GENERATOR, RANGE, DICT,
  NAMESPACE, MACRO, LOOP, FUNCTION, METHOD,
} Kind;

typedef struct Value Value;
typedef struct { const char *bytes; u32 length; } Text;  // UTF-8; a lone surrogate is three bytes
typedef struct { char *bytes; u32 length, room; } Buffer;
typedef struct { u32 count, room; Value *items; } List;
typedef struct Pair Pair;
typedef struct { u32 count, room; Pair *pairs; } Dict;

struct Value {
  u32 kind;
  union {
    i64 integer;
    f64 number;
    Text text;            // STRING, the name of what is UNDEFINED, the name of a FUNCTION
    List *list;           // LIST, TUPLE, GENERATOR, RANGE
    Dict *dict;           // DICT, NAMESPACE
    struct Macro *macro;
    struct Loop *loop;
    struct Method *method;
  };
};
struct Pair { Value key, value; };

typedef struct {
  u32 count, named;
  Value *values;          // by position
  Pair *names;            // by keyword
} Arguments;

// ---- the tree ----
typedef enum {
  CONSTANT, NAME, LIST_OF, TUPLE_OF, DICT_OF, ATTRIBUTE, ITEM, SLICE, CALL, FILTER, TEST, NOT, NEGATIVE, POSITIVE,
  ARITHMETIC, AND, OR, COMPARE, CONCAT, CONDITIONAL, ARGUMENT,
  PRINT, FOR, IF, SET, SET_BLOCK, MACRO_OF, CALL_BLOCK, FILTER_BLOCK, WITH, BREAK, CONTINUE, BODY,
} NodeKind;

typedef struct Node Node;
struct Node {
  u32 kind, line;
  Text name;              // of a NAME, ATTRIBUTE, FILTER, TEST, MACRO_OF; the keyword of an ARGUMENT
  u32 operator;           // of ARITHMETIC and COMPARE; 1: a negated TEST, a recursive FOR; stars of an ARGUMENT
  Node *a, *b, *c, *d;
  Node *first, *next;     // parts or arguments; the next sibling
  Value value;
};

// Operators, and punctuation, are their characters.
#define OP(x, y) ((u32)(x) | (u32)(y) << 8)
enum { IN = OP('i', 'n'), NOT_IN = OP('n', 'i') };

typedef enum { AT_END, AT_TEXT, AT_PRINT, AT_PRINT_END, AT_BLOCK, AT_BLOCK_END, AT_NAME, AT_STRING, AT_INT, AT_FLOAT,
               AT_OPERATOR } TokenKind;
typedef struct { u32 kind, line, operator; Text text; Value value; } Token;

// ---- memory.c ----
void *take(u64 bytes);
_Noreturn void stop(u32 kind, Text words);
_Noreturn void fail(const char *pattern, Text what);  // '%' in the pattern stands for `what`
_Noreturn void broken(u32 line, const char *pattern, Text what);
_Noreturn void too_large(void);
void enter(void);
void leave(void);
void put(Buffer *out, const char *bytes, u32 length);
void put_text(Buffer *out, Text text);
void put_char(Buffer *out, char c);
void put_number(Buffer *out, i64 number);
Text text_of(const char *bytes);                      // of a C string
Text written(const Buffer *out);
Text joined(Text a, Text b);
int same(Text a, Text b);
int is(Text a, const char *b);
char *request(u32 bytes);

// ---- lexer.c ----
void lex(Text source);
extern Token token;                                   // the current one
void advance(void);
Text token_name(void);

// ---- parse_expressions.c, parse_statements.c ----
Node *node(u32 kind);
Node *parse_expression(void);
Node *parse_tuple(int simple, int with_condition);
Node *parse_target(void);
Node *parse_arguments(void);
Node *parse_filters(Node *of);
Node *parse_primary(int names_of_namespaces);
Node *parse_template(void);
int at_operator(u32 operator);
int at_name(const char *name);
int skip_operator(u32 operator);
int skip_name(const char *name);
void expect_operator(u32 operator);
Text expect_name(void);

// ---- values.c ----
Value none(void);
Value boolean(int truth);
Value integer(i64 number);
Value floating(f64 number);
Value string(Text text);
Value undefined(Text name);
Value list_of(u32 kind, List *list);
Value dict_value(Dict *dict);
List *new_list(u32 room);
void append(List *list, Value value);
List *pair_list(Value a, Value b);
Dict *new_dict(void);
void set_key(Dict *dict, Value key, Value value);
const Value *find_key(const Dict *dict, Value key);
int is_text(Value value);
int is_number(Value value);
int is_whole(Value value);
int is_sequence(Value value);
f64 as_float(Value value);
i64 as_int(Value value);
Text as_text(Value value, const char *who);
Value defined(Value value);                           // the same, or an error that names what is missing
int truth(Value value);
int equal(Value a, Value b);
int order(Value a, Value b);                          // -1, 0, 1
int contains(Value container, Value item);
i64 length_of(Value value);
List *items_of(Value value);                          // the items that a loop iterates over
int overflows(i64 a, i64 b, i64 *product);            // whether a * b goes beyond *product, or nearly so
Value arithmetic(u32 operator, Value a, Value b);
Value negative(Value value);
const char *kind_name(Value value);

// ---- text.c ----
u32 next_code(Text text, u32 *at);                    // one character; *at advances past it
void put_code(Buffer *out, u32 code);
u32 characters(Text text);
u32 byte_at(Text text, u32 character);                // the offset of the character
Text part(Text text, u32 begin, u32 end);             // of bytes
i64 find(Text text, Text what, u32 from);             // in bytes, -1 if not found
int begins(Text text, Text with, u32 at);
int is_space(u32 code);
enum { ALPHA = 1, DIGIT = 2, UPPER = 4, LOWER = 8, PRINTABLE = 16, NUMERIC = 32, DECIMAL = 64 };
u32 traits_of(u32 code);
typedef enum { TO_LOWER, TO_UPPER, TO_TITLE } Case;
void put_case(Buffer *out, u32 code, Case to);
Text cased(Text text, Case to);
Text capitalized(Text text);
Text stripped(Text text, const Text *of, int left, int right);
Text replaced(Text text, Text old, Text new, i64 most);
Value sliced(Value value, Value begin, Value end, Value step);

// ---- print.c ----
Text printed(Value value);                            // Python's str()
void print(Buffer *out, Value value);
void put_repr(Buffer *out, Value value);
void put_float(Buffer *out, f64 number);
Text as_json(Value value, int ascii, Value indent, Text between, Text after_key, int sorted);
Value number_from(Text text, int whole);              // UNDEFINED if the text is not a number

// ---- json.c ----
Value parse_json(Text text);

// ---- evaluate.c, statements.c ----
typedef struct Binding Binding;
struct Binding { Text name; Value value; Binding *next; };
typedef struct Scope Scope;
struct Scope { Scope *parent; Binding *first; };
typedef struct Macro { Text name; Node *node; Scope *scope; } Macro;
typedef struct Method { Value owner; Text name; } Method;

typedef struct Loop {
  List *items;
  u32 at, index, total;                               // the next item to look at; rounds begun; all rounds, once counted
  int has_next, counted, depth;
  Value previous, current, next, changed;
  Node *node;
  Scope *scope;
} Loop;

Value evaluate(Node *expression, Scope *scope);
Arguments arguments_of(Node *first, Scope *scope);
Value call(Value callee, Arguments *given);
Value attribute(Value owner, Text name);
Value item(Value owner, Value key);
Value lookup(Scope *scope, Text name);
void bind(Scope *scope, Text name, Value value);
Scope *scope_in(Scope *parent);
void assign(Node *target, Value value, Scope *scope);
void run(Node *first, Scope *scope, Buffer *out);     // statements
Value call_macro(Macro *macro, Arguments *given);
Value call_loop(Loop *loop, Arguments *given);
Value loop_attribute(Loop *loop, Text name);

// ---- filters.c, tests.c, methods.c, functions.c ----
Value argument(Arguments *given, u32 index, const char *name, Value otherwise);
Value call_filter(Text name, Value value, Arguments *given);
int call_test(Text name, Value value, Arguments *given);
int has_method(Value owner, Text name);
Value call_method(Value owner, Text name, Arguments *given);
Value format_percent(Text pattern, Value with);
Value format_braces(Text pattern, Arguments *given);
int is_function(Text name);
Value call_function(Text name, Arguments *given);
void set_clock(Value now);
void sort_list(List *list, int reverse, int with_case, Text by);
Value attribute_path(Value value, Text path);
