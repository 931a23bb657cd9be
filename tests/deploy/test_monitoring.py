"""The alerts and the dashboard of Grafana: PromQL, on metrics and labels that we export."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from datetime import timedelta
from typing import Any, get_args

import promql_parser
import pytest

from monque import Monque, QueueDepth
from monque._observe.observer import Ending
from monque.prometheus import MonqueCollector
from support.deploying import DEPLOY, documents

RULES = {
    rule["alert"]: rule
    for group in documents("prometheus/alerts.yaml")[0]["groups"]
    for rule in group["rules"]
}
BOARD = json.loads((DEPLOY / "grafana" / "monque.json").read_text())
PANELS = {panel["title"]: panel for panel in BOARD["panels"]}
# What Prometheus adds to each sample, and its own metric of each target.
ADDED = {"instance", "job"}
OWN = {"up": {label: set[str]() for label in ADDED}}


@pytest.fixture(scope="module")
def exported() -> dict[str, dict[str, set[str]]]:
    """Each sample that a collector can have, with its labels and their values."""
    collector = MonqueCollector(Monque("mongodb://localhost:27017/shop"))
    collector.enqueued("a", 1)
    for ending in get_args(Ending):
        collector.ended("a", ending, waited=timedelta(1), ran=timedelta(1), error=None)
    collector.surveyed([QueueDepth(name="a", waiting={"time": 1, "signal": 1})], collection="shop.jobs")
    collector.stuck("a", 1)
    collector.stalled(timedelta(seconds=2))
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for metric in collector.collect():
        for sample in metric.samples:
            if sample.name.endswith("_created"):
                continue  # a time, which nobody draws
            found[sample.name].update(
                {label: set() for label in sample.labels if label not in found[sample.name]}
            )
            for label, value in sample.labels.items():
                found[sample.name][label].add(value)
    return {**found, **OWN}


def queries(panel: dict[str, Any]) -> list[str]:
    """What it asks, with values in the place of Grafana's variables."""
    return [
        each["expr"].replace("$__rate_interval", "1m").replace("$name", ".*") for each in panel["targets"]
    ]


def check(query: str, exported: dict[str, dict[str, set[str]]]) -> set[str]:
    """Fail unless all that it selects, matches and groups by is there; the metrics that it reads."""
    read: set[str] = set()
    grouped: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name in exported, f"{node.name} is not exported"
            read.add(node.name)
            for matcher in node.matchers.matchers:
                there = exported[node.name]
                assert matcher.name in there, f"{node.name} has no {matcher.name}"
                if matcher.op == promql_parser.MatchOp.Equal and matcher.name not in ADDED:
                    assert matcher.value in there[matcher.name], f"{matcher.name} is never {matcher.value}"
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            grouped.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(query), pre_visit=visit)
    for name in read:
        assert grouped <= {*exported[name], *ADDED}, f"{name} does not have all of {grouped}"
    return read


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_asks_for_what_is_exported(alert: str, exported: Any) -> None:
    rule = RULES[alert]

    assert check(rule["expr"], exported)
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    # A text may only name labels that the result has.
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert all(label in rule["expr"] or not re.search(r"\bby\b", rule["expr"]) for label in named)


def test_there_is_an_alert_for_each_way_in_which_work_stands_still(exported: Any) -> None:
    read = {alert: check(rule["expr"], exported) for alert, rule in RULES.items()}

    assert "monque_queue_oldest_due_seconds" in read["MonqueQueueOld"]
    assert "monque_jobs_failed_total" in read["MonqueJobsFailing"]
    assert read["MonqueNoWorkers"] == read["MonqueInstanceSilent"] == {"monque_last_survey_timestamp_seconds"}
    assert read["MonqueProcessDown"] == {"up"}
    assert read["MonqueLoopStalled"] == {"monque_event_loop_stall_seconds_count"}
    [scraped] = documents("prometheus/prometheus.yaml")[0]["scrape_configs"]
    assert f'job="{scraped["job_name"]}"' in RULES["MonqueProcessDown"]["expr"]


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_asks_for_what_is_exported(title: str, exported: Any) -> None:
    for query, target in zip(queries(PANELS[title]), PANELS[title]["targets"], strict=True):
        assert check(query, exported)
        assert all(label in query for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))


def test_the_panels_show_everything_that_is_exported_side_by_side(exported: Any) -> None:
    shown = {name for panel in PANELS.values() for query in queries(panel) for name in check(query, exported)}
    places = [panel["gridPos"] for panel in PANELS.values()]
    cells = [
        (x, y)
        for each in places
        for x in range(each["x"], each["x"] + each["w"])
        for y in range(each["y"], each["y"] + each["h"])
    ]

    assert {_metric(name) for name in shown} == {_metric(name) for name in exported} - set(OWN)
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in PANELS.values()}) == len(PANELS) == len(BOARD["panels"])
    variables = {each["name"] for each in BOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(?!__)(\w+)", json.dumps(BOARD))) <= variables


def _metric(sample: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", sample)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("monque_jobs_lost_total > 0", "monque_jobs_lost_total is not exported"),
        ('monque_queue_depth{status="due"}', "monque_queue_depth has no status"),
        ('monque_queue_depth{state="ready"}', "state is never ready"),
        ("sum by (queue) (monque_jobs_stuck)", "does not have all of"),
        ("sum by (job_name (monque_jobs_stuck)", "unclosed left parenthesis"),
    ],
)
def test_a_wrong_query_is_found_out(query: str, problem: str, exported: Any) -> None:
    """What the tests above rest on."""
    with pytest.raises((AssertionError, ValueError), match=problem):
        check(query, exported)
