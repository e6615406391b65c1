"""Whatever happens, in whatever order: the promises of the core hold."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.orchestrator.core.machine import LONGER, Turns

TestTurns = Turns.TestCase
TestTurns.settings = settings(
    max_examples=250 * LONGER,
    stateful_step_count=60,
    deadline=None,
    derandomize=LONGER == 1,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
