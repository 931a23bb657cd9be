"""Every regular expression of the package and of the dashboard takes linear time, whatever text it meets."""

from __future__ import annotations

import ast
import itertools
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from re import _constants as codes  # the tree of a pattern has no public name
from re import _parser as parser
from typing import Any, NamedTuple

import pytest

import monque
from monque.web.errors import KeyTakenError
from monque.web.text import without_credentials

PACKAGE = Path(monque.__file__).parent
PAGES = PACKAGE.parent.parent / "ui" / "src"

MEGABYTE = 1_000_000
# Steps a character that need no second look. To report a match takes 200 of them on one machine and 600 on
# another; a quadratic pattern takes 1,000 for a text of 2,000 characters, and 500,000 for 1 MB.
MANY_STEPS = 500
# Each text is eight times as long as the one before it. The cost a character of a quadratic pattern grows as
# much, that of a linear one not at all.
MOST_GROWTH = 3
SIZES = (2_000, 16_000, 125_000, MEGABYTE)

METHODS = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}

# Values for the local names that some patterns are made of.
LOCALS = {
    "pattern": "'|'.join(REASONS)",  # embedded/supervisor.py: each of these in turn
    "before": "'/api/v1/jobs/'",  # web/route.py
    "rest": "'id}/retry'",
    "refused": "['send-email', 'send']",  # web/explain.py: escaped names
}

NOT_FOR_STORED_TEXT = {
    "_values/words.py: _SERVER": "the driver writes the topology from the addresses in the URI",
    "time.ts: /\\.?0+$/": "for a number of at most five digits, just formatted",
}


class Used(NamedTuple):
    """A regular expression in the source, and the methods it is used with."""

    name: str
    pattern: re.Pattern[str]
    methods: frozenset[str]

    def __str__(self) -> str:
        return self.name


def of_package() -> Iterator[Used]:
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if "import re\n" in source:
            yield from of_module(str(path.relative_to(PACKAGE)), ast.parse(source))


def of_module(file: str, module: ast.Module) -> Iterator[Used]:
    known = constants(module)
    names = {
        id(node.value): node.targets[0].id
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for call in ast.walk(module):
        if not (isinstance(call, ast.Call) and is_re(call.func)):
            continue
        made = ast.unparse(call.args[0])
        flags = [each.value for each in call.keywords if each.arg == "flags"]
        if call.func.attr == "compile":
            name = names.get(id(call), made)
            flags, methods = [*call.args[1:2], *flags], used_methods(module, name) or {"sub"}
        elif call.func.attr in METHODS:
            name, methods = made, {call.func.attr}
        else:
            continue
        given = [eval(ast.unparse(each), dict(known)) for each in (call.args[0], *flags)]  # noqa: S307
        yield Used(f"{file}: {name}", re.compile(*given), frozenset(methods))


def is_re(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "re"


def constants(module: ast.Module) -> dict[str, Any]:
    """The module's constants that need no import, and the local names."""
    known: dict[str, Any] = {"re": re}
    for node in module.body:
        if isinstance(node, ast.Assign):
            with suppress(Exception):  # needs something that is not known here
                exec(ast.unparse(node), known)  # noqa: S102
    for name, value in LOCALS.items():
        with suppress(NameError):
            known[name] = eval(value, dict(known))  # noqa: S307
    return known


def used_methods(module: ast.Module, name: str) -> set[str]:
    found = (node for node in ast.walk(module) if isinstance(node, ast.Attribute))
    return {each.attr for each in found if ast.unparse(each.value) == name and each.attr in METHODS}


# A literal comes where an operand may begin; a slash anywhere else divides or ends a tag.
LITERAL = re.compile(
    r"(?:[=(,:;!&|?{}\[]|=>|\breturn)\s*/(?P<source>(?![/*>])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/(?P<flags>[a-z]*)"
)


def of_pages() -> Iterator[Used]:
    for path in sorted((*PAGES.rglob("*.ts"), *PAGES.rglob("*.tsx"))):
        if "tests" in path.parts:
            continue
        for found in LITERAL.finditer(path.read_text()):
            flags = (re.IGNORECASE if "i" in found["flags"] else 0) | (
                re.DOTALL if "s" in found["flags"] else 0
            )
            name = f"{path.relative_to(PAGES)}: /{found['source']}/{found['flags']}"
            yield Used(name, re.compile(found["source"].replace("[[", r"[\["), flags), frozenset({"sub"}))


ALL = [*of_package(), *of_pages()]
MEASURED = [used for used in ALL if used.name not in NOT_FOR_STORED_TEXT]


def parts(tree: Any) -> Iterator[str]:
    """The texts that a pattern names: its runs of literal characters, and the ends of its classes."""
    run = ""
    for code, argument in tree:
        if code is codes.LITERAL:
            run += chr(argument)
            continue
        yield run
        run = ""
        if code is codes.IN:
            yield from parts(each for each in argument if each[0] is codes.LITERAL)
            yield from (chr(argument[0]) for code, argument in argument if code is codes.RANGE)
        elif code is codes.NOT_LITERAL:
            yield chr(argument)
        elif code is codes.BRANCH:
            yield from (each for branch in argument[1] for each in parts(branch))
        elif isinstance(argument, tuple) and isinstance(argument[-1], parser.SubPattern):
            yield from parts(argument[-1])
    yield run


def alphabet(pattern: re.Pattern[str]) -> list[str]:
    """Texts from which the pattern's worst cases are made."""
    named = {
        each for part in parts(parser.parse(pattern.pattern, pattern.flags)) for each in (part, part[:1])
    }
    return [*sorted(named - {""}, key=len, reverse=True)[:7], "a", "0", " "]


class Case(NamedTuple):
    """A text that is repeated, what stands before, and at the end something that no pattern accepts."""

    repeated: str
    before: str = ""
    end: str = "\0"

    def text(self, size: int) -> str:
        return (self.before + self.repeated * (size // len(self.repeated)))[:size] + self.end


def cases(pattern: re.Pattern[str]) -> Iterator[Case]:
    letters = alphabet(pattern)
    yield from (Case(*each) for each in itertools.product(letters, ("", *letters), ("\0", *letters)))
    yield from (
        Case(one + two, before) for one, two, before in itertools.product(letters, letters, ("", *letters))
    )
    yield from (Case("".join(three)) for three in itertools.product(letters, repeat=3))


def seconds(call: Callable[[str], object], text: str) -> float:
    before = time.thread_time()
    call(text)
    return time.thread_time() - before


def fewest_seconds(call: Callable[[str], object], text: str, limit: float) -> float:
    """CPU time of a call; one over the limit is measured again: a garbage collection may fall into it."""
    taken = seconds(call, text)
    return min(taken, seconds(call, text), seconds(call, text)) if taken > limit else taken


def one_step(size: int) -> float:
    """CPU time for a character that a plain pattern takes, which neither the machine nor its load change."""
    plain = re.compile("[^b]*b")
    return min(seconds(plain.match, "a" * size) for _ in range(3)) / size / 2


def calls_of(used: Used) -> list[Callable[[str], object]]:
    ways: dict[str, Callable[[str], object]] = {
        "sub": lambda text: used.pattern.sub("", text),
        "findall": lambda text: deque(used.pattern.finditer(text), maxlen=0),
    }
    return [ways.get(method) or getattr(used.pattern, method) for method in sorted(used.methods)]


def is_linear(call: Callable[[str], object], worst: list[Case]) -> bool:
    """Tell whether a character of these cases costs the same in a longer text, up to 1 MB."""
    before = math.inf
    for size in SIZES:
        step = one_step(size)
        limit = MANY_STEPS * size * step
        steps = max(fewest_seconds(call, case.text(size), limit) for case in worst) / size / step
        if steps > MANY_STEPS and steps > MOST_GROWTH * before:
            return False  # the next size would take minutes
        before = steps
    return True


@pytest.mark.parametrize("used", MEASURED, ids=str)
def test_no_text_makes_a_pattern_take_more_than_linear_time(used: Used) -> None:
    for call in calls_of(used):
        worst = sorted(cases(used.pattern), key=lambda case: seconds(call, case.text(300)))[-3:]

        assert is_linear(call, worst), worst


@pytest.mark.parametrize(
    "case",
    [
        Case("://a:", "@"),
        Case("a", "@ ://"),
        Case("@://"),
        Case("://a:b/c@"),
        Case("://", "@", "@"),
        Case("a@", "://"),
        Case(":", "://", "@"),
        Case("a:", "@://"),
        Case("://a:1", "", "@"),
        Case("1/", "://a:", "@"),
    ],
)
def test_no_text_makes_it_slow_to_find_credentials(case: Case) -> None:
    assert is_linear(without_credentials, [case])


def test_no_unique_key_makes_it_slow_to_leave_it_out() -> None:
    def discreet(text: str) -> object:
        return KeyTakenError("-", v1_text=text).discreet

    assert is_linear(discreet, [Case("unique key "), Case(" is held", "unique key ")])


def test_the_measure_tells_a_quadratic_pattern() -> None:
    quadratic = re.compile(r"\(note: [^)]*\)")

    assert not is_linear(lambda text: quadratic.sub("", text), [Case("(note: ")])


def test_the_measure_takes_a_dear_pattern_for_linear() -> None:
    """Whatever a match costs on this machine."""

    def dear(text: str) -> object:
        # No result is kept: memory for a million of them costs more each than for two thousand.
        return deque((match.groups() * 40 for match in re.finditer("(a)", text)), maxlen=0)

    assert is_linear(dear, [Case("a")])


def test_the_patterns_are_those_of_the_source() -> None:
    """The search finds what a plain count of the source finds, and every exception still exists."""
    written = [
        len(
            re.findall(
                r"\bre\.(?:compile|(?:full)?match|search|subn?|split|findall|finditer)\(", path.read_text()
            )
        )
        for path in PACKAGE.rglob("*.py")
    ]
    other_ways = [
        path.name
        for path in PACKAGE.rglob("*.py")
        if re.search(r"from re import (?!Pattern\n)|import re as|\bregex\b.*import", path.read_text())
    ]
    scripts = [path.name for path in PAGES.rglob("*.ts*") if "RegExp(" in path.read_text()]

    assert sum(written) == len(list(of_package()))
    assert (other_ways, scripts) == ([], [])
    assert len(list(of_pages())) > 20
    assert NOT_FOR_STORED_TEXT.keys() <= {used.name for used in ALL}
