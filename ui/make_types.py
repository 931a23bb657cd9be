"""Write `src/api.gen.ts`: the types of `/api/ops/v1` for the pages, from the models of the server."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from monque.management import ops
from monque.management.ops import Dto, Question

_HEAD = "// Made from the models of the server by make_types.py; not in git.\n"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def main(target: Path) -> None:
    """Write the file."""
    models = [each for name in ops.__all__ if _is_model(each := getattr(ops, name))]
    _, schema = models_json_schema(
        [(model, "serialization" if issubclass(model, Dto) else "validation") for model in models],
        by_alias=True,
    )
    found = schema["$defs"]
    texts = [_interface(name, found[name]) for name in sorted(found)]
    target.write_text(_HEAD + "\n".join(texts))


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Dto | Question) and value not in (Dto, Question)


def _interface(name: str, schema: dict[str, Any]) -> str:
    if schema.get("type") != "object":
        return f"export type {name} = {_type(schema)};"
    required = set(schema.get("required", ()))
    fields = [
        f"  {_key(key)}{'' if key in required else '?'}: {_type(value)};"
        for key, value in schema.get("properties", {}).items()
    ]
    return "\n".join([f"export interface {name} {{", *fields, "}"])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f'"{name}"'


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        return " | ".join(map(_literal, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(map(_type, schema['prefixItems']))}]"
        case "array":
            return f"({_type(schema.get('items', {}))})[]"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"Record<string, {_type(schema['additionalProperties'])}>"
        case "object":
            return "Record<string, unknown>"
        case str(plain):
            return _PLAIN[plain]
    return "unknown"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "src" / "api.gen.ts")
