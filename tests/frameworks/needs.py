"""Frameworks are large, and not everybody has them: a test is skipped without its own, and says so."""

from __future__ import annotations

import importlib.util

import pytest


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip unless *packages* can be imported."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    reason = f"{', '.join(missing)} not installed: pip install --group frameworks"
    return pytest.mark.skipif(bool(missing), reason=reason)
