"""Checks of host and origin before identity, as pure functions.

Browsers send requests for whoever wrote the page that is open. What a page of another site can make them
send is refused here, by what browsers say of themselves: `Sec-Fetch-Site`, else `Origin`. Clients that are no
browsers send neither header, and pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from starlette.datastructures import Headers

from monque import ConfigurationError
from monque.web.text import shown

SAFE_METHODS = frozenset({"GET", "HEAD"})
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")

_ORIGIN = re.compile(r"(https?)://([^\s/?#@:\[\]]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?", re.IGNORECASE)
_HOST = re.compile(r"([^\s/?#@:\[\]]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?", re.IGNORECASE)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
# Headers that proxies and content networks add to a request.
_FORWARDED = re.compile(
    r"forwarded|x-forwarded-.*|x-real-ip|via|"
    r"cf-connecting-ip|true-client-ip|x-client-ip|fastly-client-ip|x-envoy-external-address"
)

_SET_AUTH = (
    "This dashboard answers only to its own machine, because it was made without auth. To reach it from "
    "elsewhere or through a proxy, say who may: dashboard(monque, auth=BasicAuth({'ada': '…'}))."
)


def loopback_refusal(headers: Headers, client: str | None) -> str | None:
    """Return the reason why a request does not come from this machine, as a sentence; None if it does.

    A proxy on this machine connects from loopback too. What it adds to the headers gives it away, but a plain
    one adds nothing.
    """
    if client is None or not is_loopback(client):
        return f"{_SET_AUTH} The request came from {client or 'a Unix socket'}."
    if not _is_among(headers, LOOPBACK_HOSTS):
        return f"{_SET_AUTH} The request was sent to another host than localhost, 127.0.0.1 or [::1]."
    if forwarded := sorted({name for name in headers if _FORWARDED.fullmatch(name)}):
        return f"{_SET_AUTH} The request was forwarded: it has the header {forwarded[0]}."
    return None


def is_loopback(address: str) -> bool:
    """Return whether an address is this machine's own; an IPv4 address may be written as IPv6."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def host_refusal(headers: Headers, allowed: Sequence[str]) -> str | None:
    """Return the reason why the requested host is not an allowed one; None if it is, or all are."""
    if not allowed or _is_among(headers, allowed):
        return None
    return "The Host header names none of the allowed_hosts of this dashboard."


def _is_among(headers: Headers, allowed: Sequence[str]) -> bool:
    given = headers.getlist("host")
    return len(given) == 1 and _names_one_of(given[0], allowed)


def _names_one_of(given: str, allowed: Sequence[str]) -> bool:
    """Return whether a host is allowed: with its port, or without one if any port will do."""
    parsed = _HOST.fullmatch(given)
    return parsed is not None and any(each.lower() in (given.lower(), parsed[1].lower()) for each in allowed)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the origin of a request.

    Attributes:
        refusal: Why it is refused, as a sentence; None if it is not.
        origin: The listed origin that it came from, which gets headers for CORS.
    """

    refusal: str | None = None
    origin: str | None = None


def judge_origin(
    method: str, headers: Headers, *, is_api: bool, allowed: Sequence[str], is_local: bool = False
) -> Verdict:
    """Tell whether the page that sent a request, if a page did, may do so.

    *is_local*: only pages of this machine may write. Through a plain proxy, a page of any host is of the same
    origin in the eyes of its browser.
    """
    origins = headers.getlist("origin")
    if len(origins) == 1 and origins[0].lower() in allowed:
        return Verdict(origin=origins[0])
    if not is_api and method in SAFE_METHODS:
        return Verdict()
    if is_local and method not in SAFE_METHODS and not all(map(_is_local, origins)):
        return Verdict(_local_refusal(origins))
    if sites := headers.getlist("sec-fetch-site"):
        return Verdict(_site_refusal(method, sites))
    return Verdict(_origin_refusal(origins, headers.getlist("host")))


def _is_local(origin: str) -> bool:
    parsed = _ORIGIN.fullmatch(origin)
    return parsed is not None and parsed[2].lower() in LOOPBACK_HOSTS


def _local_refusal(origins: Sequence[str]) -> str:
    return (
        f"The request came from a page of {shown(', '.join(origins))}, and without auth only pages of this "
        "machine may change anything. To allow that origin, list it in allowed_origins."
    )


def _site_refusal(method: str, sites: Sequence[str]) -> str | None:
    # `none` is what a user typed into the address bar, which makes no request but a GET.
    fine = {"same-origin", "none"} if method in SAFE_METHODS else {"same-origin"}
    if fine.issuperset(sites):
        return None
    return (
        f"The request came from a page of another origin (Sec-Fetch-Site: {shown(', '.join(sites))}). "
        "To allow that origin, list it in allowed_origins."
    )


def _origin_refusal(origins: Sequence[str], hosts: Sequence[str]) -> str | None:
    if not origins or (len(origins) == len(hosts) == 1 and same_host(origins[0], hosts[0])):
        return None
    return (
        f"The request came from a page of {shown(', '.join(origins))}, but was sent to "
        f"{shown(', '.join(hosts))}. "
        "To allow that origin, list it in allowed_origins; a proxy must pass the Host header on."
    )


def same_host(origin: str, host: str) -> bool:
    """Return whether an origin has the host and port of `Host`. The scheme may differ: proxies end TLS."""
    page, asked = _ORIGIN.fullmatch(origin), _HOST.fullmatch(host)
    if page is None or asked is None or page[2].lower() != asked[1].lower():
        return False
    default = _DEFAULT_PORTS[page[1].lower()]
    return (page[3] or default) == (asked[2] or default)


def port_of(host: str, scheme: str) -> str:
    """The port that a Host header names, or that its scheme means."""
    parsed = _HOST.fullmatch(host)
    return (parsed and parsed[2]) or _DEFAULT_PORTS.get(scheme, "")


def check_origins(name: str, origins: Sequence[str]) -> tuple[str, ...]:
    """Return origins in lower case.

    Raises:
        ConfigurationError: One of them is no origin.
    """
    for origin in _sequence(name, origins):
        if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"{name} must be origins such as 'https://ops.example.org', without a path, got {origin!r}"
            )
    return tuple(origin.lower() for origin in origins)


def check_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return hosts in lower case.

    Raises:
        ConfigurationError: One of them is no host.
    """
    for host in _sequence("allowed_hosts", hosts):
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            raise ConfigurationError(
                f"allowed_hosts must be hosts such as 'ops.example.org' or '[::1]:8787', got {host!r}"
            )
    return tuple(host.lower() for host in hosts)


def _sequence(name: str, given: Sequence[str]) -> Sequence[str]:
    # A text is a sequence of its characters.
    if isinstance(given, str):
        raise ConfigurationError(f"{name} must be a list, got the text {given!r}")
    return given


# The sources that a page of ours may load and run; `{ancestors}` may show it in a frame.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors {ancestors}; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
# The page needs none of these. The clipboard is not among them: it copies.
_FEATURES = ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "usb")

_CORS_METHODS = "GET, HEAD, POST, PUT, DELETE"
_CORS_HEADERS = "Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID"
_CORS_EXPOSED = "ETag, Retry-After, X-Request-ID"
# Seconds for which a browser remembers the answer to a preflight, and a change of allowed_origins takes to be
# seen.
_CORS_AGE = "600"


def security_headers(frame_ancestors: Sequence[str]) -> dict[str, str]:
    """Headers that every answer has, refused requests included."""
    return {
        "content-security-policy": _POLICY.format(ancestors=" ".join(frame_ancestors) or "'none'"),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": ", ".join(f"{feature}=()" for feature in _FEATURES),
    }


def cors_headers(origin: str) -> dict[str, str]:
    """Headers with which a page of a listed origin may read the answer."""
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": _CORS_EXPOSED,
    }


def preflight_headers(origin: str) -> Mapping[str, str]:
    """Headers that answer the question whether a page of a listed origin may send a request."""
    return {
        **cors_headers(origin),
        "access-control-allow-methods": _CORS_METHODS,
        "access-control-allow-headers": _CORS_HEADERS,
        "access-control-max-age": _CORS_AGE,
    }
