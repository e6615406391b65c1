"""A headless Chromium, driven by the DevTools protocol over its pipe: no port, and no library for it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

_READS, _WRITES = 3, 4  # descriptors that --remote-debugging-pipe is about
_DEADLINE_S = 60
needs_chromium = pytest.mark.skipif(
    not shutil.which("chromium"), reason="chromium is not installed: apt-get install chromium"
)


class Page:
    """One page. What it logs and throws is kept in `complaints`, what it asks the network for in `asked`."""

    def __init__(self, to: int, replies: BinaryIO) -> None:
        self._to, self._from = to, replies
        self._calls = 0
        self._session = ""
        self._events: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self.asked: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._calls += 1
        request = {"id": self._calls, "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._calls:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return dict(reply["result"])

    def open(self, url: str, width: int = 1200, height: int = 900, *, dark: bool = False) -> None:
        """Load *url* in a window of that size and wait until all of it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self._events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._read()

    def value(self, expression: str) -> Any:
        """Return what *expression*, or its promise, comes to in the page."""
        reply = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait, frame by frame, until *expression* is true in the page, and return it."""
        return self.value(
            "new Promise(done => { const look = () => { const seen = "
            f"{expression}; seen ? done(seen) : requestAnimationFrame(look) }}; look() }})"
        )

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send an event of the mouse: mouseMoved, mouseWheel, mousePressed, ..."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path: Path) -> None:
        """Write what is to be seen, all of the page, as a PNG file."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _read(self) -> dict[str, Any]:
        """Return the next message; note what it complains of, if it is an event."""
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "chromium has ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._events.append(message)
            self._note(message["method"], message["params"])
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])


@contextlib.contextmanager
def chromium(folder: Path, options: Sequence[str] = ()) -> Iterator[Page]:
    """Start a Chromium whose profile is in *folder*, give a page of it, and end it with all its processes."""
    replies, theirs_write = os.pipe()
    theirs_read, ours_write = os.pipe()
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",  # tests may run as root, which it refuses else
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}",
        *options,
    ]
    # The shell puts the pipes where Chromium looks for them.
    script = f'exec {_READS}<&{theirs_read} {_WRITES}>&{theirs_write}; exec "$@"'
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", *command],
            pass_fds=(theirs_read, theirs_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "HOME": str(folder)},
        )
    os.close(theirs_read)
    os.close(theirs_write)
    try:
        with open(replies, "rb") as heard:  # noqa: PTH123 # a descriptor
            yield Page(ours_write, heard)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_DEADLINE_S)
        os.close(ours_write)
