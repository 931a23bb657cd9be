"""Why a job does not run."""

from __future__ import annotations

from typing import Literal

from monque.management.ops.base import Answer, Dto, Moment


class OpsEvidence(Dto):
    """A fact that the reason rests on."""

    label: str
    value: str
    href: str | None = None
    at: Moment | None = None


class OpsRemedy(Dto):
    """What helps: an action of this surface, a command, or a place to go."""

    label: str
    action: str | None = None
    command: str | None = None
    href: str | None = None


class OpsExplanation(Dto):
    """The first reason that fits."""

    code: str
    sentence: str
    since: Moment | None = None
    certainty: Literal["certain", "likely"]
    evidence: list[OpsEvidence]
    remedies: list[OpsRemedy]


class OpsExplanationAnswer(OpsExplanation, Answer):
    """Why a job does not run."""
