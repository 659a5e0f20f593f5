/* Figures of the servers of a mount of an image: a memory file, which the guard makes and the servers map. It
 * is found below /proc/PID/fd of the guard of each step that uses the mount, by its name. Python reads it in
 * container_engine/node/report/image_reads.py. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define CE_FIGURES "ce-figures"
#define CE_FIGURES_LINK "/memfd:" CE_FIGURES " (deleted)"

struct ce_figures {
	_Atomic uint64_t bytes; /* of the image's file */
	_Atomic uint64_t reads; /* of the file */
	_Atomic uint64_t waited_ns; /* for these, the sum of all threads */
	_Atomic uint64_t requests; /* of the kernel */
	_Atomic uint64_t lookups; /* how many of these are about a name */
	_Atomic uint64_t hits; /* blocks that were found in the server's cache */
	_Atomic uint64_t misses; /* blocks that were not */
	_Atomic uint64_t size; /* of the file */
	uint64_t is_shared; /* whether other steps of the job may use the mount */
	char image[1024]; /* its path, or the end of that */
};

static inline void ce_figure_add(_Atomic uint64_t *figure, uint64_t more)
{
	atomic_fetch_add_explicit(figure, more, memory_order_relaxed);
}
