"""The command lines: `interleave` and `sinterleave`."""
