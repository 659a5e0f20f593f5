/* What a process that reads a SquashFS file can do no more: nearly everything. */
#ifndef CE_IMAGE_CAGE_H
#define CE_IMAGE_CAGE_H

/* Call it with all files open and before anything is read of them, as the only thread. Afterwards this process, and
 * its threads, read, write and map memory, and nothing else: they open no file, start no program and no process,
 * have no capability, an empty root, no core, and memory up to a limit. A file that makes a reader do what it likes
 * has gained what the file had already: to say what the image's files are.
 *
 * 0, or -1 with errno where the kernel refuses; then the process must end. Sanitizers need more than that: with them,
 * this does nothing. */
int image_cage(void);

/* Whether this program was built to have a cage. */
int image_cage_is_there(void);

#endif
