"""Reads metrics as Prometheus does: by HTTP."""

from __future__ import annotations

import asyncio
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """What one answer says."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = (sample for family in self.families.values() for sample in family.samples)
        self.values = {(s.name, *sorted(s.labels.items())): s.value for s in samples}

    def value(self, name: str, **labels: str) -> float:
        """Return one sample; 0 where it is not there yet."""
        return self.values.get((name, *sorted(labels.items())), 0.0)

    def has(self, name: str, **labels: str) -> bool:
        """Tell whether a sample is there."""
        return (name, *sorted(labels.items())) in self.values

    def labels(self, label: str) -> set[str]:
        """Return all values of *label*."""
        return {value for _, *pairs in self.values for name, value in pairs if name == label}


async def scrape(port: int, host: str = "127.0.0.1") -> Scraped:
    """Ask a daemon, which may run in this event loop."""

    def ask() -> str:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    return Scraped(await asyncio.to_thread(ask))


async def scraped(port: int, name: str, value: float, **labels: str) -> Scraped:
    """Return the answer in which *name* has come to *value*: which takes a moment."""
    limit = time.monotonic() + 15
    while (answer := await scrape(port)).value(name, **labels) != value:
        assert time.monotonic() < limit, f"{name} is {answer.value(name, **labels)} after 15 s, not {value}"
        await asyncio.sleep(0.002)
    return answer
