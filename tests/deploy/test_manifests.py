"""The manifests and units: valid, and in agreement with the command line, the image and each other."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from click import Context, Group

from monque import Options
from monque.cli.commands import monque as command
from monque.cli.listen import answer
from monque.cli.web import LATEST
from support.deploying import DEPLOY, commands, documents, last, manifest, manifests, option, service
from support.packaging import ROOT

DEPLOYMENTS = {each["metadata"]["name"]: each for each in manifests() if each["kind"] == "Deployment"}
# A worker ends five seconds after its timeout at the latest, and its children two seconds later.
GRACE = Options().shutdown_timeout + timedelta(seconds=10)
COMPOSED = documents("compose.yaml")[0]["services"]


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = DEPLOYMENTS[name]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_kubernetes_accepts_the_manifests(version: str) -> None:
    """By its own schemas, in which an unknown field is an error. Those of KEDA are in no package."""
    own = [each for each in manifests() if "keda.sh" not in each["apiVersion"]]

    assert sorted(each["kind"] for each in own) == [
        *(["Deployment"] * 2),
        *(["PodDisruptionBudget"] * 2),
        "Service",
    ]
    for each in own:
        kubernetes_validate.validate(each, version, strict=True)


def test_a_wrong_manifest_is_found_out() -> None:
    """What the test above rests on."""
    wrong = manifest("Deployment", "monque-worker")
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 40

    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("where", commands())
def test_the_command_line_knows_what_is_started(where: str) -> None:
    name, *arguments = commands()[where]
    assert isinstance(command, Group)
    known = command.get_command(Context(command), name)

    assert known is not None
    given = known.make_context(name, list(arguments)).params
    # A container listens to others, who must reach its ports; a service of a machine does not.
    assert given["host"] == ("127.0.0.1" if where.endswith(".service") else "0.0.0.0")  # noqa: S104


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_probes_ask_what_the_health_port_answers(name: str) -> None:
    [container] = pod(name)["containers"]
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    probes = {key: each["httpGet"] for key, each in container.items() if key.endswith("Probe")}

    assert ports["health"] == option(container["args"], "--health-port")
    assert {"livenessProbe", "readinessProbe"} <= set(probes)
    for probe in probes.values():
        asked = f"{probe['path']} HTTP/1.1".join(("GET ", "\r\n\r\n")).encode()
        assert (probe["port"], answer(asked, lambda: None)[9:12]) == ("health", b"200")
    # Not restarted while the database is away, and not while a handler blocks for some seconds.
    liveness = container["livenessProbe"]
    assert liveness["httpGet"]["path"] == "/healthz"
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60


def test_prometheus_finds_the_metrics_of_each_worker() -> None:
    template = DEPLOYMENTS["monque-worker"]["spec"]["template"]
    [container] = template["spec"]["containers"]
    [target] = documents("prometheus/prometheus.yaml")[0]["scrape_configs"][0]["static_configs"][0]["targets"]

    port = template["metadata"]["annotations"]["prometheus.io/port"]
    assert port == option(container["args"], "--metrics-port")
    assert {"name": "metrics", "containerPort": int(port)} in container["ports"]
    assert target == f"localhost:{option(commands()['monque-worker.service'], '--metrics-port')}"


def test_running_jobs_have_the_time_that_a_stop_gives_them() -> None:
    worker, board = pod("monque-worker"), pod("monque-web")
    sleeps = board["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]

    assert timedelta(seconds=worker["terminationGracePeriodSeconds"]) >= GRACE
    assert COMPOSED["worker"]["stop_grace_period"] == f"{GRACE.total_seconds():.0f}s"
    unit = service("monque-worker")["Service"]
    assert timedelta(seconds=int(unit["TimeoutStopSec"])) >= GRACE
    # Otherwise each process gets a second signal, from its supervisor, and gives its jobs back.
    assert unit["KillMode"] == "mixed"
    assert board["terminationGracePeriodSeconds"] > int(sleeps[1]) + LATEST


def test_nothing_runs_as_root_or_writes_into_the_image() -> None:
    uid, gid = map(int, last("USER").split(":"))
    for name in DEPLOYMENTS:
        [container] = pod(name)["containers"]
        context = pod(name)["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"], context["runAsGroup"]) == (True, uid, gid)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    for each in COMPOSED.values():
        assert (each["read_only"], each["cap_drop"]) == (True, ["ALL"])
    for name in ("monque-worker", "monque-web"):
        unit = service(name)["Service"]
        assert (unit["DynamicUser"], unit["ProtectSystem"]) == ("yes", "strict")


def test_the_names_in_the_manifests_lead_to_each_other() -> None:
    labels = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in DEPLOYMENTS.items()}
    selectors = {name: each["spec"]["selector"]["matchLabels"] for name, each in DEPLOYMENTS.items()}
    budgets = {name: manifest("PodDisruptionBudget", name)["spec"] for name in DEPLOYMENTS}
    exposed = manifest("Service", "monque-web")["spec"]
    comment = (DEPLOY / "kubernetes" / "worker.yaml").read_text().partition("apiVersion")[0]
    secrets = [
        each["valueFrom"]["secretKeyRef"]
        for name in DEPLOYMENTS
        for each in pod(name)["containers"][0]["env"]
        if "valueFrom" in each
    ]

    assert labels == selectors == {name: each["selector"]["matchLabels"] for name, each in budgets.items()}
    assert {each["maxUnavailable"] for each in budgets.values()} == {1}  # the last pod can be moved, too
    assert exposed["selector"] == labels["monque-web"]
    assert exposed["ports"][0]["targetPort"] in [
        each["name"] for each in pod("monque-web")["containers"][0]["ports"]
    ]
    for file in ("keda-mongodb.yaml", "keda-metrics-api.yaml"):
        scaled, login = documents(f"kubernetes/{file}")[::-1]
        [trigger] = scaled["spec"]["triggers"]
        assert scaled["spec"]["scaleTargetRef"]["name"] in DEPLOYMENTS
        assert trigger["authenticationRef"]["name"] == login["metadata"]["name"]
        secrets += login["spec"]["secretTargetRef"]
    assert {each["name"] for each in secrets} == {"monque"}
    assert {each["key"] for each in secrets} == set(re.findall(r"--from-literal=([\w-]+)=", comment))


def test_the_compose_file_adds_to_the_mongodb_of_the_other() -> None:
    [made] = documents("compose.yaml")
    [database] = documents("../compose.yaml")

    assert [(DEPLOY / each).resolve() for each in made["include"]] == [ROOT / "compose.yaml"]
    for name, each in COMPOSED.items():
        assert set(each["depends_on"]) == set(database["services"])
        asked = re.findall(r"127\.0\.0\.1:(\d+)/(\w+)", each["healthcheck"]["test"][-1])
        arguments = each.get("command", commands()["Dockerfile"])
        assert asked == [(option(arguments, "--health-port"), "readyz")], name
    assert "directConnection=true" in COMPOSED["worker"]["environment"]["MONQUE_URI"]
    images = {pod(name)["containers"][0]["image"] for name in DEPLOYMENTS}
    assert {each["image"] for each in COMPOSED.values()} == images


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_knows_all_that_the_units_say(tmp_path: Path) -> None:
    """But for the program, which is installed elsewhere."""
    for name in ("monque-worker", "monque-web"):
        unit = (DEPLOY / "systemd" / f"{name}.service").read_text()
        (tmp_path / f"{name}.service").write_text(unit.replace("/srv/shop/.venv/bin/monque", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *tmp_path.iterdir()], capture_output=True, text=True
    )

    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, said) == (0, [])


def test_the_units_are_read_as_they_are_written() -> None:
    for path in (DEPLOY / "systemd").iterdir():
        unit = configparser.ConfigParser(interpolation=None, strict=True)
        unit.read(path)
        assert unit.sections() == ["Unit", "Service", "Install"]
