/* Helper functions for guests in C. The guest interface is in frozen_prefix.h.
 *
 * Every guest call runs in a new instance, whose memory is released at the end of the call. Do not free memory. */
#ifndef FROSTLINE_H
#define FROSTLINE_H

#include "frozen_prefix.h"

/* Sets `failure`. Does not copy `message`, which must stay valid until the end of the call. Returns false, so that a function can
 * end with `return frostline_fail(..)`. */
bool frostline_fail(frozen_prefix_failure_t *failure, wasi_nn_errors_error_code_t code, const char *message);

/* Runs the layers `stage` on a batch, which is passed as the tensor `input`. Use the names from the job. Consumes the batch, even on
 * failure. Sets `output` and returns true, or sets `failure` and returns false. */
bool frostline_run(frozen_prefix_string_t *stage, frozen_prefix_string_t *input, wasi_nn_tensor_own_tensor_t batch,
                   wasi_nn_tensor_own_tensor_t *output, frozen_prefix_failure_t *failure);

#endif
