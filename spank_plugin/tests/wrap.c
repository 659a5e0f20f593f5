/*
 * Linked into the plugin where it is built with SANITIZED=1, to replace the C library's allocation functions:
 * the plugin's memory is the sanitizer's, although the program around it keeps the C library's (heap.c).
 */
#include <stddef.h>

void *__interceptor_malloc(size_t size);
void *__interceptor_calloc(size_t count, size_t size);
char *__interceptor_strdup(const char *text);
char *__interceptor_strndup(const char *text, size_t limit);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t limit);

void *__wrap_malloc(size_t size)
{
	return __interceptor_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return __interceptor_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return old == NULL ? __interceptor_malloc(size) : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
	return __interceptor_strdup(text);
}

char *__wrap_strndup(const char *text, size_t limit)
{
	return __interceptor_strndup(text, limit);
}
