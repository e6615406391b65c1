"""One module a framework, imported by who uses it; the framework itself is imported on use."""
