"""A small, real GRPO job: a NumPy policy learns to sort digits by reinforcement, on a simulated device."""
