// Splits template source into tokens, one at a time: text between the tags, and the contents of tags.
#include "jinja.h"

Token token;
static Text source;
static u32 at, line, brackets;   // brackets open inside the current tag: "}}" may close two dicts
static int in_tag;               // AT_PRINT or AT_BLOCK
static int strips;               // the last tag ended with "-"
static int trims;                // the last tag was a block or a comment: one newline after it is removed

static int has(u32 where, const char *what) { return begins(source, text_of(what), where); }
static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
static int is_word(u8 c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c >= 0x80;
}
static int is_number_char(u8 c) { return c >= '0' && c <= '9'; }

static void count_lines(u32 from, u32 to) {
  for (u32 i = from; i < to; i++) line += source.bytes[i] == '\n';
}

// Newlines are \n, and one at the very end does not belong to the template.
void lex(Text given) {
  Text plain = replaced(given, text_of("\r\n"), text_of("\n"), -1);
  plain = replaced(plain, text_of("\r"), text_of("\n"), -1);
  if (plain.length && plain.bytes[plain.length - 1] == '\n') plain.length--;
  source = plain;
  line = 1;
  advance();
}

static void skip_comment(void) {
  const i64 end = find(source, text_of("#}"), at + 2);
  if (end < 0) broken(line, "a comment has no end", text_of(""));
  strips = source.bytes[end - 1] == '-' && (u32)end > at + 2;
  trims = source.bytes[end - 1] != '+';
  count_lines(at, (u32)end);
  at = (u32)end + 2;
}

// Returns whether a tag "{%" at `where` contains only this word, as in {%- raw -%}; *end is behind it, *minus its last
// sign.
static int is_tag(u32 where, const char *word, u32 *end, char *minus) {
  where += 2;
  if (where < source.length && (source.bytes[where] == '-' || source.bytes[where] == '+')) where++;
  while (where < source.length && is_blank(source.bytes[where])) where++;
  if (!has(where, word)) return 0;
  where += text_of(word).length;
  while (where < source.length && is_blank(source.bytes[where])) where++;
  *minus = 0;
  if (has(where, "-%}") || has(where, "+%}")) *minus = source.bytes[where++];
  *end = where + 2;
  return has(where, "%}");
}

// The text up to the next tag, without the white space that the tags on both sides strip.
static Text text_before(u32 begin, u32 end, u32 next, int is_print) {
  const char sign = next + 2 < source.length ? source.bytes[next + 2] : 0;
  if (strips) while (begin < end && is_blank(source.bytes[begin])) begin++;
  else if (trims && begin < end && source.bytes[begin] == '\n') begin++;
  if (next < source.length && sign == '-') {
    while (end > begin && is_blank(source.bytes[end - 1])) end--;
  } else if (next < source.length && !is_print && sign != '+') {
    // lstrip_blocks: blanks before a block or a comment are removed if nothing else is in their line.
    u32 blanks = end;
    while (blanks > begin && (source.bytes[blanks - 1] == ' ' || source.bytes[blanks - 1] == '\t')) blanks--;
    if (!blanks || source.bytes[blanks - 1] == '\n') end = blanks;
  }
  return part(source, begin, end);
}

static void lex_text(void) {
  for (;;) {
    u32 next = at;
    while (next < source.length && !(source.bytes[next] == '{' && next + 1 < source.length &&
           (source.bytes[next + 1] == '{' || source.bytes[next + 1] == '%' || source.bytes[next + 1] == '#'))) next++;
    const int is_print = next + 1 < source.length && source.bytes[next + 1] == '{';
    Text text = text_before(at, next, next, is_print);
    token = (Token){.kind = AT_TEXT, .line = line, .text = text};
    count_lines(at, next);
    at = next;
    strips = trims = 0;
    if (text.length) return;
    if (next >= source.length) { token.kind = AT_END; return; }
    if (source.bytes[next + 1] == '#') { skip_comment(); continue; }
    u32 end;
    char minus;
    if (!is_print && is_tag(next, "raw", &end, &minus)) {
      u32 close = end, behind = 0;
      char closing = 0;
      while (close < source.length && !(has(close, "{%") && is_tag(close, "endraw", &behind, &closing))) close++;
      if (close >= source.length) broken(line, "a raw block has no end", text_of(""));
      strips = minus == '-';
      trims = minus != '+';
      text = text_before(end, close, close, 0);
      token = (Token){.kind = AT_TEXT, .line = line, .text = text};
      count_lines(at, behind);
      at = behind;
      strips = closing == '-';
      trims = closing != '+';
      if (text.length) return;
      continue;
    }
    in_tag = is_print ? AT_PRINT : AT_BLOCK;
    brackets = 0;
    at += 2;
    if (at < source.length && (source.bytes[at] == '-' || source.bytes[at] == '+')) at++;
    token = (Token){.kind = (u32)in_tag, .line = line};
    return;
  }
}

static u32 digit_of(char c) {
  if (c >= '0' && c <= '9') return (u32)(c - '0');
  const char lower = c | 32;
  return lower >= 'a' && lower <= 'f' ? (u32)(lower - 'a' + 10) : 99;
}

static u32 escaped_number(u32 base, u32 most, u32 exactly) {
  u32 code = 0, count = 0;
  for (; count < most && at < source.length && digit_of(source.bytes[at]) < base; at++, count++)
    code = code * base + digit_of(source.bytes[at]);
  if (exactly && count < most) broken(line, "a string has an escape that is too short", text_of(""));
  return code;
}

static void lex_string(char quote) {
  Buffer out = {0};
  const u32 begun = line;
  for (at++;;) {
    if (at >= source.length) broken(begun, "a string has no end", text_of(""));
    const char c = source.bytes[at++];
    if (c == quote) break;
    line += c == '\n';
    if (c != '\\' || at >= source.length) { put_char(&out, c); continue; }
    const char what = source.bytes[at++];
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    u32 known = 0;
    while (from[known] && from[known] != what) known++;
    if (from[known]) put_char(&out, to[known]);
    else if (what == '\n') line++;
    else if (what == 'x') put_code(&out, escaped_number(16, 2, 1));
    else if (what == 'u') put_code(&out, escaped_number(16, 4, 1));
    else if (what == 'U') put_code(&out, escaped_number(16, 8, 1));
    else if (what >= '0' && what <= '7') { at--; put_code(&out, escaped_number(8, 3, 0)); }
    else { put_char(&out, '\\'); put_char(&out, what); }
  }
  token = (Token){.kind = AT_STRING, .line = begun, .text = written(&out)};
}

static void lex_number(void) {
  const u32 begin = at;
  const int is_item = begin && source.bytes[begin - 1] == '.';  // in x.0.1, which is not a fraction
  u32 base = 10;
  if (source.bytes[at] == '0' && at + 1 < source.length) {
    const char letter = source.bytes[at + 1] | 32;
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) at += 2;
  }
  i64 number = 0;
  Buffer digits = {0};
  int whole = 1;
  for (; at < source.length; at++) {
    const char c = source.bytes[at];
    if (c == '_') continue;
    if (digit_of(c) >= base) break;
    put_char(&digits, c);
    if (overflows(number, (i64)base, &number) || __builtin_add_overflow(number, digit_of(c), &number))
      too_large();
  }
  const char after = at + 1 < source.length ? source.bytes[at + 1] : 0;
  if (!is_item && base == 10 && at < source.length && source.bytes[at] == '.' && is_number_char((u8)after)) {
    whole = 0;
    put_char(&digits, '.');
    for (at++; at < source.length && is_number_char((u8)source.bytes[at]); at++) put_char(&digits, source.bytes[at]);
  }
  if (!is_item && base == 10 && at + 1 < source.length && (source.bytes[at] | 32) == 'e') {
    u32 exponent = at + 1;
    if (source.bytes[exponent] == '+' || source.bytes[exponent] == '-') exponent++;
    if (exponent < source.length && is_number_char((u8)source.bytes[exponent])) {
      whole = 0;
      while (at < exponent || (at < source.length && is_number_char((u8)source.bytes[at])))
        put_char(&digits, source.bytes[at++]);
    }
  }
  token = (Token){.kind = whole ? AT_INT : AT_FLOAT, .line = line, .text = part(source, begin, at)};
  token.value = whole ? integer(number) : number_from(written(&digits), 0);
}

static void lex_in_tag(void) {
  while (at < source.length && is_blank(source.bytes[at])) line += source.bytes[at++] == '\n';
  if (at >= source.length) broken(line, "a tag has no end", text_of(""));
  const char *end = in_tag == AT_PRINT ? "}}" : "%}";
  const char c = source.bytes[at], next = at + 1 < source.length ? source.bytes[at + 1] : 0;
  const int minus = (c == '-' || c == '+') && has(at + 1, end);
  // jinja2 accepts a "+" only at the end of a block.
  if (!brackets && (has(at, end) || (minus && (c == '-' || in_tag == AT_BLOCK)))) {
    strips = minus && c == '-';
    trims = in_tag == AT_BLOCK && !(minus && c == '+');
    token = (Token){.kind = in_tag == AT_PRINT ? AT_PRINT_END : AT_BLOCK_END, .line = line};
    at += minus ? 3 : 2;
    in_tag = 0;
    return;
  }
  if (c == '"' || c == '\'') { lex_string(c); return; }
  if (is_number_char((u8)c)) { lex_number(); return; }
  if (is_word((u8)c)) {
    const u32 begin = at;
    while (at < source.length && is_word((u8)source.bytes[at])) at++;
    token = (Token){.kind = AT_NAME, .line = line, .text = part(source, begin, at)};
    return;
  }
  static const char twos[] = "==!=<=>=**//", ones[] = "+-/*%~[](){}<>=.:|,;";
  u32 operator = 0;
  for (u32 i = 0; twos[i]; i += 2) if (twos[i] == c && twos[i + 1] == next) operator = OP(c, next);
  for (u32 i = 0; !operator && ones[i]; i++) if (ones[i] == c) operator = OP(c, 0);
  if (!operator) broken(line, "it has the character '%' in a wrong place", part(source, at, at + 1));
  if (c == '(' || c == '[' || c == '{') brackets++;
  if (c == ')' || c == ']' || c == '}') {
    if (!brackets) broken(line, "it closes a bracket '%' that is not open", part(source, at, at + 1));
    brackets--;
  }
  token = (Token){.kind = AT_OPERATOR, .line = line, .operator = operator,
                  .text = part(source, at, at + (operator >> 8 ? 2 : 1))};
  at += token.text.length;
}

void advance(void) {
  if (in_tag) lex_in_tag();
  else lex_text();
}

// The current token's name for an error.
Text token_name(void) {
  if (token.kind == AT_END) return text_of("the end of the template");
  if (token.kind == AT_BLOCK_END) return text_of("%}");
  if (token.kind == AT_PRINT_END) return text_of("}}");
  return token.text;
}
