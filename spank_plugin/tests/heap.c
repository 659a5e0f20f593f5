/*
 * Preloaded before AddressSanitizer's library into the programs of Slurm that tests/sanitizers starts: they
 * get the C library's memory, the plugin in them the sanitizer's (sanitizers.c).
 *
 * The sanitizer's allocator cannot be forked: a child that asks for memory waits for good where another
 * thread was just being served, as the threads of slurmstepd often are when it makes a task. The plugin
 * asks in one thread only, the one that forks.
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
/* the sanitizer's own */
void *__interceptor_realloc(void *old, size_t size);
void __interceptor_free(void *memory);
size_t __interceptor_malloc_usable_size(void *memory);

/* before, it cannot be asked, and has given nothing */
static bool sanitizer_is_there;
/* the C library has no other name for its own */
static size_t (*usable_size)(void *memory);

static void __attribute__((constructor)) after_the_sanitizer(void)
{
	void *c_library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

	usable_size = c_library != NULL ? dlsym(c_library, "malloc_usable_size") : NULL;
	sanitizer_is_there = true;
}

/* The sanitizer poisons what is before each piece that it gives, and takes no lock to say so. */
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
