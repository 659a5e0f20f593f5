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
	until.tv_sec += squash->rest.idle_s;
	while (!squash->rest.is_ending &&
	       pthread_cond_timedwait(&squash->rest.changed, &squash->lock, &until) == 0)
		;
}

static void *rest(void *context)
{
	struct squash *squash = context;

	pthread_mutex_lock(&squash->lock);
	while (!squash->rest.is_ending) {
		uint64_t before = squash->asked;
		wait_idle(squash);
		if (squash->rest.is_ending || squash->asked != before)
			continue;
		give_back(squash);
		squash->rest.is_waiting = squash->asked == before;
		while (squash->rest.is_waiting && !squash->rest.is_ending)
			pthread_cond_wait(&squash->rest.changed, &squash->lock);
	}
	pthread_mutex_unlock(&squash->lock);
	return NULL;
}

void squash_rest_after(struct squash *squash, unsigned seconds)
{
	pthread_condattr_t monotonic;

	squash->rest.idle_s = seconds;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&squash->rest.changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	squash->rest.is_running = pthread_create(&squash->rest.thread, NULL, rest, squash) == 0;
}

void squash_stop_resting(struct squash *squash)
{
	if (!squash->rest.is_running)
		return;
	pthread_mutex_lock(&squash->lock);
	squash->rest.is_ending = true;
	pthread_cond_signal(&squash->rest.changed);
	pthread_mutex_unlock(&squash->lock);
	pthread_join(squash->rest.thread, NULL);
	pthread_cond_destroy(&squash->rest.changed);
}
