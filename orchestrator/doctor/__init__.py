"""What `interleave doctor` checks of Slurm and of the database."""
