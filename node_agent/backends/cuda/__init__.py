"""The backend for NVIDIA devices: the driver's own checkpoint of processes. See docs/cuda.md."""
