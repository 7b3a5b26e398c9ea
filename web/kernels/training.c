// Runs the operations of training programs.
#include "training.h"

#define OPERATIONS \
  OPERATION(TRAIN_LINEAR, train_linear) \
  OPERATION(LINEAR_GRADIENT, linear_gradient) \
  OPERATION(TRAIN_LORA_DOWN, train_lora_down) \
  OPERATION(TRAIN_LORA_UP, train_lora_up) \
  OPERATION(LORA_UP_GRADIENT, lora_up_gradient) \
  OPERATION(LORA_DOWN_GRADIENT, lora_down_gradient) \
  OPERATION(PACKED_ATTENTION, packed_attention) \
  OPERATION(ATTENTION_GRADIENT_Q, attention_gradient_q) \
  OPERATION(ATTENTION_GRADIENT_KV, attention_gradient_kv) \
  OPERATION(NORM_GRADIENT, norm_gradient) \
  OPERATION(ROPE_GRADIENT, rope_gradient) \
  OPERATION(GLU_GRADIENT, glu_gradient) \
  OPERATION(SOFT_CAP_GRADIENT, soft_cap_gradient) \
  OPERATION(LOSS_BEGIN, loss_begin) \
  OPERATION(LOSS_CHUNKS, loss_chunks) \
  OPERATION(LOSS_END, loss_end) \
  OPERATION(SUM_SQUARES, sum_squares) \
  OPERATION(ADAMW, adamw) \
  OPERATION(ADD_FISHER, add_fisher) \
  OPERATION(CLEAR, clear) \
  OPERATION(ADD_PULL, add_pull) \
  OPERATION(PACKED_CONV, packed_conv) \
  OPERATION(CONV_GRADIENT, conv_gradient)

#define OPERATION(kind, function) void function(const Op *op, const Context *c);
OPERATIONS
#undef OPERATION

int train(const Op *op, const Context *c) {
  switch (op->kind) {
#define OPERATION(kind, function) case kind: function(op, c); return 1;
    OPERATIONS
#undef OPERATION
  }
  return 0;
}
