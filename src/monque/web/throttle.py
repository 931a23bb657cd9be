"""Wrong secrets are counted by address, so that nobody can try many."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil
from time import monotonic

# Wrong secrets a minute from one address. Half as many would lock out somebody who mistypes; twice as many
# would still be far too few to guess a password.
_MOST = 10
_SECONDS = 60.0
# Addresses that are remembered, the newest ones; some 200 kB.
_ADDRESSES = 1_000


class Throttle:
    """How many wrong secrets came from which address within the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # When the minute of an address began, and how many wrong ones there were since; the oldest first.
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait(self, address: str | None) -> int:
        """For how many seconds this address must wait; 0 if it need not."""
        began, count = self._wrong.get(_key(address), (0.0, 0))
        left = began + _SECONDS - self._clock()
        return ceil(left) if count >= _MOST and left > 0 else 0

    def record(self, address: str | None) -> None:
        """A wrong secret came from this address."""
        key, now = _key(address), self._clock()
        began, count = self._wrong.get(key, (now, 0))
        if now - began >= _SECONDS:
            self._wrong.pop(key)
            began, count = now, 0
        self._wrong[key] = (began, count + 1)
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)


def _key(address: str | None) -> str:
    """One IPv6 host has a whole network of addresses: all of it counts as one."""
    try:
        parsed = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Network((int(parsed), 64), strict=False).network_address)
    return str(parsed)
