"""The dashboard and the alerts name metrics that exist, and a real Prometheus reads all of it."""

import json
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_support import CHECKOUT, Vicinal
from launch_support import GUARD_SECONDS
from metrics_support import served, written
from prometheus_client import CollectorRegistry
from ruamel.yaml import YAML
from unpacked_packages import unpacked

from vicinal.monitoring.metrics import JobsCollector
from vicinal.monitoring.sampling import Sampler

SHIPPED = CHECKOUT / "packaging/monitoring"
ALERTS = SHIPPED / "prometheus-alerts.yaml"
PAGE = CHECKOUT / "docs/how-to/monitoring.md"
METRIC = re.compile(r"\bvicinal_[a-z_]+\b")

CONFIGURATION = """
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: [{alerts}]
scrape_configs:
  - job_name: hosts
    static_configs: [{{targets: ["{target}"]}}]
"""


def expressions() -> dict[str, str]:
    """The dashboard's queries by the panel's title; variables have values for everything."""
    dashboard = json.loads((SHIPPED / "grafana-dashboard.json").read_text())
    found = {}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "1m")
            found[f"{panel['title']} {target['refId']}"] = re.sub(
                r"\$(instance|region)", ".*", text
            )
    return found


def alerts() -> dict[str, str]:
    (group,) = YAML(typ="safe").load(ALERTS)["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def metric_names(region: Path) -> set[str]:
    registry = CollectorRegistry()
    registry.register(JobsCollector(Sampler(lambda: [region])))
    return {sample.name for family in registry.collect() for sample in family.samples}


def test_what_is_shipped_names_metrics_that_exist(region_path: Path) -> None:
    written(region_path)
    known = metric_names(region_path)
    for text in (*expressions().values(), *alerts().values()):
        assert set(METRIC.findall(text)) <= known, text
    page = set(METRIC.findall(PAGE.read_text()))
    assert page == known


def test_the_page_explains_each_alert() -> None:
    explained = re.findall(r"^\| `(Vicinal\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert explained == list(alerts())


def test_panels_do_not_overlap() -> None:
    panels = json.loads((SHIPPED / "grafana-dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for each in panels
        for place in [each["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({each["id"] for each in panels}) == len(panels)


@pytest.fixture(scope="module")
def programs() -> Path:
    """Prometheus from the distribution's package; scripts/setup downloads it."""
    return unpacked("prometheus") / "usr/bin"


@pytest.mark.long
def test_prometheus_own_linter_has_no_complaint(
    programs: Path, vicinal: Vicinal, region_path: Path, tmp_path: Path
) -> None:
    written(region_path)
    assert vicinal("metrics", "--region", f"file:{region_path}", "--textfile", tmp_path)
    for words, text in (
        (["metrics"], (tmp_path / "vicinal.prom").read_text()),
        (["rules", ALERTS], ""),
    ):
        done = subprocess.run(
            [programs / "promtool", "check", *words], input=text, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), done


class Prometheus:
    """A running server; asked by its HTTP interface."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **words: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=GUARD_SECONDS) as answer:
            return json.load(answer)["data"]

    def query(self, text: str) -> list[Any]:
        result: list[Any] = self.get("query", query=text)["result"]
        return result

    def wait_for(self, text: str) -> list[Any]:
        """Ask until there is an answer."""
        deadline = time.monotonic() + GUARD_SECONDS
        while True:
            try:
                if found := self.query(text):
                    return found
            except OSError:
                pass  # it has just started
            assert time.monotonic() < deadline, text
            time.sleep(0.1)


@pytest.fixture
def prometheus(programs: Path, region_path: Path, tmp_path: Path) -> Iterator[Prometheus]:
    """A server that scrapes the metrics of a region."""
    written(region_path)
    with served("127.0.0.1:0", "--region", f"file:{region_path}") as (url, _):
        target = urllib.parse.urlsplit(url).netloc
        (tmp_path / "prometheus.yaml").write_text(
            CONFIGURATION.format(alerts=ALERTS, target=target)
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        words: list[str | Path] = [
            *(programs / "prometheus", f"--config.file={tmp_path / 'prometheus.yaml'}"),
            *(f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"),
        ]
        with (tmp_path / "log").open("w") as log, subprocess.Popen(words, stderr=log) as server:
            try:
                yield Prometheus(address)
            finally:
                server.kill()


@pytest.mark.long
def test_a_real_prometheus_scrapes_and_answers(prometheus: Prometheus, region_path: Path) -> None:
    (found,) = prometheus.wait_for('vicinal_messages_total{peers="members"}')
    assert found["metric"]["region"] == str(region_path)
    assert found["metric"]["job_id"] == "7"
    assert found["metric"]["job"] == "hosts"
    assert found["value"][1] == "14"
    prometheus.wait_for("rate(vicinal_messages_total[1m])")
    empty = [title for title, text in expressions().items() if not prometheus.query(text)]
    assert empty == []
    kinds = {each["type"] for entries in prometheus.get("metadata").values() for each in entries}
    assert {"counter", "gauge", "info"} <= kinds


@pytest.mark.long
def test_a_dead_member_raises_an_alert(prometheus: Prometheus) -> None:
    (found,) = prometheus.wait_for('ALERTS{alertname="VicinalMemberDead"}')
    assert found["metric"]["alertstate"] in ("pending", "firing")
