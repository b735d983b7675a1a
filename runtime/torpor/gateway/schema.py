"""The protocol as JSON Schema, made from the frames themselves. Pure.

Above: ``torpor protocol schema``. What a schema cannot say stands beside it: the codes of errors and of closing.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from torpor.errors import ClientError, TorporError
from torpor.gateway.close_reasons import CloseReason
from torpor.records.frames import SUBPROTOCOL, AnyClientFrame, AnyServerFrame
from torpor.records.ids import CONVERSATION_ID

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SIDES: Final = {"ClientFrame": AnyClientFrame, "ServerFrame": AnyServerFrame}


def protocol_schema() -> dict[str, Any]:
    """One document: ``$defs`` with a type for each frame, event and part of them, ``ClientFrame`` and ``ServerFrame``
    for either side; ``x-error-codes`` and ``x-close-codes`` as lists of objects.

    A frame is valid when it is one of the two. Fields beyond those listed are allowed everywhere, since they may come
    with later versions.
    """
    sides, types = msgspec.json.schema_components(_SIDES.values(), ref_template="#/$defs/{name}")
    for type_ in types.values():
        if "message_id" in type_.get("properties", ()):
            type_["properties"]["message_id"]["pattern"] = f"^(?:{CONVERSATION_ID.pattern})?$"
    return {
        "$schema": _DIALECT,
        "title": SUBPROTOCOL,
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in _SIDES],
        "$defs": dict(sorted((types | dict(zip(_SIDES, sides, strict=True))).items())),
        "x-error-codes": list(_error_codes()),
        "x-close-codes": [
            {"code": reason.code, "resume": reason.resume, "text": reason.text} for reason in CloseReason
        ],
    }


def _error_codes() -> Iterator[dict[str, Any]]:
    """In order of their names; the last one stands for faults of the server, of which clients learn nothing more."""
    for kind in sorted(_kinds_of(ClientError), key=lambda kind: kind.code):
        yield {"code": kind.code, "retry": kind.retry.value}
    yield {"code": TorporError.code, "retry": TorporError.retry.value}


def _kinds_of(kind: type[ClientError]) -> Iterator[type[ClientError]]:
    """What a server answers with; the client has kinds of its own, which are never on the wire."""
    for inner in kind.__subclasses__():
        if inner.__module__ == ClientError.__module__:
            yield inner
        yield from _kinds_of(inner)
