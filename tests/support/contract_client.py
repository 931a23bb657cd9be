"""A client that is generated from the contract of `/api/v1`, as a user of it would generate one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from support.web import Client

FILE = Path(__file__).parents[1] / "interop" / "fixtures" / "management-openapi.json"


class ContractClient:
    """Calls operations by their ids; each answer must be what the document says of its status.

    What the document does not say of a status (its GETs declare 200 alone) must be a ManagementError.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._document = json.loads(FILE.read_text())
        self._operations = {
            operation["operationId"]: (method, path, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
        }
        self.called: set[str] = set()

    @property
    def operations(self) -> set[str]:
        """All operations of the contract."""
        return set(self._operations)

    async def call(
        self,
        operation_id: str,
        *,
        id: str = "",  # noqa: A002 - as the contract calls it
        query: Any = None,
        body: Any = None,
    ) -> tuple[int, Any]:
        """Call an operation, and return the status and the body of its answer."""
        method, path, operation = self._operations[operation_id]
        self._check_input(operation, query, body)
        has_body = "application/json" in operation.get("requestBody", {}).get("content", {})
        answer = await self._client.request(
            method, path.replace("{id}", id), params=query, **({"json": body} if has_body else {})
        )
        self.called.add(operation_id)
        assert answer.headers["content-type"] == "application/json"
        self._validate(self._schema(operation, answer.status_code), answer.json())
        return answer.status_code, answer.json()

    async def get(self, operation_id: str, **more: Any) -> Any:
        """Call an operation that succeeds, and return the body of its answer."""
        status, body = await self.call(operation_id, **more)
        assert status == 200, body
        return body

    def _check_input(self, operation: Any, query: Any, body: Any) -> None:
        """A generated client can send only what the document has names for."""
        names = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        assert {key.partition("[")[0] for key, _ in _pairs(query)} <= names
        declared = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if declared is not None and body is not None:
            self._validate(declared["schema"], body)

    def _schema(self, operation: Any, status: int) -> Any:
        declared = operation["responses"].get(str(status))
        if declared is None:
            assert status >= 400
            return {"$ref": "#/components/schemas/ManagementError"}
        return declared["content"]["application/json"]["schema"]

    def _validate(self, schema: Any, value: Any) -> None:
        whole = {**schema, "components": self._document["components"]}
        Draft202012Validator(whole, format_checker=FormatChecker()).validate(value)


def _pairs(query: Any) -> list[tuple[str, Any]]:
    return list((query or {}).items()) if isinstance(query, dict) or query is None else query
