// Runs a program: all workers run each of its operations together and meet at barriers between them.
#include "kernels.h"

int train(const Op *op, const Context *c);  // training.c: 0 if it does not know the operation

enum { LEAST_SPIN = 1000, MOST_SPIN = 2000000 };

// Waits until all workers have arrived. Spinning is far faster than sleeping, but a spinning worker may hold the very
// core that the late one needs: so whenever one had to sleep, the next spin is shorter. Returns 0 if the host aborts.
int barrier(u32 workers) {
  u32 *arrived = (u32 *)&CONTROL->arrived, *generation = (u32 *)&CONTROL->generation, *sleepers = (u32 *)&CONTROL->sleepers;
  if (workers == 1) return 1;
  const u32 before = __atomic_load_n(generation, __ATOMIC_SEQ_CST);
  if (__atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST) == workers) {
    __atomic_store_n(arrived, 0, __ATOMIC_SEQ_CST);
    for (u32 w = 0; w < workers; w++) __atomic_store_n(BEGUN(w), 0, __ATOMIC_RELAXED);
    __atomic_store_n(generation, before + 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST)) __builtin_wasm_memory_atomic_notify((int *)generation, workers);
    return !CONTROL->abort;
  }
  u32 limit = CONTROL->spin;
  if (limit < LEAST_SPIN) limit = MOST_SPIN;  // not set yet
  for (u32 i = 0; i < limit; i++) {
    if (__atomic_load_n(generation, __ATOMIC_SEQ_CST) != before) {
      if (i > limit / 2) CONTROL->spin = min_u(MOST_SPIN, limit * 2);
      else if (limit < MOST_SPIN) CONTROL->spin = limit + limit / 64 + 1;
      return !CONTROL->abort;
    }
  }
  CONTROL->spin = max_u(LEAST_SPIN, limit / 4);
  while (__atomic_load_n(generation, __ATOMIC_SEQ_CST) == before && !CONTROL->abort) {
    __atomic_add_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
    __builtin_wasm_memory_atomic_wait32((int *)generation, (int)before, 50000000);
    __atomic_sub_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
  }
  return !CONTROL->abort;
}

// True if the host has to go on with every row.
static int all_wait(const State *state) {
  u32 r = 0;
  while (r < state->count && state->rows[r].waits == WAITS) r++;
  return r == state->count;
}

// Returns the token that the program's sampler drew for the first row (on worker 0; 0 on the others), -1 if all rows wait
// for the host, or -2 when it aborted.
i32 EXPORT(run)(u32 program_address, u32 worker, u32 workers) {
  // From here on every worker sees what worker 0 wrote between the runs, including the program.
  if (!barrier(workers)) return -2;
  const Program *program = at(program_address);
  State *state = at(program->state);
  i32 result = 0;
  Context c = {state, worker, workers, 0, state->count};
  for (u32 i = 0; i < program->count; i++) {
    const Op *op = &program->ops[i];
    switch (op->kind) {
      case EMBED: embed(op, &c); break;
      case LOGIT_ROWS: c.m = state->logit_rows, c.first = state->count - c.m; continue;  // from here on only these
      case QUANTIZE: quantize(op, &c); break;
      case LINEAR: linear(op, &c); break;
      case LORA_DOWN: lora_down(op, &c); break;
      case LORA_LINEAR: lora_linear(op, &c); break;
      case GLU: glu(op, &c); break;
      case NORM: norm(op, &c); break;
      case ROPE: rope(op, &c); break;
      case ADD: add(op, &c); break;
      case SOFT_CAP: soft_cap(op, &c); break;
      case ROPE_APPEND: rope_append(op, &c); break;
      case ATTENTION: attention(op, &c); break;
      case HEAD_ADAPT: head_adapt(op, &c); break;
      case LOGIT_SUMS: logit_sums(op, &c); break;
      case HEAD_MIX: head_mix(op, &c); break;
      case TOKEN_SCORES: token_scores(op, &c); break;
      case DRAW_COLUMNS: draw_columns(op, &c); break;
      case UNMASK: unmask(op, &c); break;
      case COPY: copy(op, &c); break;
      case DEMOTE: demote(op, &c); break;
      case SHORT_CONV: short_conv(op, &c); break;
      case ROUTE: route(op, &c); break;
      case EXPERT_LINEAR: expert_linear(op, &c); break;
      case MIX: mix(op, &c); break;
      case DELTA_RULE: delta_rule(op, &c); break;
      case HALF: half_heads(op, &c); break;
      case SCALE: scale(op, &c); break;
      case UNLESS_WAITING: if (all_wait(state)) return -1; continue;
      case PENALTIES: if (worker == 0) penalties(op, state); break;
      case ARGMAX: if (worker == 0) argmax(op, state), result = (i32)state->rows[0].token; break;
      case SAMPLE: if (worker == 0) sample(op, state), result = (i32)state->rows[0].token; break;
      default: if (!train(op, &c)) __builtin_trap();
    }
    const u32 wait = op->a[14];
    if ((wait == ALWAYS || (wait == MANY_ROWS && c.m > 1)) && !barrier(workers)) return -2;
  }
  return result;
}

u32 EXPORT(abi)(void) { return 26; }
