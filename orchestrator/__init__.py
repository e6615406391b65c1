"""The orchestrator: one per cluster, beside slurmctld."""
