"""Backends: three verbs that move a job's device state."""
