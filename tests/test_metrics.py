"""What is exported, documented and drawn is the same; and where it may be served."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
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
_AT = 'operation="restore",backend="sim",instance="n1"'
# Of each alert, a minute at a time: what is well, and what is not.
_ALERTS = {
    "InterleavedDown": {'up{job="interleaved"}': ("1x40", "0x40")},
    "InterleaveAgentDown": {'up{job="interleave-agent"}': ("1x40", "0x40")},
    "InterleaveAgentCutOff": {"interleave_agent_orchestrator_connected": ("1x40", "0x40")},
    "InterleaveMemberFaulted": {'interleave_faulted_members{group="g"}': ("0x40", "1x40")},
    "InterleaveSwitchesFail": {
        'interleave_faults_total{group="g",kind="switch.failed"}': ("0x29 1x10", "0x29 3x10")
    },
    "InterleaveTrespass": {'interleave_trespasses_total{group="g"}': ("7x40", "0x29 1x10")},
    "InterleaveNobodyGetsATurn": {
        'interleave_queue_depth{group="g"}': ("2x40", "2x40"),
        'interleave_device_busy_seconds_total{group="g"}': ("0+60x40", "0x40"),
    },
    "InterleaveLongWaits": {
        'interleave_wait_seconds_bucket{group="g",le="1200"}': ("0+10x40", "0+5x40"),
        'interleave_wait_seconds_bucket{group="g",le="3600"}': ("0+10x40", "0+10x40"),
        'interleave_wait_seconds_bucket{group="g",le="+Inf"}': ("0+10x40", "0+10x40"),
    },
    "InterleaveOverhead": {
        'interleave_device_switch_seconds_total{group="g"}': ("0+6x40", "0+30x40"),
        'interleave_device_busy_seconds_total{group="g"}': ("0+54x40", "0+30x40"),
    },
    "InterleaveOperationsFail": {
        f'interleave_agent_operation_seconds_count{{{_AT},outcome="failed"}}': ("0x29 1x10", "0x29 3x10"),
        f'interleave_agent_operation_seconds_count{{{_AT},outcome="ok"}}': ("0+9x40", "0+9x40"),
    },
}


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
    program = shutil.which("promtool") or shutil.which(ROOT / "build/promtool/usr/bin/promtool")
    if program is None:
        pytest.skip("promtool is not there: make promtool, or apt-get install prometheus")
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


def test_each_alert_is_tried() -> None:
    assert re.findall(r"alert: (\w+)", RULES.read_text()) == list(_ALERTS)


@pytest.mark.parametrize("alert", _ALERTS)
def test_an_alert_comes_when_something_is_wrong_and_not_before(alert: str, tmp_path: Path) -> None:
    cases = []
    for wrong in (False, True):
        firing = f'{{alertname="{alert}"}}'
        expected = [{"labels": firing, "value": 1}] if wrong else []
        query = 'count by (alertname) (ALERTS{alertstate="firing"})'
        series = [{"series": name, "values": values[wrong]} for name, values in _ALERTS[alert].items()]
        asked = [{"expr": query, "eval_time": "36m", "exp_samples": expected}]
        cases.append({"interval": "1m", "input_series": series, "promql_expr_test": asked})
    file = tmp_path / "alerts.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))

    tried = promtool("test", "rules", file)

    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_promtool_takes_what_the_dashboard_asks_for(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    checked = promtool("check", "rules", file)

    assert checked.returncode == 0, checked.stderr


def test_grafana_s_own_types_know_all_that_the_dashboard_says() -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="it needs Python 3.11")
    from grafana_foundation_sdk.cog import encoder, plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    read = json.loads(encoder.JSONEncoder().encode(Dashboard.from_json(dashboard())))

    assert list(unlike(dashboard(), read)) == []
    assert list(unlike({"panels": [{"titel": "a"}]}, read)) == [".panels: other length"]
    assert list(unlike({"titel": "a", "title": 1}, read)) == [
        ".titel: not known",
        f".title: {read['title']!r}",
    ]


def unlike(said: Any, read: Any, at: str = "") -> Iterator[str]:
    """Yield what of *said* is not in *read*, or otherwise."""
    if isinstance(said, dict) and isinstance(read, dict):
        for key, value in said.items():
            yield from unlike(value, read[key], f"{at}.{key}") if key in read else [f"{at}.{key}: not known"]
    elif isinstance(said, list) and isinstance(read, list):
        if len(said) != len(read):
            yield f"{at}: other length"
            return
        for number, pair in enumerate(zip(said, read, strict=True)):
            yield from unlike(*pair, f"{at}[{number}]")
    elif said != read:
        yield f"{at}: {read!r}"


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
        assert running.arbiter.observers == []


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
