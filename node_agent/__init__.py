"""The node agent: one per compute node, beside slurmd."""
