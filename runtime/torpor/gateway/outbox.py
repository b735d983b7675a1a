"""What waits to be sent to one client: bounded, and fair to what must not be lost.

Above: the session and its subscriptions put frames in. Below: the writer takes encoded ones out. It knows neither
sockets nor journals. Three kinds of frames, by what becomes of them when there is no room:

- answers (``put``): never dropped; without room the connection is closed and the client resumes;
- events (``offer``, ``send``) and long answers (``send_answer``): never dropped; without room the caller keeps them,
  since the journal has them;
- deltas and progress: joined while they wait, and dropped before anything else suffers.

A frame for each delta costs more than all that is done to its text. So the first delta of a reply leaves at once, and
those that follow wait a little for each other; whatever else comes, or a frame that is full, sends them on their way.

A dropped delta leaves a gap, so what follows it in the same reply is dropped too: the client waits for the committed
reply, as the protocol says, and is never shown text with a hole.
"""

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.options import GatewayOptions
from torpor.records.binary import packed
from torpor.records.frames import DeltaFrame, ErrorFrame, Piece, ProgressFrame, Reload, Resumed, ServerFrame

_ENCODER: Final = msgspec.json.Encoder()
_DELTA_OVERHEAD_BYTES: Final = 160
"""Of a delta frame around its text; the size of a waiting one is estimated, not encoded."""


def encoded(frame: ServerFrame) -> bytes:
    """As it leaves: bytes behind a header where it carries some, else text."""
    if not isinstance(frame, Piece):
        return _ENCODER.encode(frame)
    return packed(_ENCODER.encode(msgspec.structs.replace(frame, data=b"")), frame.data)


def nobody_asks() -> None:
    """What an outbox without a writer tells."""


class _Waiting:
    """One frame in the queue."""

    __slots__ = ("data", "delta", "is_prompt", "pieces", "size_bytes")

    def __init__(self, data: bytes, delta: DeltaFrame | None = None, *, is_prompt: bool = True) -> None:
        self.data = data
        self.delta = delta
        """Set for deltas, which are encoded when they leave."""
        self.is_prompt = is_prompt
        """Whether it leaves at once, and all that is before it."""
        self.pieces: list[str] = [delta.text] if delta else []
        self.size_bytes = len(data) if delta is None else _DELTA_OVERHEAD_BYTES + len(delta.text.encode())

    def encoded(self) -> bytes:
        if self.delta is None:
            return self.data
        return _ENCODER.encode(msgspec.structs.replace(self.delta, text="".join(self.pieces)))


class _Lane:
    """The reply that one conversation's deltas belong to."""

    __slots__ = ("call", "last", "next_offset")

    def __init__(self, call: str) -> None:
        self.call = call
        self.next_offset = 0
        self.last: _Waiting | None = None
        """The delta at the end of this conversation's frames, while it waits and nothing has come after it."""


class Outbox:
    """See the module docstring. Everything but ``send``, ``send_answer`` and ``room`` is done at once."""

    def __init__(
        self, options: GatewayOptions, *, errors: Counter[str] | None = None, joined: Counter[str] | None = None
    ) -> None:
        """Args: errors: counts the errors that are answered, by their code.  joined: counts how subscriptions begin, by
        the frame that says so."""
        self._options = options
        self._errors = errors
        self._joined = joined
        self.on_ready: Callable[[], None] = nobody_asks
        """Told when there may be something to take, or the connection is to be closed."""
        self._queue: list[_Waiting] = []
        """Not a deque, whose first block is more than all else of an idle connection's outbox."""
        self.size_bytes = 0
        """Of what waits, deltas estimated."""
        self._lanes: dict[str, _Lane] = {}
        self._changed: anyio.Event | None = None
        """Made by whoever waits for room or for the end."""
        self._prompt = 0
        """Frames in the queue that leave at once."""
        self._quiet_until = 0.0
        """Until then deltas wait for each other, on the clock of the event loop."""
        self._closing: CloseReason | None = None
        self._behind_since: float | None = None
        """When something found no room, on the clock of the event loop; None once all was taken."""
        self.dropped = 0
        """Deltas and progress frames that were not sent."""

    @property
    def closing(self) -> CloseReason | None:
        """Why the connection is to be closed once ``take`` returns None; None while it is open."""
        return self._closing

    def is_behind(self, *, for_s: float) -> bool:
        """Whether the client has not caught up for so long."""
        return self._behind_since is not None and anyio.current_time() - self._behind_since >= for_s

    def put(self, frame: ServerFrame) -> None:
        """Queue an answer; without room for it the connection is closed."""
        if self._closing is not None:
            return
        if not self._append_encoded(frame):
            self.close(CloseReason.OVERFLOW, flush=False)
        elif self._errors is not None and isinstance(frame, ErrorFrame):
            self._errors[frame.code] += 1

    def offer(self, frame: ServerFrame, *, conversation: str) -> bool:
        """Queue an event; False when there is no room, and nothing was done."""
        if not self._append_encoded(frame):
            return False
        self._seal(conversation)
        return True

    async def send(self, frame: ServerFrame, *, conversation: str) -> None:
        """Queue an event of a replay once the client has read enough of what is before it.

        A replay fills half of the outbox only, so that live frames find room. Cancelled, it has queued nothing.
        """
        if self._joined is not None and isinstance(frame, Resumed | Reload):
            self._joined[str(frame.__struct_config__.tag)] += 1
        await self.send_answer(frame)
        self._seal(conversation)

    async def send_answer(self, frame: ServerFrame) -> None:
        """Queue a long answer as ``send`` does an event of a replay."""
        data = encoded(frame)
        while self._closing is None and not self._has_room(len(data), share=2):
            self._fall_behind()
            await self._wait()
            await anyio.lowlevel.checkpoint_if_cancelled()  # cancelled when there was room already
        self._append(_Waiting(data))

    async def room(self) -> None:
        """Return once half of the outbox is free, or the connection is to be closed."""
        while self._closing is None and not self._has_room(0, share=2):
            self._fall_behind()
            await self._wait()

    def put_delta(self, frame: DeltaFrame) -> None:
        """Queue a delta, or join it to the one that waits, or drop it.

        Offset 0 begins a reply, or begins it again; any other offset must continue what was queued before.
        """
        lane = self._lanes.get(frame.conversation)
        if frame.offset == 0:
            lane = self._lanes[frame.conversation] = _Lane(frame.call)
        elif lane is None or lane.call != frame.call or lane.next_offset != frame.offset:
            self.dropped += 1
            return
        lane.next_offset += len(frame.text)
        if not self._join(lane, frame.text):
            # A second one of the same reply waits only where the first is full, and then there is enough to send.
            waiting = _Waiting(b"", frame, is_prompt=frame.offset == 0 or lane.last is not None)
            if self._has_room(waiting.size_bytes):
                self._append(waiting)
                lane.last = waiting
            else:
                self._break_lane(frame.conversation)

    def put_progress(self, frame: ProgressFrame) -> None:
        """Queue what a tool says of itself, or drop it."""
        waiting = _Waiting(_ENCODER.encode(frame))
        if self._has_room(waiting.size_bytes):
            self._append(waiting)
        else:
            self.dropped += 1

    def forget(self, conversation: str) -> None:
        """No more deltas of this conversation come."""
        self._lanes.pop(conversation, None)

    def close(self, reason: CloseReason, *, flush: bool = True) -> None:
        """Take no more frames; the first reason stands. Without ``flush`` those that wait are dropped as well."""
        if self._closing is None:
            self._closing = reason
            self._lanes.clear()
            if not flush:
                self._queue.clear()
                self._prompt = 0
                self.size_bytes = 0
            self._wake()
            self.on_ready()

    def take(self) -> bytes | None:
        """The next frame, encoded; None when nothing leaves now, for good once the connection is to be closed."""
        if not self._queue or self.pause_s() > 0:
            return None
        waiting = self._queue.pop(0)
        self._prompt -= waiting.is_prompt
        self.size_bytes -= waiting.size_bytes
        if waiting.delta is not None:
            lane = self._lanes.get(waiting.delta.conversation)
            if lane is not None and lane.last is waiting:
                lane.last = None
            if not self._queue and self._options.delta_interval_s:
                self._quiet_until = anyio.current_time() + self._options.delta_interval_s
        if not self._queue:
            self._behind_since = None
        self._wake()
        return waiting.encoded()

    def pause_s(self) -> float:
        """When to look for something to take: 0 for now, without end while nothing waits."""
        if self._closing is not None or self._prompt:
            return 0.0
        return max(0.0, self._quiet_until - anyio.current_time()) if self._queue else inf

    def _append_encoded(self, frame: ServerFrame) -> bool:
        data = encoded(frame)
        if not self._has_room(len(data)):
            self._drop_deltas()
        if not self._has_room(len(data)):
            self._fall_behind()
            return False
        self._append(_Waiting(data))
        return True

    def _append(self, waiting: _Waiting) -> None:
        if self._closing is None:
            self._queue.append(waiting)
            self._prompt += waiting.is_prompt
            self.size_bytes += waiting.size_bytes
            self.on_ready()

    def _has_room(self, size_bytes: int, *, share: int = 1) -> bool:
        if not self._queue:
            return True  # a frame larger than the bound by itself must pass, or a resume could never get beyond it
        frames_max = self._options.outbox_frames_max // share
        bytes_max = self._options.outbox_bytes_max // share
        return len(self._queue) < frames_max and self.size_bytes + size_bytes <= bytes_max

    def _fall_behind(self) -> None:
        if self._behind_since is None:
            self._behind_since = anyio.current_time()

    def _join(self, lane: _Lane, text: str) -> bool:
        last, size_bytes = lane.last, len(text.encode())
        if last is None or last.size_bytes + size_bytes > self._options.delta_bytes_max:
            return False
        if self.size_bytes + size_bytes > self._options.outbox_bytes_max:
            return False
        last.pieces.append(text)
        last.size_bytes += size_bytes
        self.size_bytes += size_bytes
        return True

    def _seal(self, conversation: str) -> None:
        # A delta must not be joined to one that stands before this event.
        if (lane := self._lanes.get(conversation)) is not None:
            lane.last = None

    def _break_lane(self, conversation: str) -> None:
        self._lanes.pop(conversation, None)
        self.dropped += 1

    def _drop_deltas(self) -> None:
        kept: list[_Waiting] = []
        for waiting in self._queue:
            if waiting.delta is None:
                kept.append(waiting)
            else:
                self.size_bytes -= waiting.size_bytes
                self._break_lane(waiting.delta.conversation)
        self._queue = kept
        self._prompt = len(kept)

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def __repr__(self) -> str:
        closing = self._closing.name if self._closing else None
        return f"<Outbox frames={len(self._queue)} bytes={self.size_bytes} dropped={self.dropped} closing={closing}>"
