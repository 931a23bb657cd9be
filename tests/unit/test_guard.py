"""Hosts, origins, prefixes and wrong secrets of requests, as values."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers

from monque import ConfigurationError
from monque.web.access.admission import Throttle, check_root_path, path_below, prefix_of
from monque.web.access.guard import (
    check_hosts,
    check_origins,
    host_refusal,
    is_loopback,
    judge_origin,
    loopback_refusal,
    same_host,
    security_headers,
)

LISTED = "https://ops.example.org"


def headers(*pairs: str) -> Headers:
    """Headers from texts such as `host: localhost`."""
    split = [pair.partition(": ") for pair in pairs]
    return Headers(raw=[(name.lower().encode(), value.encode("latin-1")) for name, _, value in split])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::1%lo", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("0.0.0.0", False),  # noqa: S104 - nothing is bound
        ("localhost", False),
        ("", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize(
    ("client", "given", "reason"),
    [
        ("127.0.0.1", ["host: localhost:8787"], None),
        ("127.0.0.1", ["host: LOCALHOST"], None),
        ("::1", ["host: [::1]:80"], None),
        ("127.0.0.1", ["host: 127.0.0.1"], None),
        ("10.0.0.1", ["host: localhost"], "10.0.0.1"),
        (None, ["host: localhost"], "Unix socket"),
        ("127.0.0.1", ["host: evil.example"], "another host"),
        ("127.0.0.1", ["host: localhost.evil.example"], "another host"),
        ("127.0.0.1", ["host: localhost:80@evil.example"], "another host"),
        ("127.0.0.1", ["host: localhost", "host: evil.example"], "another host"),
        ("127.0.0.1", ["host: "], "another host"),
        ("127.0.0.1", [], "another host"),
        ("127.0.0.1", ["host: localhost", "forwarded: for=1.2.3.4"], "forwarded"),
        ("127.0.0.1", ["host: localhost", "x-forwarded-for: 1.2.3.4"], "x-forwarded-for"),
        ("127.0.0.1", ["host: localhost", "X-Forwarded-Prefix: /ops"], "x-forwarded-prefix"),
        ("127.0.0.1", ["host: localhost", "x-real-ip: 127.0.0.1"], "x-real-ip"),
        ("127.0.0.1", ["host: localhost", "via: 1.1 proxy"], "via"),
    ],
)
def test_without_auth_only_requests_of_this_machine_pass(
    client: str | None, given: list[str], reason: str | None
) -> None:
    refusal = loopback_refusal(headers(*given), client)
    if reason is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert reason in refusal
        assert "auth=" in refusal


@pytest.mark.parametrize(
    ("host", "allowed", "passes"),
    [
        ("ops.example.org", [], True),
        ("ops.example.org", ["ops.example.org"], True),
        ("OPS.example.org:8443", ["ops.example.org"], True),
        ("ops.example.org:8443", ["ops.example.org:8443"], True),
        ("ops.example.org:1", ["ops.example.org:8443"], False),
        ("ops.example.org", ["ops.example.org:8443"], False),
        ("rebound.example", ["ops.example.org"], False),
        ("ops.example.org.rebound.example", ["ops.example.org"], False),
    ],
)
def test_with_allowed_hosts_no_other_host_passes(host: str, allowed: list[str], passes: bool) -> None:
    assert (host_refusal(headers(f"host: {host}"), check_hosts(allowed)) is None) is passes


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://localhost:8787", "localhost:8787", True),
        ("https://shop.example", "shop.example", True),
        ("https://shop.example", "shop.example:443", True),
        ("http://shop.example", "shop.example:80", True),
        ("HTTPS://SHOP.example", "shop.EXAMPLE", True),
        ("http://[::1]:8787", "[::1]:8787", True),
        ("http://shop.example", "shop.example:443", False),
        ("http://shop.example:8080", "shop.example", False),
        ("http://evil.example", "shop.example", False),
        ("http://shop.example.evil.example", "shop.example", False),
        ("null", "null", False),
        ("file://shop.example", "shop.example", False),
        ("https://shop.example/", "shop.example", False),
        ("https://ada@shop.example", "shop.example", False),
        ("", "shop.example", False),
    ],
)
def test_an_origin_has_the_host_and_port_of_the_request_whatever_its_scheme(
    origin: str, host: str, same: bool
) -> None:
    assert same_host(origin, host) is same


# Method, whether it is for the API, the headers beside Host, and whether it passes.
ORIGINS: list[tuple[str, bool, list[str], bool]] = [
    # No browser: neither header.
    ("GET", True, [], True),
    ("POST", True, [], True),
    # Browsers that say where a request came from.
    ("GET", True, ["sec-fetch-site: same-origin"], True),
    ("GET", True, ["sec-fetch-site: none"], True),
    ("HEAD", True, ["sec-fetch-site: none"], True),
    ("GET", True, ["sec-fetch-site: same-site"], False),
    ("GET", True, ["sec-fetch-site: cross-site"], False),
    ("GET", True, ["sec-fetch-site: "], False),
    ("GET", True, ["sec-fetch-site: same-origin", "sec-fetch-site: cross-site"], False),
    ("POST", True, ["sec-fetch-site: same-origin"], True),
    ("POST", True, ["sec-fetch-site: none"], False),
    ("POST", True, ["sec-fetch-site: same-site"], False),
    ("POST", True, ["sec-fetch-site: cross-site"], False),
    ("DELETE", True, ["sec-fetch-site: cross-site"], False),
    ("PUT", True, ["sec-fetch-site: cross-site", "origin: null"], False),
    # A proxy may change Host: what the browser says counts.
    ("POST", True, ["sec-fetch-site: same-origin", "origin: https://shop.example"], True),
    # Browsers that only send an origin.
    ("POST", True, ["origin: http://localhost"], True),
    ("POST", True, ["origin: https://localhost"], True),
    ("POST", True, ["origin: http://evil.example"], False),
    ("POST", True, ["origin: null"], False),
    ("POST", True, ["origin: http://localhost", "origin: http://evil.example"], False),
    ("GET", True, ["origin: http://evil.example"], False),
    ("GET", True, ["origin: null"], False),
    # Pages may be opened from anywhere; they do nothing by themselves.
    ("GET", False, ["sec-fetch-site: cross-site"], True),
    ("GET", False, ["origin: http://evil.example"], True),
    ("POST", False, ["sec-fetch-site: cross-site"], False),
    ("POST", False, ["origin: null"], False),
    # Listed origins.
    ("GET", True, [f"origin: {LISTED}", "sec-fetch-site: cross-site"], True),
    ("POST", True, [f"origin: {LISTED}", "sec-fetch-site: cross-site"], True),
    ("POST", True, [f"origin: {LISTED}"], True),
    ("POST", True, [f"origin: {LISTED}:8443", "sec-fetch-site: cross-site"], False),
    ("POST", True, ["origin: http://ops.example.org", "sec-fetch-site: cross-site"], False),
    ("OPTIONS", True, ["origin: http://evil.example", "access-control-request-method: POST"], False),
]


@pytest.mark.parametrize(("method", "is_api", "given", "passes"), ORIGINS)
def test_pages_of_other_origins_can_send_nothing(
    method: str, is_api: bool, given: list[str], passes: bool
) -> None:
    verdict = judge_origin(method, headers("host: localhost", *given), is_api=is_api, allowed=[LISTED])
    assert (verdict.refusal is None) is passes
    assert verdict.origin == (LISTED if f"origin: {LISTED}" in given else None)
    if not passes:
        assert "allowed_origins" in str(verdict.refusal)


def test_a_refusal_repeats_no_control_characters() -> None:
    verdict = judge_origin("POST", headers("origin: ht\rtp\x1b[31m"), is_api=True, allowed=[])
    assert verdict.refusal is not None
    assert verdict.refusal.isprintable()


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (check_hosts, "ops.example.org"),
        (check_hosts, ["https://ops.example.org"]),
        (check_hosts, ["ops.example.org/monque"]),
        (check_hosts, [7]),
        (lambda given: check_origins("allowed_origins", given), ["*"]),
        (lambda given: check_origins("allowed_origins", given), ["ops.example.org"]),
        (lambda given: check_origins("frame_ancestors", given), ["https://ops.example.org/"]),
        (lambda given: check_origins("frame_ancestors", given), ["https://a.example; script-src *"]),
    ],
)
def test_wrong_hosts_and_origins_are_refused_by_name(check: Any, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"allowed_hosts|allowed_origins|frame_ancestors"):
        check(wrong)


def test_frame_ancestors_replace_only_their_part_of_the_policy() -> None:
    plain = security_headers([])["content-security-policy"]
    framed = security_headers([LISTED, "https://b.example"])["content-security-policy"]
    assert "frame-ancestors 'none';" in plain
    assert framed == plain.replace("frame-ancestors 'none'", f"frame-ancestors {LISTED} https://b.example")


@pytest.mark.parametrize("path", ["", "/monque", "/a/b.c/d_e~f-1"])
def test_a_prefix_that_browsers_leave_as_it_is_can_be_given(path: str) -> None:
    assert check_root_path(path) == path
    assert prefix_of({"root_path": "/other"}, path) == path


@pytest.mark.parametrize(
    "path",
    ["/", "monque", "/monque/", "//evil.example", "/a//b", "/a b", '/"><script>', "/a/../b", "/ä", "/a\n"],
)
def test_any_other_prefix_is_refused_by_name(path: str) -> None:
    with pytest.raises(ConfigurationError, match="root_path"):
        check_root_path(path)


@pytest.mark.parametrize(
    ("path", "in_scope", "given", "below"),
    [
        ("/api/v1/health", "", None, "/api/v1/health"),
        ("/ops/api/v1/health", "/ops", None, "/api/v1/health"),
        ("/a/b/api/v1/health", "/a/b", None, "/api/v1/health"),
        ("/api/v1/health", "/ops", None, "/api/v1/health"),
        ("/ops/api/v1/health", "", "/ops", "/api/v1/health"),
        ("/api/v1/health", "", "/ops", "/api/v1/health"),
        ("/opsapi/v1/health", "/ops", "/ops", "/opsapi/v1/health"),
        ("/api/v1/health", "", "/api", "/api/v1/health"),
        ("/ops", "/ops", None, ""),
        ("/ops/", "/ops", None, "/"),
    ],
)
def test_the_path_is_the_same_whether_the_prefix_was_taken_away_or_left(
    path: str, in_scope: str, given: str | None, below: str
) -> None:
    assert path_below({"path": path, "root_path": in_scope}, given) == below


class Hand:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_after_ten_wrong_secrets_an_address_waits_until_its_minute_is_over() -> None:
    clock = Hand()
    throttle = Throttle(clock)
    for _ in range(10):
        assert throttle.wait("10.0.0.1") == 0
        throttle.record("10.0.0.1")
        clock.now += 1

    assert throttle.wait("10.0.0.1") == 50
    assert throttle.wait("10.0.0.2") == 0
    clock.now = 60.0
    assert throttle.wait("10.0.0.1") == 0
    throttle.record("10.0.0.1")
    assert throttle.wait("10.0.0.1") == 0


def test_all_addresses_of_one_ipv6_network_count_as_one() -> None:
    throttle = Throttle(Hand())
    for last in range(10):
        throttle.record(f"2001:db8::{last + 1:x}")
    assert throttle.wait("2001:db8::ffff:1") > 0
    assert throttle.wait("2001:db8:0:1::1") == 0


def test_a_thousand_addresses_are_remembered() -> None:
    throttle = Throttle(Hand())
    for number in range(2_000):
        throttle.record(f"10.0.{number // 250}.{number % 250}")
    assert len(throttle._wrong) == 1_000
