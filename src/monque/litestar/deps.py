"""The Monque of an application, as the annotation of a parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from monque import Monque

if TYPE_CHECKING:
    MonqueDep: TypeAlias = Monque
else:
    try:
        from litestar.di import NamedDependency
    except (
        ImportError
    ):  # an older Litestar, which takes any parameter for a dependency that has the name of one
        MonqueDep = Monque
    else:
        MonqueDep = NamedDependency[Monque]
"""The annotation of a parameter `monque` that takes the Monque: short for `NamedDependency[Monque]`."""
