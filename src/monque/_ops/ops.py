"""The modules for operators, each loaded with its first use, as in `ops.bulk.delete_many(...)`.

So a program that stores and runs jobs loads only what its instance writes: the register and the trends.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monque._ops import actions as actions
    from monque._ops import audit as audit
    from monque._ops import bulk as bulk
    from monque._ops import counts as counts
    from monque._ops import explain as explain
    from monque._ops import facts as facts
    from monque._ops import filters as filters
    from monque._ops import lists as lists
    from monque._ops import operations as operations
    from monque._ops import register as register
    from monque._ops import schedules as schedules
    from monque._ops import surroundings as surroundings
    from monque._ops import trends as trends
else:

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(name)
        return globals().setdefault(name, import_module(f"monque._ops.{name}"))
