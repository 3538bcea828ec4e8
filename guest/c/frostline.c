#include "frostline.h"
#include <stdlib.h>
#include <string.h>

bool frostline_fail(frostline_pushdown_types_error_t *error, frostline_pushdown_types_error_code_t code, const char *message) {
    error->code = code;
    frozen_prefix_string_set(&error->message, message);
    return false;
}

bool frostline_image_size(const exports_frostline_pushdown_prefix_list_tensor_info_t *inputs, uint32_t *height, uint32_t *width,
                          frostline_pushdown_types_error_t *error) {
    if (inputs->len == 1 && inputs->ptr[0].element_type == FROSTLINE_PUSHDOWN_TENSORS_ELEMENT_TYPE_FLOAT32) {
        frozen_prefix_list_u32_t shape = inputs->ptr[0].shape;
        if (shape.len == 3 && shape.ptr[0] == 3) {
            *height = shape.ptr[1];
            *width = shape.ptr[2];
            return true;
        }
    }
    return frostline_fail(error, FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_INVALID_ARGUMENT,
                          "this guest serves models of RGB images, [3, height, width] per sample");
}

/* Converts the code of an error of wasi:nn. */
static frostline_pushdown_types_error_code_t converted(wasi_nn_errors_error_code_t code) {
    switch (code) {
    case WASI_NN_ERRORS_ERROR_CODE_INVALID_ARGUMENT:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_INVALID_ARGUMENT;
    case WASI_NN_ERRORS_ERROR_CODE_INVALID_ENCODING:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_INVALID_DATA;
    case WASI_NN_ERRORS_ERROR_CODE_TIMEOUT:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_TIMEOUT;
    case WASI_NN_ERRORS_ERROR_CODE_UNSUPPORTED_OPERATION:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_UNSUPPORTED;
    case WASI_NN_ERRORS_ERROR_CODE_TOO_LARGE:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_TOO_LARGE;
    case WASI_NN_ERRORS_ERROR_CODE_NOT_FOUND:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_NOT_FOUND;
    case WASI_NN_ERRORS_ERROR_CODE_SECURITY:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_NOT_PERMITTED;
    default:
        return FROSTLINE_PUSHDOWN_TYPES_ERROR_CODE_FAILED;
    }
}

/* Copies an error of wasi:nn and returns false. */
static bool told(frostline_pushdown_types_error_t *error, wasi_nn_errors_own_error_t source) {
    wasi_nn_errors_borrow_error_t borrowed = wasi_nn_errors_borrow_error(source);
    error->code = converted(wasi_nn_errors_method_error_code(borrowed));
    wasi_nn_errors_method_error_data(borrowed, &error->message);
    wasi_nn_errors_error_drop_own(source);
    return false;
}

bool frostline_run(exports_frostline_pushdown_prefix_job_t *job, const frostline_pushdown_tensors_own_tensor_t *batches,
                   exports_frostline_pushdown_prefix_list_named_tensor_t *tensors, frostline_pushdown_types_error_t *error) {
    wasi_nn_inference_list_named_tensor_t inputs = {calloc(job->inputs.len, sizeof(wasi_nn_inference_named_tensor_t)), job->inputs.len};
    for (size_t i = 0; i < inputs.len; i++) {
        inputs.ptr[i].f0 = job->inputs.ptr[i].name;
        inputs.ptr[i].f1 = frostline_pushdown_tensors_static_tensor_into_nn(batches[i]);
    }
    wasi_nn_errors_own_error_t refused;
    wasi_nn_graph_own_graph_t graph;
    wasi_nn_graph_own_graph_execution_context_t context;
    wasi_nn_inference_list_named_tensor_t outputs;
    if (!wasi_nn_graph_load_by_name(&job->graph, &graph, &refused) ||
        !wasi_nn_graph_method_graph_init_execution_context(wasi_nn_graph_borrow_graph(graph), &context, &refused)) {
        for (size_t i = 0; i < inputs.len; i++) {
            wasi_nn_tensor_tensor_drop_own(inputs.ptr[i].f1);
        }
        return told(error, refused);
    }
    if (!wasi_nn_inference_method_graph_execution_context_compute(
            wasi_nn_inference_borrow_graph_execution_context(context), &inputs, &outputs, &refused)) {
        return told(error, refused);
    }
    tensors->len = outputs.len;
    tensors->ptr = calloc(outputs.len, sizeof(exports_frostline_pushdown_prefix_named_tensor_t));
    for (size_t i = 0; i < outputs.len; i++) {
        tensors->ptr[i].f0 = outputs.ptr[i].f0;
        tensors->ptr[i].f1 = frostline_pushdown_tensors_static_tensor_from_nn(outputs.ptr[i].f1);
    }
    return true;
}

/* Memory allocation. Every guest call runs in a new instance, whose memory is released at the end of the call. Blocks are
 * allocated in sequence and never freed. The word before each block contains the size for realloc. */

#define PAGE 65536u
#define ALIGNMENT 16u

extern unsigned char __heap_base;
static size_t next;

void *malloc(size_t size) {
    if (next == 0) {
        next = ((size_t)&__heap_base + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    }
    if (size > SIZE_MAX / 2) {
        abort();
    }
    size_t block = next + ALIGNMENT;
    size_t end = (block + size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    size_t have = __builtin_wasm_memory_size(0);
    size_t need = (end + PAGE - 1) / PAGE;
    if (end < block || (need > have && __builtin_wasm_memory_grow(0, need - have) == SIZE_MAX)) {
        abort();
    }
    next = end;
    *(size_t *)(block - sizeof(size_t)) = size;
    return (void *)block;
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        abort();
    }
    return memset(malloc(bytes), 0, bytes);
}

void *realloc(void *block, size_t size) {
    if (block == NULL) {
        return malloc(size);
    }
    size_t had = ((size_t *)block)[-1];
    if (size <= had) {
        return block;
    }
    return memcpy(malloc(size), block, had);
}

void free(void *block) {
    (void)block;
}

void abort(void) {
    __builtin_trap();
}

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    }
    return to;
}

void *memmove(void *to, const void *from, size_t size) {
    if ((size_t)to <= (size_t)from) {
        for (size_t i = 0; i < size; i++) {
            ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
        }
        return to;
    }
    for (size_t i = size; i > 0; i--) {
        ((unsigned char *)to)[i - 1] = ((const unsigned char *)from)[i - 1];
    }
    return to;
}

void *memset(void *block, int byte, size_t size) {
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)block)[i] = (unsigned char)byte;
    }
    return block;
}

int memcmp(const void *left, const void *right, size_t size) {
    for (size_t i = 0; i < size; i++) {
        int difference = ((const unsigned char *)left)[i] - ((const unsigned char *)right)[i];
        if (difference != 0) {
            return difference;
        }
    }
    return 0;
}

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length] != 0) {
        length++;
    }
    return length;
}
