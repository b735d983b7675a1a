"""Whatever one text frame says, it is answered by a code that the page of the protocol lists, and the next one is
served."""

import re
from typing import Final

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine import running_engine
from tests.support.gateway_line import Line, ManualClock, ports_of, principal, token_for
from tests.support.gateway_table import KINDS, on_backends
from tests.support.models import Speaking
from tests.support.protocol_page import CLOSE_CODES, ERROR_CODES
from tests.support.rude_frames import texts, told_frames
from torpor.errors import BadFrame
from torpor.gateway.wire import decode
from torpor.records.frames import AnyClientFrame, AnyServerFrame, Done, ErrorFrame, Hello, Unsubscribe

FRAMES: Final = msgspec.json.Decoder(AnyServerFrame)
SCOPES: Final = st.sampled_from((("chat",), ("chat", "operator"), ()))
OURS: Final = re.compile("(answer|join|catch_up|open|hello)(:|$)")
"""Tasks of a session."""


def is_unreadable(text: str) -> bool:
    try:
        decode(text)
    except BadFrame:
        return True
    return False


async def settle(line: Line) -> list[AnyServerFrame]:
    """What comes until nothing happens any more."""
    heard: list[AnyServerFrame] = []
    for _ in range(3):
        await anyio.wait_all_tasks_blocked()
        while (data := line.outbox.take()) is not None:
            assert b"Traceback" not in data
            heard.append(FRAMES.decode(data))
    return heard


async def heard_of(said: list[str], *, scopes: tuple[str, ...], is_known: bool) -> tuple[list[AnyServerFrame], bool]:
    """Everything that comes back, and whether the connection is to be closed; if not, one more frame was served.

    Nothing is left behind.
    """
    async with running_engine(host=Speaking()) as engine, anyio.create_task_group() as tasks:
        clock = ManualClock()
        who = principal("alice", scopes=scopes) if is_known else None
        line = Line(ports_of(engine), tasks, clock=clock, principal=who)
        for text in said:
            line.say(text)
        line.say(Hello(token=token_for("alice", clock=clock)))
        heard = await settle(line)
        if line.outbox.closing is None:
            line.say(Unsubscribe(ref="the last", conversation="c1"))
            heard += await settle(line)
            assert [frame for frame in heard if isinstance(frame, Done | ErrorFrame) and frame.ref == "the last"]
        else:
            assert line.outbox.closing.code in CLOSE_CODES
        line.session.end()
        await anyio.wait_all_tasks_blocked()
        assert [task.name for task in anyio.get_running_tasks() if OURS.match(task.name or "")] == []
        assert repr(engine.bus) == "<LocalBus watched=0 live=0>"
        tasks.cancel_scope.cancel()
    return heard, line.outbox.closing is not None


@given(said=st.lists(texts(), min_size=1, max_size=8), scopes=SCOPES, is_known=st.booleans())
async def test_whatever_is_said_gets_a_listed_code_and_the_next_frame_is_served(
    said: list[str], scopes: tuple[str, ...], is_known: bool
) -> None:
    heard, is_closed = await heard_of(said, scopes=scopes, is_known=is_known)

    errors = [frame for frame in heard if isinstance(frame, ErrorFrame)]
    assert {frame.code for frame in errors} <= ERROR_CODES
    if not is_closed:
        assert sum(frame.code == "bad_frame" for frame in errors) >= sum(map(is_unreadable, said))


@pytest.mark.parametrize(("kind", "anyio_backend"), on_backends(KINDS))
@settings(max_examples=8)
@given(data=st.data())
async def test_every_kind_of_frame_survives_what_its_fields_may_not_be(
    kind: type[AnyClientFrame], data: st.DataObject
) -> None:
    heard, _ = await heard_of([data.draw(told_frames(kind)) for _ in range(4)], scopes=("operator",), is_known=True)

    assert {frame.code for frame in heard if isinstance(frame, ErrorFrame)} <= ERROR_CODES
