#define _GNU_SOURCE
#include <malloc.h>
#include <time.h>

#include "squash_inner.h"

/* A start reads a lot, and the program that it started may then compute for days: what was cached would stay
 * for as long. The kernel keeps the pages that it has read, so the next request only has to read one block
 * again. */

/* Free all caches. Call this with the lock held; it is released meanwhile, because malloc_trim takes a
 * while. */
static void give_back(struct squash *squash)
{
	squash_drop_inodes(squash);
	squash_drop_listings(squash);
	squash_drop_readers(&squash->inodes);
	squash_drop_readers(&squash->directories);
	pthread_mutex_unlock(&squash->lock);
	blocks_give_back(squash->blocks);
	(void)malloc_trim(0);
	pthread_mutex_lock(&squash->lock);
}

/* Wait until the file is closed, or for the time without requests after which caches are freed. */
static void wait_idle(struct squash *squash)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += squash->idle.after_s;
	while (!squash->idle.is_ending &&
	       pthread_cond_timedwait(&squash->idle.changed, &squash->lock, &until) == 0)
		;
}

static void *free_when_idle(void *context)
{
	struct squash *squash = context;

	pthread_mutex_lock(&squash->lock);
	while (!squash->idle.is_ending) {
		uint64_t before = squash->asked;
		wait_idle(squash);
		if (squash->idle.is_ending || squash->asked != before)
			continue;
		give_back(squash);
		squash->idle.is_waiting = squash->asked == before;
		while (squash->idle.is_waiting && !squash->idle.is_ending)
			pthread_cond_wait(&squash->idle.changed, &squash->lock);
	}
	pthread_mutex_unlock(&squash->lock);
	return NULL;
}

void squash_free_when_idle(struct squash *squash, unsigned seconds)
{
	pthread_condattr_t monotonic;

	squash->idle.after_s = seconds;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&squash->idle.changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	squash->idle.is_running = pthread_create(&squash->idle.thread, NULL, free_when_idle, squash) == 0;
}

void squash_stop_idle_thread(struct squash *squash)
{
	if (!squash->idle.is_running)
		return;
	pthread_mutex_lock(&squash->lock);
	squash->idle.is_ending = true;
	pthread_cond_signal(&squash->idle.changed);
	pthread_mutex_unlock(&squash->lock);
	pthread_join(squash->idle.thread, NULL);
	pthread_cond_destroy(&squash->idle.changed);
}
