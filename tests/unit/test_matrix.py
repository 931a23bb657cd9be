"""The compatibility matrix as values: its rows, and what each of them installs."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tools.matrix import (
    ABOVE_THE_FLOORS,
    BEGIN,
    END,
    PAGE,
    PYTHONS,
    ROOT,
    SHOWN,
    SLOW,
    Result,
    Row,
    counted,
    floors,
    left_out,
    mongods,
    requirements,
    rows,
    table,
    write,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOWEST = Row(python="3.11", versions="lowest")


def test_the_rows_are_every_python_the_lowest_versions_and_every_server() -> None:
    assert [row.name for row in rows(["/opt/mongod-8"])] == [
        *("3.11-lowest", "3.11-newest", "3.12-newest", "3.13-newest", "3.14-newest"),
        "3.11-newest-/opt/mongod-8",
    ]


def test_the_pythons_are_those_that_the_package_names() -> None:
    named = [each.rpartition(" :: ")[2] for each in PROJECT["classifiers"] if " :: 3." in each]

    assert list(PYTHONS) == named
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_every_requirement_has_a_floor_and_the_lowest_row_installs_it() -> None:
    wanted = requirements(LOWEST)

    assert set(SHOWN) <= set(floors("3.11"))
    for name, version in floors("3.11").items():
        assert f"{name}=={version}" in wanted
        assert any(f"{name}>={version}" in each or f"{name}=={version}" in each for each in listed())


def listed() -> list[str]:
    extras = PROJECT["optional-dependencies"].values()
    return [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]


def test_the_newest_row_installs_what_the_package_allows() -> None:
    assert set(listed()) <= set(requirements(Row(python="3.13", versions="newest")))


def test_markers_are_followed() -> None:
    assert "django-tasks" in floors("3.11")
    assert "django-tasks" not in floors("3.12")
    assert not {"tzdata", "fiftyone-db"} & set(floors("3.11"))


def test_a_row_is_chosen_by_a_part_of_its_name() -> None:
    assert [row.name for row in rows() if row.is_meant(["3.12", "lowest"])] == ["3.11-lowest", "3.12-newest"]
    assert all(row.is_meant([]) for row in rows())


@pytest.mark.parametrize("listed", ["/a/mongod,/b/mongod", "/a/mongod:/b/mongod", " /a/mongod\n/b/mongod "])
def test_servers_are_listed_with_any_of_the_usual_signs_between_them(listed: str) -> None:
    assert mongods(listed) == ["/a/mongod", "/b/mongod"]


def test_slow_tests_are_left_out_unless_they_are_chosen() -> None:
    assert left_out("newest", []) == list(SLOW)
    assert "tests/chaos" not in left_out("newest", ["tests/chaos/test_run.py"])
    assert set(left_out("lowest", [])) == {
        *SLOW,
        *(path for paths in ABOVE_THE_FLOORS.values() for path in paths),
    }


def test_what_is_left_out_is_there() -> None:
    for path in left_out("lowest", []):
        assert (ROOT / path).exists(), path


def test_the_table_shows_versions_and_what_came_of_the_tests() -> None:
    versions = {"python": "3.11.7", **dict.fromkeys(SHOWN, "1.0")}
    passed = Result(row=LOWEST, verdict="passed", counts="7 passed", versions=versions, server="6.0.5")
    missing = Result(row=Row(python="3.14", versions="newest"))

    *_, first, second = table([passed, missing]).splitlines()
    assert first == "| 3.11.7 | lowest | 6.0.5 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | passed: 7 passed |"
    assert second.endswith("| – | **not here** |")


def test_tests_are_counted_from_the_report_of_pytest() -> None:
    head = '<?xml version="1.0"?><testsuites name="pytest tests"><testsuite name="pytest"'

    assert (
        counted(f'{head} errors="0" failures="1" skipped="3" tests="24">') == "1 failed, 20 passed, 3 skipped"
    )
    assert counted(f'{head} errors="0" failures="0" skipped="0" tests="7">') == "7 passed"


def test_the_table_goes_into_the_page_with_its_date(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nAfter\n")
    write(page, "| new |", "tests/unit", datetime(2030, 1, 2, tzinfo=UTC))

    assert page.read_text() == (
        f"# Before\n\n{BEGIN}\nSeen on 2030-01-02, `tests/unit`:\n\n| new |\n{END}\n\nAfter\n"
    )
    assert BEGIN in PAGE.read_text()
    assert END in PAGE.read_text()
