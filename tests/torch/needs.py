"""torch, or a skip with the reason: it is large, and not everybody has it. Import it from here."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install --group torch")
torch.set_num_threads(1)
nn = torch.nn
