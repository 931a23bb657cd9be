"""Why a job does not run, as `monque jobs why` prints it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from monque import Explanation
from monque.cli.output import clean


def explanation_fields(job_id: str, why: Explanation) -> dict[str, Any]:
    """An explanation for `--json`."""
    return {
        "id": job_id,
        "code": why.code,
        "sentence": why.sentence,
        "since": why.since,
        "certainty": why.certainty,
        "evidence": [asdict(each) for each in why.evidence],
        "remedies": [asdict(each) for each in why.remedies],
    }


def print_explanation(why: Explanation) -> None:
    """The sentence, what it rests on, and what would help."""
    click.echo(clean(why.sentence) + ("" if why.certainty == "certain" else " (likely)"))
    width = max((len(each.label) for each in why.evidence), default=0)
    for each in why.evidence:
        click.echo(f"  {each.label:<{width}}  {clean(each.value)}")
    for remedy in why.remedies:
        if remedy.command is not None:
            click.echo(f"  → {remedy.label}: {clean(remedy.command)}")
