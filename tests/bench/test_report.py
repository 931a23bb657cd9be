"""What was measured is shown with its pairs and spread."""

from __future__ import annotations

import json
from pathlib import Path

from bench.pairing import Measured, Pair
from bench.report import Line, table, write_json
from bench.scenario import Scenario, Target, rounds_of
from bench.stage import Sample


async def measure(*_: object) -> Sample:
    raise NotImplementedError


def line() -> Line:
    pairs = [
        Pair(
            this=Sample(value=value, unit="jobs/s", client=40, server=100),
            beside=Sample(value=1_000, unit="jobs/s", client=10, server=100),
            spins=((1.0, 1.0), (1.0, speed)),
        )
        for value, speed in ((800, 1.0), (900, 1.0), (950, 1.4))
    ]
    scenario = Scenario(
        name="drain",
        title="drain, default options",
        measure=rounds_of(measure, count=1),
        beside="plain batches",
        targets=(Target(at_least=0.95), Target(of="server", at_most=1.15)),
    )
    return Line(scenario=scenario, measured=Measured(pairs=pairs, repeated=1))


def test_the_table_shows_medians_quartiles_pairs_and_cpu() -> None:
    headings, row, details = table([line()], sides=("Monque", "beside it")).splitlines()
    assert headings.split("  ")[0] == "what"
    assert [cell.strip() for cell in row.split("  ") if cell] == [
        "drain, default options",
        "900.0 (850.0 to 925.0) jobs/s",
        "1,000 (1,000 to 1,000)",
        "0.900 (0.850 to 0.925)",
        "40.0 beside 10.0",
        "100.0 beside 100.0",
        "≥ 0.95 NOT MET, server ≤ 1.15 ok",
    ]
    assert details.strip().split("; ") == [
        "beside plain batches",
        "pairs 0.800 0.900 0.950",
        "client CPU x 4.000 (4.000 to 4.000)",
        "server CPU x 1.000 (1.000 to 1.000)",
        "1 repeated, 1 unsteady of 3",
    ]


def test_the_json_holds_every_pair_the_spreads_and_what_was_left_out(tmp_path: Path) -> None:
    file = tmp_path / "results" / "latest.json"
    write_json(file, [line()], left_out={"newer": "no newer here"}, mongodb="6.0")
    content = json.loads(file.read_text())
    (drain,) = content["scenarios"]
    assert content["left_out"] == {"newer": "no newer here"}
    assert [pair["ratio"] for pair in drain["pairs"]] == [0.8, 0.9, 0.95]
    assert [pair["steady"] for pair in drain["pairs"]] == [True, True, False]
    assert drain["ratio"]["value"]["median"] == 0.9
    assert drain["ratio"]["client"] == {"median": 4.0, "low": 4.0, "high": 4.0}
    assert [target["met"] for target in drain["targets"]] == [False, True]
