"""The timeline: slices, and what simulated devices recorded of their work, as one HTML page.

One lane for each device (who holds it, when it switches, when it computes) and one for each job (when it
waits, is switched in, holds; where its device state is in between). `spans` says what is to be seen without
any drawing, `draw` makes a plotly figure of it, `page` a file that needs no network.
"""

from slurm_interleave.client.timeline.draw import figure
from slurm_interleave.client.timeline.page import write_timeline
from slurm_interleave.client.timeline.work import Work, read_work

__all__ = ["Work", "figure", "read_work", "write_timeline"]
