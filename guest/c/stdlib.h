/* The part of the C library that guests and generated code need. Implemented in frostline.c. */
#ifndef FROSTLINE_STDLIB_H
#define FROSTLINE_STDLIB_H

#include <stddef.h>

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *block, size_t size);
void free(void *block);
_Noreturn void abort(void);

#endif
