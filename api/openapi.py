"""The public OpenAPI document: FastAPI's own, made true about errors (it would promise a 422 that never
comes).
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.auth import is_public

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
                "problems": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "code": {"type": "string"},
                            "message": {"type": "string"},
                            "where": {"type": ["string", "null"]},
                        },
                    },
                },
            },
        }
    },
}
_METHODS = ("get", "post", "put", "patch", "delete")


def document(app: FastAPI, version: str) -> dict[str, Any]:
    """Build the document once; FastAPI serves what `app.openapi` returns."""
    if app.openapi_schema is None:
        found = get_openapi(
            title="Candela",
            version=version,
            summary="Serverless inference with its own search compiler",
            routes=app.routes,
        )
        app.openapi_schema = _corrected(found)
    return app.openapi_schema


def _corrected(found: dict[str, Any]) -> dict[str, Any]:
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = _ERROR
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in found["paths"].items():
        for method in _METHODS:
            if method in operations:
                _correct_operation(operations[method], method.upper(), path)
    return found


def _correct_operation(operation: dict[str, Any], method: str, path: str) -> None:
    responses = operation.setdefault("responses", {})
    responses.pop("422", None)
    responses["default"] = {
        "description": "An error, in the one shape that all errors have",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if not is_public(method, path):
        operation["security"] = [{"key": []}]
