/* Slurm's way of finding the processes of a step. */
#ifndef CE_PROCTRACK_H
#define CE_PROCTRACK_H

/* Make slurmstepd the parent of orphaned processes if Slurm follows parents instead of cgroups
 * (proctrack/linuxproc): the launcher and all that serves the container lose their parents, and Slurm
 * would not find them under process 1. With cgroups, change nothing: slurmstepd would have to wait for
 * children that it does not know, and after each of them notices the end of its tasks 100 ms later. In
 * slurmstepd, before there are tasks. */
void ce_proctrack_keep_orphans(void);

#endif
