// Blocks of powers of two. A freed block goes to the next caller who wants one of its size.
#include "grammar.h"

enum { SMALLEST = 6, LARGEST = 28 };
extern char __heap_base;
static char *top;
static Block *unused[LARGEST + 1];

u32 EXPORT(memory_pages)(void) { return (u32)__builtin_wasm_memory_size(0); }

static int reserve(u32 end) {
  const u32 there = (u32)__builtin_wasm_memory_size(0) << 16;
  if (end < (u32)top) return 0;  // beyond 4 GiB
  return end <= there || __builtin_wasm_memory_grow(0, (end - there + 65535) >> 16) != (u32)-1;
}

void *take(Owner *owner, u32 bytes) {
  u32 class = SMALLEST;
  if (bytes > (1u << LARGEST) - sizeof(Block)) return 0;
  while ((1u << class) < bytes + sizeof(Block)) class++;
  Block *block = unused[class];
  if (block) {
    unused[class] = block->next;
  } else {
    if (!top) top = (char *)(((u32)&__heap_base + 15) & ~15u);
    if (!reserve((u32)top + (1u << class))) return 0;
    block = (Block *)top;
    top += 1u << class;
  }
  *block = (Block){owner->blocks, 0, class, 0};
  if (owner->blocks) owner->blocks->before = block;
  owner->blocks = block;
  owner->bytes += 1u << class;
  return __builtin_memset(block + 1, 0, bytes);
}

static void unlink(Owner *owner, Block *block) {
  owner->bytes -= 1u << block->class;
  if (block->next) block->next->before = block->before;
  if (block->before) block->before->next = block->next;
  else owner->blocks = block->next;
}

void give_back(Owner *owner, void *memory) {
  if (!memory) return;
  Block *block = (Block *)memory - 1;
  unlink(owner, block);
  block->next = unused[block->class];
  unused[block->class] = block;
}

void *grown(Owner *owner, void *old, u32 bytes, u32 wanted) {
  void *memory = take(owner, wanted);
  if (memory && old) __builtin_memcpy(memory, old, bytes);
  if (memory) give_back(owner, old);
  return memory;
}

void release(Owner *owner) {
  while (owner->blocks) give_back(owner, owner->blocks + 1);
}
