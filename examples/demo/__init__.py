"""`make demo`: two RL jobs, first one after the other, then taking turns on the same device."""
