"""The published schema says what is on the wire, read by a validator that knows nothing of the engine."""

import json
from typing import Any, get_args

import anyio
import jsonschema
import pytest

from tests.support.gateway_line import Line, principal
from tests.support.gateway_world import World
from torpor.gateway.schema import protocol_schema
from torpor.records.frames import AnyClientFrame, AnyServerFrame
from torpor.records.ids import ConversationKey
from torpor.supervisor.contract import LiveStatus

KEY = ConversationKey("default", "alice", "c1")
SAID: list[dict[str, Any]] = [
    {"frame": "subscribe", "subscription": {"conversation": "c1"}},
    {"frame": "subscribe", "subscription": {"conversation": "c1", "cursor": {"epoch": 1, "event": 2}}},
    {"frame": "send", "ref": "1", "conversation": "c1", "message_id": "m-9", "text": "hello", "when_busy": "steer"},
    {"frame": "history", "ref": "2", "conversation": "c1", "limit": 3},
    {"frame": "list", "ref": "3"},
    {"frame": "cancel", "ref": "4", "conversation": "c1"},
    {"frame": "cancel", "ref": "5", "conversation": "nowhere"},
    {"frame": "unsubscribe", "ref": "last", "conversation": "c1"},
]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """As a program reads it."""
    read: dict[str, Any] = json.loads(json.dumps(protocol_schema()))
    return read


def side(schema: dict[str, Any], name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})


def test_the_schema_is_one_and_names_every_frame(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    named = {
        tag
        for type_ in schema["$defs"].values()
        for tag in type_.get("properties", {}).get("frame", {}).get("enum", [])
    }
    assert named == {frame.__struct_config__.tag for frame in (*get_args(AnyClientFrame), *get_args(AnyServerFrame))}


def test_codes_stand_beside_the_types(schema: dict[str, Any]) -> None:
    assert {"code": "busy", "retry": "safe"} in schema["x-error-codes"]
    assert {"code": "internal", "retry": "never"} in schema["x-error-codes"]
    assert {code["code"] for code in schema["x-close-codes"]} >= {1001, 4401, 4429}


async def test_what_is_said_and_answered_is_valid(schema: dict[str, Any]) -> None:
    client, server = side(schema, "ClientFrame"), side(schema, "ServerFrame")
    world = World()
    world.converse(KEY, turns=2)
    world.live[KEY] = LiveStatus(state="running", turn=3)
    heard: list[dict[str, Any]] = []
    async with anyio.create_task_group() as tasks:
        line = Line(world, tasks, principal=principal("alice"))
        for frame in SAID:
            client.validate(frame)
            line.say(json.dumps(frame))
            await anyio.wait_all_tasks_blocked()
        while not heard or heard[-1].get("ref") != "last":
            heard.append(json.loads(await line.hear_bytes() or "null"))
            server.validate(heard[-1])
        line.session.end()
        tasks.cancel_scope.cancel()
    assert {frame["frame"] for frame in heard} >= {"reload", "resumed", "event", "accepted", "result", "done", "error"}
    assert {frame["code"] for frame in heard if frame["frame"] == "error"} <= {
        code["code"] for code in schema["x-error-codes"]
    }


@pytest.mark.parametrize(
    "frame",
    [
        {"frame": "sing"},
        {"frame": "cancel"},
        {"frame": "send", "conversation": "c1", "message_id": "no blanks here", "text": "x"},
        {"frame": "send", "conversation": "c1", "message_id": "m", "text": "x", "lookback": 51},
    ],
)
def test_what_the_server_would_refuse_is_not_valid(frame: dict[str, Any], schema: dict[str, Any]) -> None:
    assert not side(schema, "ClientFrame").is_valid(frame)


def test_fields_of_a_later_version_are_allowed(schema: dict[str, Any]) -> None:
    assert side(schema, "ClientFrame").is_valid({"frame": "cancel", "conversation": "c1", "gently": True})
