"""Addresses in configuration: what is allowed, and that each daemon refuses others at its start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurm_interleave.client.core.addresses import check_address, is_loopback
from slurm_interleave.client.core.errors import ConfigError

BAD = ["127.0.0.1:65536", "127.0.0.1:99999999999", "127.0.0.1:http", "127.0.0.1:", "127.0.0.1", ":50051", ""]
BAD += ["127.0.0.1:-1", "::1:50051:", "[::1]", "a b:1", "127.0.0.1:٣", "unix:", "http://127.0.0.1:1"]
PROGRAMS = [
    ("interleaved", "[orchestrator]", "listen"),
    ("interleave-agent", "[agent]", "listen"),
    ("interleave-agent", "[agent]", "orchestrator"),
    ("interleave status", "[client]", "orchestrator"),
    ("sinterleave", "[client]", "orchestrator"),
]


@pytest.mark.parametrize("address", BAD)
def test_what_is_no_address_is_refused_with_the_key_and_what_to_write(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_address(address, "[orchestrator] listen")

    assert "[orchestrator] listen = " in str(caught.value)
    assert repr(address) in str(caught.value)
    assert "1 to 65535" in str(caught.value)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "head:65535", "[::1]:50051", "a.b-c.org:1", "unix:/a/b"])
def test_a_host_and_a_port_are_an_address(address: str) -> None:
    check_address(address, "key")


def test_port_0_is_for_those_who_listen() -> None:
    check_address("127.0.0.1:0", "key", lowest=0)
    with pytest.raises(ConfigError):
        check_address("127.0.0.1:0", "key")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1", "unix:/a"])
def test_loopback_is_told_from_the_network(address: str) -> None:
    assert is_loopback(address)
    assert not is_loopback(f"192.0.2.{address[-1:].replace('a', '1')}:1")


@pytest.mark.parametrize(("program", "section", "key"), PROGRAMS)
@pytest.mark.parametrize("port", ["65536", "fifty"])
def test_each_program_ends_with_one_line(
    tmp_path: Path, program: str, section: str, key: str, port: str
) -> None:
    config = tmp_path / "interleave.toml"
    config.write_text(f'{section}\n{key} = "127.0.0.1:{port}"\nauth = "none"\n')
    name, *arguments = program.split()
    argv = [str(Path(sys.executable).with_name(name)), *arguments, f"--config={config}"]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"{section} {key} = '127.0.0.1:{port}' is no address" in done.stderr
