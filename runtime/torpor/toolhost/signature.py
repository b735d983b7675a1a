"""A typed function read as a tool: its parameters as a JSON Schema and a strict decoder, its caller's context apart.

Below: msgspec, which turns the annotations into both, so that what is promised is what is enforced. A parameter
annotated ``ToolContext`` is no part of the schema: the engine fills it in.
"""

import inspect
import typing
from collections.abc import Callable
from typing import Any, Final

import msgspec

from torpor.errors import ConfigError, ToolInputInvalid
from torpor.misfits import Words, with_choices
from torpor.toolhost.contract import ToolContext

_BY_NAME: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


class Routine:
    """A function as it is called: by keyword, with the context if it asks for one."""

    __slots__ = ("context_name", "function", "is_async", "names")

    def __init__(self, function: Callable[..., Any], *, names: tuple[str, ...], context_name: str) -> None:
        self.function = function
        self.names = names
        """Parameters that the model gives."""
        self.context_name = context_name
        """The parameter that takes the context; empty for none."""
        self.is_async = inspect.iscoroutinefunction(function)


class Parameters:
    """What a model may pass: its schema, and the decoder that holds it to it."""

    __slots__ = ("_decoder", "_struct", "_tool", "schema")

    def __init__(self, tool: str, *, struct: type[msgspec.Struct], schema: dict[str, Any]) -> None:
        self._tool = tool
        self._decoder = msgspec.json.Decoder(struct)
        self._struct = struct
        self.schema = schema

    def decode(self, arguments: msgspec.Raw) -> dict[str, Any]:
        """The arguments by name, defaults filled in.

        Raises: ToolInputInvalid: names the path to what does not fit, and what would.
        """
        try:
            return msgspec.structs.asdict(self._decoder.decode(arguments))
        except msgspec.ValidationError as exc:
            reason = with_choices(exc, self._struct)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            reason = str(exc)
        except RecursionError:
            reason = "nested too deeply"
        at = "" if " - at `" in reason else " - at `$`"
        raise ToolInputInvalid(f"arguments of {self._tool!r} do not fit its schema, nothing was run: {reason}{at}")


def read_signature(
    function: Callable[..., Any], *, tool: str, descriptions: dict[str, str]
) -> tuple[Routine, Parameters]:
    """Read ``function`` as the tool named ``tool``.

    Raises: ConfigError: a parameter cannot be passed by name, has no annotation, or one without a JSON form.
    """
    hints = _hints(function, tool=tool)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context_names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind not in _BY_NAME or name.startswith("__"):
            found = Words("private" if name.startswith("__") else parameter.kind.description)
            raise _unusable(tool, f"parameter {name!r}", found=found, expected="one that is passed by name")
        if name not in hints:
            raise _unusable(tool, f"parameter {name!r}", found=Words("without a type"), expected="an annotation")
        if hints[name] is ToolContext:
            context_names.append(name)
        elif parameter.default is inspect.Parameter.empty:
            fields.append((name, hints[name]))
        else:
            fields.append((name, hints[name], parameter.default))
    if len(context_names) > 1:
        raise _unusable(tool, "parameters", found=context_names, expected="one ToolContext at most")
    names = tuple(field[0] for field in fields)
    for name in descriptions.keys() - {*names, *context_names}:
        raise _unusable(tool, "docstring", found=name, expected="a parameter's name in each entry of Args")
    routine = Routine(function, names=names, context_name="".join(context_names))
    return routine, _parameters(tool, fields, descriptions)


def _hints(function: Callable[..., Any], *, tool: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as exc:
        expected = "names that the module itself imports, also outside of `if TYPE_CHECKING`"
        raise _unusable(tool, "annotations", found=Words(str(exc)), expected=expected) from exc


def _parameters(
    tool: str, fields: list[tuple[str, Any] | tuple[str, Any, Any]], descriptions: dict[str, str]
) -> Parameters:
    try:
        struct = msgspec.defstruct(f"{tool}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        schema = _object_schema(struct)
        for name, description in descriptions.items():
            if name in schema["properties"]:
                schema["properties"][name].setdefault("description", description)
        msgspec.json.encode(schema)
        return Parameters(tool, struct=struct, schema=schema)
    except (TypeError, ValueError, RuntimeError) as exc:
        expected = "types and defaults with a JSON form"
        raise _unusable(tool, "parameters", found=Words(str(exc).partition("\n")[0]), expected=expected) from exc


def _object_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema with the object itself at the root, as the API wants it, and what it refers to under ``$defs``."""
    (reference,), components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    root = components.pop(reference["$ref"].removeprefix("#/$defs/"))
    root.pop("title", None)
    return {**root, "$defs": components} if components else root


def _unusable(tool: str, key: str, *, found: object, expected: str) -> ConfigError:
    return ConfigError(f"tool {tool!r}", key=key, found=found, expected=expected)
