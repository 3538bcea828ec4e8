/* Helper functions for guests in C. The guest interface is in frozen_prefix.h.
 *
 * Every guest call runs in a new instance, whose memory is released at the end of the call. Do not free memory. */
#ifndef FROSTLINE_H
#define FROSTLINE_H

#include "frozen_prefix.h"

/* Sets `error`. Does not copy `message`, which must stay valid until the end of the call. Returns false, so that a function can
 * end with `return frostline_fail(..)`. */
bool frostline_fail(frostline_pushdown_types_error_t *error, frostline_pushdown_types_error_code_t code, const char *message);

/* Sets height and width of the images that a model with these inputs takes and returns true. Sets `error` and returns false if the
 * model has other inputs than one RGB image. */
bool frostline_image_size(const exports_frostline_pushdown_prefix_list_tensor_info_t *inputs, uint32_t *height, uint32_t *width,
                          frostline_pushdown_types_error_t *error);

/* Runs the layers of the job on `batches`, which has a batch for each input of the model. Consumes the batches, even on failure. Sets
 * `tensors` and returns true, or sets `error` and returns false. */
bool frostline_run(exports_frostline_pushdown_prefix_job_t *job, const frostline_pushdown_tensors_own_tensor_t *batches,
                   exports_frostline_pushdown_prefix_list_named_tensor_t *tensors, frostline_pushdown_types_error_t *error);

#endif
