"""ReFrame's configuration for a cluster with Slurm, without accounting."""

site_configuration = {
    "systems": [
        {
            "name": "cluster",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "sandbox",
                    "scheduler": "squeue",
                    "launcher": "srun",
                    "environs": ["builtin"],
                    "time_limit": "2m",
                }
            ],
        }
    ],
    "environments": [{"name": "builtin", "cc": "cc", "cxx": "", "ftn": ""}],
}
