#include "frostline.h"
#include <stdlib.h>
#include <string.h>

bool frostline_fail(frozen_prefix_failure_t *failure, wasi_nn_errors_error_code_t code, const char *message) {
    failure->code = code;
    frozen_prefix_string_set(&failure->message, message);
    return false;
}

/* Copies an error of wasi:nn to a failure and returns false. */
static bool told(frozen_prefix_failure_t *failure, wasi_nn_errors_own_error_t error) {
    wasi_nn_errors_borrow_error_t borrowed = wasi_nn_errors_borrow_error(error);
    failure->code = wasi_nn_errors_method_error_code(borrowed);
    wasi_nn_errors_method_error_data(borrowed, &failure->message);
    wasi_nn_errors_error_drop_own(error);
    return false;
}

bool frostline_run(frozen_prefix_string_t *stage, frozen_prefix_string_t *input, wasi_nn_tensor_own_tensor_t batch,
                   wasi_nn_tensor_own_tensor_t *output, frozen_prefix_failure_t *failure) {
    wasi_nn_errors_own_error_t error;
    wasi_nn_graph_own_graph_t graph;
    wasi_nn_graph_own_graph_execution_context_t context;
    if (!wasi_nn_graph_load_by_name(stage, &graph, &error) ||
        !wasi_nn_graph_method_graph_init_execution_context(wasi_nn_graph_borrow_graph(graph), &context, &error)) {
        wasi_nn_tensor_tensor_drop_own(batch);
        return told(failure, error);
    }
    wasi_nn_inference_named_tensor_t named = {*input, batch};
    wasi_nn_inference_list_named_tensor_t inputs = {&named, 1};
    wasi_nn_inference_list_named_tensor_t outputs;
    if (!wasi_nn_inference_method_graph_execution_context_compute(
            wasi_nn_inference_borrow_graph_execution_context(context), &inputs, &outputs, &error)) {
        return told(failure, error);
    }
    if (outputs.len == 0) {
        return frostline_fail(failure, WASI_NN_ERRORS_ERROR_CODE_RUNTIME_ERROR, "the stage returned no tensor");
    }
    *output = outputs.ptr[0].f1;
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
