"""Servers that speak vLLM's and SGLang's HTTP and misbehave as the real ones do, on a simulated device."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from slurm_interleave.client.sim import SimBuffer, SimDevice


class Engine:
    """One server: its memory on the device, its requests, and its faults."""

    app = ""

    def __init__(self, device: SimDevice, size: int = 4096) -> None:
        self.calls: list[str] = []
        self.asked = 0  # how often it was asked anything
        self.in_flight = 0
        self.queued = 0  # put in flight as soon as it serves again
        self.crashed = False
        self.fails: dict[str, list[int]] = {}  # statuses that a path answers with before it works
        self.hangs: set[str] = set()  # paths that answer only when the test is over
        self.answers: dict[str, int] = {}  # how often a path answers before it hangs
        self.slow: dict[str, threading.Event] = {}  # paths that wait for the test
        self.frees = True
        self.asleep = False
        self._over = threading.Event()
        self._device, self._size = device, size
        self._buffer: SimBuffer | None = device.empty(size, np.uint8)
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET")

            def do_POST(self) -> None:
                self._answer("POST")

            def _answer(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, text = engine.answer(method, self.path, json.loads(body or b"{}"))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, str]:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        self.asked += 1
        detail = f"?{parts.query}" if parts.query else f" {json.dumps(body)}" if body else ""
        if method == "POST":
            self.calls.append(parts.path + detail)
        if parts.path in self.hangs:
            self._over.wait(30)
        if parts.path in self.answers:
            self.answers[parts.path] -= 1
            if not self.answers[parts.path]:
                self.hangs.add(parts.path)
        if parts.path in self.slow:
            assert self.slow[parts.path].wait(30)
        if self.fails.get(parts.path):
            return self.fails[parts.path].pop(0), "it went wrong"
        route = self.routes().get((method, parts.path))
        return route(query, body) if route else (404, "Not Found")

    def routes(self) -> dict[tuple[str, str], Callable[[Any, Any], tuple[int, str]]]:
        raise NotImplementedError

    def leave(self) -> tuple[int, str]:
        """Free the memory, if it does as it says."""
        if self.in_flight:
            self.crashed = True
        if self._buffer is not None and self.frees:
            self._buffer.free()
            self._buffer = None
        self.asleep = True
        return 200, ""

    def come_back(self) -> tuple[int, str]:
        if self._buffer is None:
            self._buffer = self._device.empty(self._size, np.uint8)
        self.asleep = False
        return 200, ""


class Vllm(Engine):
    app = "vllm"
    brief = False

    def routes(self) -> dict[tuple[str, str], Callable[[Any, Any], tuple[int, str]]]:
        return {
            ("GET", "/metrics"): lambda *_: (200, self._metrics()),
            ("GET", "/is_sleeping"): lambda *_: (200, json.dumps({"is_sleeping": self.asleep})),
            ("POST", "/sleep"): lambda *_: self.leave(),
            ("POST", "/wake_up"): lambda *_: self.come_back(),
        }

    def come_back(self) -> tuple[int, str]:
        self.in_flight, self.queued = self.in_flight + self.queued, 0
        return super().come_back()

    def _metrics(self) -> str:
        """Count the requests; where they are `brief`, one is done after each look."""
        label = 'engine="0",model_name="m"'
        in_flight, self.in_flight = self.in_flight, max(0, self.in_flight - self.brief)
        return (
            "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            f"vllm:num_requests_running{{{label}}} {float(in_flight)}\n"
            f"vllm:num_requests_waiting{{{label}}} 0.0\n"
        )


class Sglang(Engine):
    app = "sglang"
    knows_pause = True

    def routes(self) -> dict[tuple[str, str], Callable[[Any, Any], tuple[int, str]]]:
        routes = {
            ("POST", "/flush_cache"): lambda *_: (400 if self.in_flight else 200, ""),
            ("POST", "/release_memory_occupation"): lambda *_: self._release(),
            ("POST", "/resume_memory_occupation"): lambda *_: self._resume(),
        }
        if self.knows_pause:
            routes["POST", "/pause_generation"] = lambda *_: self._pause(True)
            routes["POST", "/continue_generation"] = lambda *_: self._pause(False)
        return routes

    def _pause(self, paused: bool) -> tuple[int, str]:
        self.paused = paused
        if paused:
            self.in_flight, self.queued = 0, self.queued + self.in_flight
        else:
            self.in_flight, self.queued = self.in_flight + self.queued, 0
        return 200, ""

    def _release(self) -> tuple[int, str]:
        return (500, "release: not idle") if self.in_flight else self.leave()

    def _resume(self) -> tuple[int, str]:
        return self.come_back() if self.asleep else (500, "offload_tags.remove: not released")
