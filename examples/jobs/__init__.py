"""Jobs as one submits them, and a lab to try them in: `python -m jobs`."""
