"""The headers of every answer: what browsers may do with it, and which pages may read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# What a page of ours may load and run; `{ancestors}` is who may show it in a frame.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'self'; form-action 'none'; frame-ancestors {ancestors}; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
# The page needs none of these. The clipboard is not among them: it copies.
_FEATURES = ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "usb")

_CORS_METHODS = "GET, HEAD, POST, PUT, DELETE"
_CORS_HEADERS = "Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID"
_CORS_EXPOSED = "ETag, Retry-After, X-Request-ID"
# Seconds for which a browser remembers the answer to a preflight. Half would double these requests; a change
# of allowed_origins should not take twice as long to be seen.
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
