/*
 * Preloaded before AddressSanitizer's library into the programs of Slurm that tests/sanitizers starts: the
 * program gets the C library's memory, and the plugin in it the sanitizer's (sanitizers.c).
 *
 * After a fork, the sanitizer's allocator may be locked: a child that allocates memory waits forever if
 * another thread was allocating at the time, as threads of slurmstepd often are when it makes a task. The
 * plugin allocates in only one thread, the one that forks.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <sanitizer/asan_interface.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);
/* the sanitizer's realloc */
void *__interceptor_realloc(void *old, size_t size);
void __interceptor_free(void *memory);
size_t __interceptor_malloc_usable_size(void *memory);

/* until the sanitizer is loaded it cannot be called, and has allocated nothing */
static bool sanitizer_is_there;
/* the C library's malloc_usable_size, which has no other name by which it could be called */
static size_t (*usable_size)(void *memory);

static void __attribute__((constructor)) after_the_sanitizer(void)
{
	void *c_library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

	usable_size = c_library != NULL ? dlsym(c_library, "malloc_usable_size") : NULL;
	sanitizer_is_there = true;
}

/* Return whether the memory is the sanitizer's, which poisons the bytes before each allocation. This check
 * takes no lock. */
static bool is_the_sanitizers(const void *memory)
{
	return sanitizer_is_there && memory != NULL &&
	       __asan_address_is_poisoned((const char *)memory - 1);
}

void *malloc(size_t size)
{
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	return is_the_sanitizers(old) ? __interceptor_realloc(old, size) : __libc_realloc(old, size);
}

void free(void *memory)
{
	if (is_the_sanitizers(memory))
		__interceptor_free(memory);
	else
		__libc_free(memory);
}

size_t malloc_usable_size(void *memory)
{
	return is_the_sanitizers(memory) ? __interceptor_malloc_usable_size(memory) : usable_size(memory);
}

void *memalign(size_t alignment, size_t size)
{
	return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	*memory = __libc_memalign(alignment, size);
	return *memory != NULL ? 0 : ENOMEM;
}

char *strndup(const char *text, size_t limit)
{
	size_t length = strnlen(text, limit);
	char *copy = __libc_malloc(length + 1);

	if (copy == NULL)
		return NULL;
	copy[length] = '\0';
	return memcpy(copy, text, length);
}

char *strdup(const char *text)
{
	return strndup(text, strlen(text));
}
