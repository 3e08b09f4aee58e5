"""Objects of a manifest: JSON that must have exactly the fields of a record, each of its type."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

Record = TypeVar("Record")


def checked_fields(content: Any, record: type[Record], where: str) -> dict[str, Any]:
    """The fields of a JSON object; ValueError says what is missing, unknown or of another type."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} is not an object")
    kinds: dict[str, Any] = {field.name: field.type for field in fields(record)}  # type: ignore[arg-type]
    for name in kinds:
        if name not in content:
            raise ValueError(f"{where} has no field {name}")
    for name, value in content.items():
        if name not in kinds:
            raise ValueError(f"{where} has an unknown field {name}")
        kind = _json_kind(kinds[name])
        if type(value) is not kind:
            raise ValueError(f"{where} has {name} = {value!r:.100}, expected a value of type {kind.__name__}")
    return dict(content)


def _json_kind(kind: Any) -> type:
    """What json.loads gives for a field of this type."""
    origin: type = getattr(kind, "__origin__", kind)
    return list if origin is tuple else dict if hasattr(origin, "__dataclass_fields__") else origin
