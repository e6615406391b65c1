"""A private Slurm cluster, or the same without Slurm, for the demo, the tests and the benchmarks."""

from lab.cluster import Cluster, why_not
from lab.interleave_conf import SimSettings
from lab.jobs import SubmitRefused
from lab.local import LocalLab
from lab.processes import LabError

__all__ = ["Cluster", "LabError", "LocalLab", "SimSettings", "SubmitRefused", "why_not"]
