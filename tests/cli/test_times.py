"""Times as sacct reads them, against a fixed now."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_interleave.client.cli.times import duration_text, midnight, parse_time, time_text
from slurm_interleave.client.core.errors import BadArgument

NOW = datetime(2025, 6, 18, 12, 30, 15, tzinfo=timezone.utc).timestamp()  # 14:30:15 in Berlin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2025-06-18T14:30:15"),
        ("now-90", "2025-06-18T14:28:45"),
        ("now-2hours", "2025-06-18T12:30:15"),
        ("now-1hour", "2025-06-18T13:30:15"),
        ("NOW-10Minutes", "2025-06-18T14:20:15"),
        ("now - 3 days", "2025-06-15T14:30:15"),
        ("now+1week", "2025-06-25T14:30:15"),
        ("today", "2025-06-18T00:00:00"),
        ("tomorrow", "2025-06-19T00:00:00"),
        ("midnight", "2025-06-18T00:00:00"),
        ("noon", "2025-06-18T12:00:00"),
        ("fika", "2025-06-18T15:00:00"),
        ("teatime", "2025-06-18T16:00:00"),
        ("09:05", "2025-06-18T09:05:00"),
        ("9:05:07", "2025-06-18T09:05:07"),
        ("23:59", "2025-06-18T23:59:00"),  # today, though it has not come yet
        ("12:30AM", "2025-06-18T00:30:00"),
        ("12:30pm", "2025-06-18T12:30:00"),
        ("1:15 PM", "2025-06-18T13:15:00"),
        ("0617", "2025-06-17T00:00:00"),
        ("061724", "2024-06-17T00:00:00"),
        ("6/18", "2025-06-18T00:00:00"),
        ("06/19", "2024-06-19T00:00:00"),  # has not come this year
        ("12/24/23", "2023-12-24T00:00:00"),
        ("12.24.23", "2023-12-24T00:00:00"),
        ("0617-08:15", "2025-06-17T08:15:00"),
        ("06/17/25-08:15:30", "2025-06-17T08:15:30"),
        ("2025-01-02", "2025-01-02T00:00:00"),
        ("2025-01-02T03:04", "2025-01-02T03:04:00"),
        ("2025-01-02T03:04:05", "2025-01-02T03:04:05"),
        ("2025-01-02 03:04:05", "2025-01-02T03:04:05"),
        ("today-08:00", "2025-06-18T08:00:00"),
        ("uts1750000000", "2025-06-15T17:06:40"),
    ],
)
def test_each_of_saccts_forms_is_read(berlin: None, text: str, expected: str) -> None:
    assert time_text(parse_time(text, NOW)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "now-",
        "now-2moons",
        "25:00",
        "12:60",
        "13:00pm",
        "0230",
        "2025-02-30",
        "13/01",
        "1/2.25",
        "2025-06-18T",
        "2025-06-18Tnoonish",
        "tomorrow-",
        "noon noon",
        "12",
        "9999999999-01-01",
        "now-2hours ago",
    ],
)
def test_a_time_that_cannot_be_read_is_answered_with_the_forms(berlin: None, text: str) -> None:
    with pytest.raises(BadArgument) as caught:
        parse_time(text, NOW)

    message = str(caught.value)
    assert repr(text) in message
    assert "now-2hours" in message
    assert "YYYY-MM-DD" in message


def test_a_day_of_summer_times_change_begins_at_its_own_midnight(berlin: None) -> None:
    after_change = datetime(2025, 3, 30, 10, 0, tzinfo=timezone.utc).timestamp()

    assert after_change - midnight(after_change) == 11 * 3600
    assert time_text(parse_time("tomorrow", midnight(after_change))) == "2025-03-31T00:00:00"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moment=st.integers(0, 4_000_000_000))
def test_what_is_printed_names_the_same_second(zone: str, moment: int) -> None:
    text = time_text(moment)

    # In the hour that autumn repeats, the text has two meanings.
    assert time_text(parse_time(text, NOW)) == text
    assert abs(parse_time(text, NOW) - moment) in (0, 3600)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="0123456789:-/.Tnowamp +today", max_size=20))
def test_any_text_is_a_time_or_a_bad_argument(berlin: None, text: str) -> None:
    try:
        moment = parse_time(text, NOW)
    except BadArgument:
        return

    assert isinstance(time.localtime(moment).tm_year, int)


def test_no_moment_is_unknown() -> None:
    assert time_text(None) == "Unknown"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "00:00:00"), (59.9, "00:00:59"), (3661, "01:01:01"), (90061, "01-01:01:01")],
)
def test_durations_are_printed_as_sacct_does(seconds: float, expected: str) -> None:
    assert duration_text(seconds) == expected
