/* The confinement of a process that reads a SquashFS file: it can do almost nothing else. */
#pragma once

/* Confine this process. Call this with all files open, before anything is read from them, as the only thread.
 * Afterwards this process and its threads can read, write and map memory, and nothing else: they cannot open
 * files or start programs and processes, and have no capabilities, an empty root, no core dumps, and memory
 * up to a limit. A file that takes over its reader gains only what it had already: control over the contents
 * of the image's files.
 *
 * Return 0, or -1 with errno if the kernel refuses; then the process must end. Sanitizers need more than
 * that: with them, this does nothing. */
int image_cage(void);
