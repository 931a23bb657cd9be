"""The files in `deploy/`, read: the Dockerfile as steps, all else as plain values."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from typing import Any, NamedTuple

import yaml

from support.packaging import ROOT

DEPLOY = ROOT / "deploy"


class Step(NamedTuple):
    """An instruction of a Dockerfile, and the text behind it."""

    instruction: str
    text: str


def steps() -> list[Step]:
    """The steps of the Dockerfile, in order."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line]


def last(instruction: str) -> str:
    """The text of the last step of its kind."""
    return [step.text for step in steps() if step.instruction == instruction][-1]


def documents(path: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all((DEPLOY / path).read_text()))


def manifests() -> list[dict[str, Any]]:
    """Everything for Kubernetes."""
    return [each for path in sorted((DEPLOY / "kubernetes").iterdir()) for each in documents(str(path))]


def manifest(kind: str, name: str, among: str = "") -> dict[str, Any]:
    """The one of this kind and name, in the file *among*, or in all."""
    found = documents(f"kubernetes/{among}") if among else manifests()
    [one] = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return one


def service(name: str) -> dict[str, dict[str, str]]:
    """A systemd unit."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys as they are written
    unit.read(DEPLOY / "systemd" / f"{name}.service")
    return {section: dict(unit[section]) for section in unit.sections()}


def commands() -> dict[str, list[str]]:
    """What each file starts: the arguments of `monque`."""
    composed = documents("compose.yaml")[0]["services"]
    units = ("monque-worker", "monque-web")
    return {
        "Dockerfile": json.loads(last("CMD")),
        **{name: each["command"] for name, each in composed.items() if "command" in each},
        **{
            each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]["args"]
            for each in manifests()
            if each["kind"] == "Deployment"
        },
        **{f"{unit}.service": shlex.split(service(unit)["Service"]["ExecStart"])[1:] for unit in units},
    }


def option(arguments: list[str], name: str) -> str:
    """The value of an option."""
    return arguments[arguments.index(name) + 1]
