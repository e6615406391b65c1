"""The simulated accelerator: the stand-in wherever there is no GPU."""
