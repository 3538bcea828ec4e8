/* The part of the C library that guests and generated code need. Implemented in frostline.c. */
#ifndef FROSTLINE_STRING_H
#define FROSTLINE_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *block, int byte, size_t size);
int memcmp(const void *left, const void *right, size_t size);
size_t strlen(const char *text);

#endif
