"""Which nodes, devices and lane a held job gets, and how Slurm is told."""
