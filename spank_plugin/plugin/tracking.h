/* How Slurm knows which processes belong to a step. */
#ifndef CE_TRACKING_H
#define CE_TRACKING_H

/* Where Slurm follows parents instead of cgroups (proctrack/linuxproc), makes slurmstepd the parent of what
 * loses its own, as the launcher and all that serves the container do: Slurm would not find them under
 * process 1. With cgroups nothing is changed: slurmstepd would have children to wait for that it does not
 * know, and looks for the ends of its tasks 100 ms later after each. In slurmstepd, before there are tasks. */
void ce_tracking_keep_orphans(void);

#endif
