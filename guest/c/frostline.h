/* Functions for guests in C, beside the interface itself in frozen_prefix.h.
 *
 * Each call of a guest gets an instance of its own, whose memory goes when the call ends: free nothing. */
#ifndef FROSTLINE_H
#define FROSTLINE_H

#include "frozen_prefix.h"

/* Fills in a failure; `message` must stay where it is. Returns false, so that `return frostline_fail(..)` ends a function. */
bool frostline_fail(frozen_prefix_failure_t *failure, wasi_nn_errors_error_code_t code, const char *message);

/* Runs the layers called `stage` on a batch, which goes in as the tensor `input` and is consumed, also when this fails. Both names
 * are the job's. Returns whether `output` was set; else `failure` was. */
bool frostline_run(frozen_prefix_string_t *stage, frozen_prefix_string_t *input, wasi_nn_tensor_own_tensor_t batch,
                   wasi_nn_tensor_own_tensor_t *output, frozen_prefix_failure_t *failure);

#endif
