"""The options of a Monque from Django's settings: `TASKS[alias]["OPTIONS"]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from monque import ConfigurationError, Options
from monque._hosting.apps import unknown_option

DEFAULT_ALIAS = "default"
BACKEND = "monque.django.MonqueBackend"

# Options that are no field of `Options`.
_OWN = ("uri", "database", "max_attempts")

# How many jobs a worker process runs at once, unless the settings say otherwise. Each thread may hold a
# database connection: with twice as many, four processes would use up half of what PostgreSQL allows; with
# half, tasks that wait for mail servers would wait for each other.
_JOBS_AT_ONCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings of one Monque."""

    uri: str | None = field(default=None, repr=False)  # it may hold a password
    database: str | None = None
    """The alias of a database of django-mongodb-backend, in place of a URI."""
    max_attempts: int = 1
    """The number of attempts of a task. Django's own backends try it once."""
    options: Options = field(default_factory=lambda: Options(instance_concurrency=_JOBS_AT_ONCE))


def configuration_of(alias: str = DEFAULT_ALIAS) -> Configuration:
    """Return the configuration in `TASKS[alias]`.

    Raises:
        ConfigurationError: There is no such alias, or an option is wrong.
    """
    aliases: Mapping[str, Any] = getattr(settings, "TASKS", None) or {}
    if alias not in aliases:
        known = ", ".join(map(repr, aliases)) or "none"
        raise ConfigurationError(
            f"the setting TASKS has no alias {alias!r} (it has {known}); say where the jobs are: TASKS = "
            f'{{"{alias}": {{"BACKEND": "{BACKEND}", "OPTIONS": {{"uri": "mongodb://localhost:27017/shop"}}}}}}'
        )
    return read(alias, aliases[alias].get("OPTIONS", {}))


def read(alias: str, given: Mapping[str, Any]) -> Configuration:
    """The options of an alias, checked.

    Raises:
        ConfigurationError: One is wrong; the message names it.
    """
    if wrong := problems(alias, given):
        raise ConfigurationError(wrong[0])
    own = {name: given[name] for name in _OWN if name in given}
    others = {name: value for name, value in given.items() if name not in _OWN}
    return Configuration(**own, options=Options(**{"instance_concurrency": _JOBS_AT_ONCE, **others}))


def problems(alias: str, given: object) -> list[str]:
    """Return the errors in the options of an alias, a sentence each."""
    place = f'TASKS["{alias}"]["OPTIONS"]'
    if not isinstance(given, Mapping):
        return [f"{place} must be a dict, got {given!r}"]
    found = [f"{place}: {problem}" for name in given if (problem := _problem(name, given[name]))]
    if given.get("uri") is not None and given.get("database") is not None:
        found.append(f"{place} has a uri and a database, which both say where the jobs are; give one")
    if not found:
        try:
            Options(**{name: value for name, value in given.items() if name not in _OWN})
        except ConfigurationError as error:  # two options that contradict each other
            found.append(f"{place}: {error}")
    return found


def _problem(name: object, value: object) -> str | None:
    match name:
        case "uri":
            # The value stays unsaid: it may hold a password.
            is_uri = value is None or (isinstance(value, str) and value.startswith("mongodb"))
            return None if is_uri else "uri must be text such as 'mongodb://localhost:27017/shop'"
        case "database":
            return _database_problem(value)
        case "max_attempts":
            return _option_problem("max_retries", value, named="max_attempts")
    return unknown_option(name, _OWN) or _option_problem(str(name), value, named=str(name))


def _option_problem(name: str, value: object, *, named: str) -> str | None:
    if name.startswith("heartbeat_"):
        return None  # the two are checked together
    try:
        Options(**{name: value})  # type: ignore[arg-type]  # it is what is checked
    except ConfigurationError as error:
        return str(error).replace(name, named)
    return None


def _database_problem(alias: object) -> str | None:
    databases = settings.DATABASES
    if alias is None:
        return None
    if alias not in databases:
        return f"database must be an alias of DATABASES ({', '.join(databases)}), got {alias!r}"
    engine = databases[alias].get("ENGINE", "")
    if engine != "django_mongodb_backend":
        return (
            f"the database {alias!r} must be one of django-mongodb-backend, and is of {engine!r}; give a uri"
        )
    return None
