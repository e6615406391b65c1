"""The timeline: slices, and what simulated devices recorded of their work, as one file.

One lane for each device (who holds it, when it switches, when it computes) and one for each job (when it
waits, is switched in, holds; where its device state is in between). `spans` says what is to be seen without
any drawing, `draw` makes a Vega-Lite chart of it, `page` a file: a page that needs no network, or a picture;
`perfetto` makes a trace.
"""

from slurm_interleave.client.timeline.draw import chart
from slurm_interleave.client.timeline.page import FORMS, form_of, write_timeline
from slurm_interleave.client.timeline.work import Work, read_work

__all__ = ["FORMS", "Work", "chart", "form_of", "read_work", "write_timeline"]
