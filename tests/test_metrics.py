"""What is exported, documented and drawn is the same; and where it may be served."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.metrics import Metrics as AgentMetrics
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import State
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.meters import GroupLabels, Meters
from tests.metrics import scrape
from tests.orchestrator.serving import serving

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy/prometheus/interleave.yml"
DASHBOARD = ROOT / "deploy/grafana/interleave.json"
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) ?\|", re.MULTILINE)
_NAME = re.compile(r"\b((?:interleave|timeslice)_\w+?)(?:_bucket|_sum|_count)?\b(?![\w\"])")
_SECTIONS = {"orchestrator": OrchestratorConfig, "agent": AgentConfig}


@pytest.fixture
def agent(tmp_path: Path) -> AgentMetrics:
    state, backend = State(tmp_path), NoopBackend("n1", 1)
    operations = Operations(state, backend, 1.0, lambda *_: None)
    return AgentMetrics(state, operations, asyncio.Event())


@pytest.fixture
def exported(agent: AgentMetrics) -> dict[str, tuple[str, list[str]]]:
    """Each metric's type and labels, by its name as Prometheus sees it."""
    found = {}
    for registry in (Meters().registry, agent.registry):
        for metric, names in registry._collector_to_names.items():
            [family] = metric.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert family.name in names
            found[name] = (family.type, list(metric._labelnames))  # type: ignore[attr-defined]
    return found


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def expressions() -> list[str]:
    """Return what the dashboard asks for, with its variables filled in."""
    asked = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return [expr.replace("$__rate_interval", "5m").replace("$group", ".*") for expr in asked]


def promtool(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    return subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, timeout=60)


def test_each_metric_is_documented_with_its_type_and_labels(
    exported: dict[str, tuple[str, list[str]]],
) -> None:
    rows = _ROW.findall((ROOT / "docs/metrics.md").read_text())

    documented = {name: (kind, labels.replace(",", "").split()) for name, kind, labels in rows}

    assert documented == exported


@pytest.mark.parametrize("text", [RULES.read_text(), "\n".join(expressions())], ids=["rules", "dashboard"])
def test_alerts_and_the_dashboard_ask_for_what_is_exported(
    text: str, exported: dict[str, tuple[str, list[str]]]
) -> None:
    asked = {name for line in text.splitlines() if "action:" not in line for name in _NAME.findall(line)}

    assert asked
    assert asked <= set(exported)


def test_the_names_are_as_prometheus_wants_them(agent: AgentMetrics) -> None:
    text = "".join(generate_latest(r).decode() for r in (Meters().registry, agent.registry))

    checked = promtool("check", "metrics", stdin=text)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_promtool_takes_the_alerts() -> None:
    checked = promtool("check", "rules", RULES)

    assert checked.returncode == 0, checked.stderr


def test_promtool_takes_what_the_dashboard_asks_for(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    checked = promtool("check", "rules", file)

    assert checked.returncode == 0, checked.stderr


def test_the_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    panels, taken = dashboard()["panels"], set[tuple[int, int]]()

    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)


@pytest.mark.parametrize("section", _SECTIONS)
@pytest.mark.parametrize("address", ["0.0.0.0:9102", "[::]:9102", "head:9102"])
def test_others_read_metrics_only_where_the_site_says_so(section: str, address: str) -> None:
    config = _SECTIONS[section]

    with pytest.raises(ConfigError, match=rf"\[{section}\] metrics_open = true"):
        config(metrics=address)

    assert config(metrics=address, metrics_open=True).metrics == address


@pytest.mark.parametrize("section", _SECTIONS)
@pytest.mark.parametrize("address", ["9102", "127.0.0.1", "127.0.0.1:70000", "unix:/run/metrics", ":9102"])
def test_an_address_that_cannot_be_is_refused_with_one_that_can(section: str, address: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[{section}\] metrics = '{re.escape(address)}'.*127\.0\.0\.1"):
        _SECTIONS[section](metrics=address, metrics_open=True)


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics="127.0.0.1:0") as running:
        taken = f"127.0.0.1:{running.metrics_port}"
        (tmp_path / "other").mkdir()

        with pytest.raises(ConfigError, match=rf"\[orchestrator\] metrics = '{taken}' cannot be used"):
            async with serving(tmp_path / "other", metrics=taken):
                pass


async def test_without_an_address_nothing_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        assert running.metrics_port == 0
        assert running.arbiter.observe is None


async def test_two_at_once_and_ipv6_are_served(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics="[::1]:0") as running:
        port = running.metrics_port

        answers = await asyncio.gather(scrape(port, "[::1]"), scrape(port, "[::1]"))

        assert all(answer.families for answer in answers)


def test_groups_beyond_the_maximum_share_a_label_until_one_is_over() -> None:
    forgotten: list[str] = []
    labels = GroupLabels(2, forgotten.append)

    assert [labels.of(group) for group in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    labels.make_room({"b", "c"})
    assert [labels.of(group) for group in ("c", "a")] == ["c", "other"]
    assert forgotten == ["a"]
    assert GroupLabels(0, forgotten.append).of("a") == "other"


def test_a_group_that_is_over_keeps_its_label_while_there_is_room() -> None:
    forgotten: list[str] = []
    labels = GroupLabels(2, forgotten.append)
    labels.of("a")

    labels.make_room(set())

    assert forgotten == []
