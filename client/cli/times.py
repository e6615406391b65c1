"""Times as sacct reads and prints them: local, to the second, and its many ways to name one."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.near import hint

FORMS = (
    "now, now-2hours (or seconds, minutes, days, weeks), today, tomorrow, midnight, noon, fika, teatime, "
    "HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY] and MM.DD[.YY] (each with -HH:MM[:SS] behind it if needed), "
    "YYYY-MM-DD[THH:MM[:SS]]"
)
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_HOURS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_DAYS = {"today": 0, "tomorrow": 1}

_RELATIVE = re.compile(r"now\s*(?:([+-])\s*(\d{1,9})\s*(?:(second|minute|hour|day|week)s?)?)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*(am|pm)?")
_ISO = re.compile(r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})")
_SHORT = re.compile(r"(?P<month>\d{1,2})(?P<sep>[/.])(?P<day>\d{1,2})(?:(?P=sep)(?P<year>\d\d))?")
_DIGITS = re.compile(r"(?P<month>\d\d)(?P<day>\d\d)(?P<year>\d\d)?")
_BETWEEN = re.compile(r"(?P<date>\d{4}-\d+-\d+|\w[^-\s]*?)(?:[-t]|\s+)(?P<clock>\d.*)")

Date = tuple[int, int, int]
Clock = tuple[int, int, int]


def parse_time(text: str, now: float) -> float:
    """Return the moment that *text* names, in seconds since the epoch.

    As in sacct, a clock time alone is of today; a date without a year is the last such date that has come.
    Raises `BadArgument` with the forms that are understood.
    """
    word = text.strip().lower()
    try:
        return _relative(word, now) if word.startswith("now") else _absolute(word, now)
    except ValueError as error:
        why = f": {error}" if str(error) else _meant(word)
        raise BadArgument(f"time {text!r} cannot be read{why}; understood are {FORMS}") from None


def midnight(now: float) -> float:
    """Return the moment at which the day of *now* began."""
    return _moment(_date_of(now), (0, 0, 0))


def time_text(moment: float | None) -> str:
    """Return *moment* as sacct prints it, or Unknown where there is none."""
    if moment is None:
        return "Unknown"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def duration_text(length_s: float) -> str:
    """Return a duration as sacct prints it: [DD-]HH:MM:SS."""
    minutes, rest = divmod(int(length_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days:02d}-' if days else ''}{hours:02d}:{minutes:02d}:{rest:02d}"


def _meant(word: str) -> str:
    """Return the question whether the nearest word that there is was meant."""
    beyond_now = re.fullmatch(r"now\s*[+-]\s*\d+\s*([a-z]+)", word)
    if beyond_now is not None and beyond_now[1].removesuffix("s") in _UNITS:
        return ""
    if beyond_now is not None:
        return hint(beyond_now[1], [f"{unit}s" for unit in _UNITS])
    return hint(word, ("now", *_DAYS, *_HOURS))


def _relative(word: str, now: float) -> float:
    match = _RELATIVE.fullmatch(word)
    if match is None:
        raise ValueError
    sign, count, unit = match.groups()
    return now + int(f"{sign or '+'}{count or 0}") * _UNITS[unit or "second"]


def _absolute(word: str, now: float) -> float:
    if re.fullmatch(r"uts\d{7,12}", word):
        return float(word[3:])
    date, clock = _date(word, now), _clock(word)
    if date is None and clock is None:
        between = _BETWEEN.fullmatch(word)
        if between is None:
            raise ValueError
        date, clock = _date(between["date"].strip(), now), _clock(between["clock"])
        if date is None or clock is None:
            raise ValueError
    return _moment(date or _date_of(now), clock or (0, 0, 0))


def _date(word: str, now: float) -> Date | None:
    if word in _DAYS:
        today = _date_of(now)
        # Noon, since a day is not always 24 hours long.
        return _date_of(_moment(today, (12, 0, 0)) + 86400 * _DAYS[word])
    match = _ISO.fullmatch(word) or _SHORT.fullmatch(word) or _DIGITS.fullmatch(word)
    if match is None:
        return None
    month, day = int(match["month"]), int(match["day"])
    if match["year"] is None:
        today = _date_of(now)
        return (today[0] - ((month, day) > today[1:]), month, day)
    year = int(match["year"])
    return (year if year >= 100 else 2000 + year, month, day)


def _clock(word: str) -> Clock | None:
    if word in _HOURS:
        return (_HOURS[word], 0, 0)
    match = _CLOCK.fullmatch(word)
    if match is None:
        return None
    hour = int(match[1])
    if match[4]:
        if not 1 <= hour <= 12:
            raise ValueError(f"there is no hour {hour} {match[4]}")
        hour = hour % 12 + (12 if match[4] == "pm" else 0)
    return (hour, int(match[2]), int(match[3] or 0))


def _moment(date: Date, clock: Clock) -> float:
    datetime(
        *date, *clock, tzinfo=timezone.utc
    )  # mktime would take the 30th of February for the 2nd of March
    try:
        return time.mktime((*date, *clock, 0, 0, -1))
    except OverflowError:
        raise ValueError("out of range") from None


def _date_of(moment: float) -> Date:
    local = time.localtime(moment)
    return (local.tm_year, local.tm_mon, local.tm_mday)
