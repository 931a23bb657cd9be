"""Callers of a surface, with rights of their own."""

from __future__ import annotations

from monque.web.access.permissions import Action, Actor, Caller


def caller(*may: Action, name: str = "ada") -> Caller:
    """Who may do this; without an argument, everything."""
    return Caller(actor=Actor(name=name, may=may or None), address="127.0.0.1", request_id="r-1")
