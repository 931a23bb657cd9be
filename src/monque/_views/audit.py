"""The view of an audit entry."""

from __future__ import annotations

from typing import Annotated, Any

from monque._views.base import Count, Id, Secret, Text, Time, View


class AuditView(View):
    """One action of an operator. What others wrote into it is shown to those who may see it."""

    id: Id
    at: Time
    actor: Text
    via: Text
    action: Text
    outcome: Text
    job_id: Id | None = None
    name: Text | None = None
    filter: Annotated[dict[str, Any] | None, Secret] = None
    count: Count | None = None
    errors: Count | None = None
    before: Annotated[dict[str, Any] | None, Secret] = None
    after: Annotated[dict[str, Any] | None, Secret] = None
    note: Annotated[Text | None, Secret] = None
    address: Text | None = None
    request_id: Text | None = None
