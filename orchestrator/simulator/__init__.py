"""The production core under a virtual clock, over recorded, declared and generated jobs."""
