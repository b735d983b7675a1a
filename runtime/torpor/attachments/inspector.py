"""Files looked into by processes of their own, each of them one after the other.

Above: the desk of uploads, which says how many at once. Below: ``inspecting``, one process. It is started by a file for
which there is none, ends by itself when none came for a while, and is killed by one that takes too long.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import structlog

from torpor.attachment_errors import AttachmentUnreadable
from torpor.attachments.inspecting import GONE, RETRY_S, CpuOf, Inspecting, cpu_of_s
from torpor.attachments.looked import REFUSALS
from torpor.attachments.options import AttachmentOptions
from torpor.attachments.worker import Answer, Request
from torpor.errors import StoreFull, StoreUnavailable, Unavailable
from torpor.store.blobs import NO_SPACE

_log = structlog.get_logger()


class Inspector:
    """``async with inspector.running()``."""

    def __init__(self, options: AttachmentOptions, *, cpu_of: CpuOf = cpu_of_s) -> None:
        """Args: cpu_of: of a process, by its number; None where nobody knows."""
        self._options = options
        self._cpu_of = cpu_of
        self._processes: set[Inspecting] = set()
        self._idle: list[Inspecting] = []
        """The one that was asked last comes last."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Inspector"]:
        """Its processes end with the block."""
        try:
            yield self
        finally:
            for process in tuple(self._processes):
                await self._end(process)

    async def look(self, path: Path, *, made: Path, name: str) -> Answer:
        """What the file is; ``made`` is written if something is to be sent in its place.

        Raises: AttachmentRefused: nothing that a model could be shown, or looking took too long or ended the process.
            Unavailable: no process could be started, or it got no time. StoreFull, StoreUnavailable: the machine is to
            blame.
        """
        request = msgspec.json.encode(Request(path=str(path), made=str(made), name=name)) + b"\n"
        answer = await self._asked(request, name=name)
        if answer.system_error:
            kind = StoreFull if answer.system_error in NO_SPACE else StoreUnavailable
            raise kind(f"{path} could not be looked into: {os.strerror(answer.system_error)}")
        if answer.code:
            raise REFUSALS[answer.code](answer.why)
        return answer

    async def _asked(self, request: bytes, *, name: str) -> Answer:
        process: Inspecting | None = None
        before_s: float | None = None
        try:
            with anyio.move_on_after(self._options.inspect_deadline_s):
                for is_again in (False, True):
                    process = await self._taken()
                    before_s = process.cpu_s()
                    try:
                        answer = await process.answered(request)
                    except GONE as exc:
                        has_idled = await process.has_idled()
                        await self._end(process)
                        process = None
                        while self._idle:  # the next one is new, so that whatever becomes of it the file is to blame
                            await self._end(self._idle.pop())
                        if is_again or not has_idled:
                            _log.warning("attachments.inspection_ended", why=type(exc).__name__)
                            break
                    else:
                        self._idle.append(process)
                        process = None
                        return answer
                why = f"file {name!r} ended the process that looked into it, expected a whole one; save it again"
                raise AttachmentUnreadable(why)
            raise self._too_late(process, before_s=before_s, name=name)
        finally:
            if process is not None:
                await self._end(process)

    def _too_late(self, process: Inspecting | None, *, before_s: float | None, name: str) -> Exception:
        """Who is to blame: a file on which a process worked for most of the time, or whatever kept it from that."""
        deadline_s = self._options.inspect_deadline_s
        now_s = process.cpu_s() if process is not None else None
        worked_s = now_s - before_s if now_s is not None and before_s is not None else None
        _log.warning("attachments.inspection_timed_out", deadline_s=deadline_s, worked_s=worked_s)
        if process is None or (worked_s is not None and worked_s < deadline_s / 2):
            return Unavailable(f"file {name!r} could not be looked into in time", retry_after_s=RETRY_S)
        took = f"took longer than {deadline_s:g} s to be looked into"
        return AttachmentUnreadable(f"file {name!r} {took}; save it again, simpler or in parts")

    async def _taken(self) -> Inspecting:
        while self._idle:
            process = self._idle.pop()
            if not process.is_over():
                return process
            await self._end(process)
        process = await Inspecting.started(self._options, cpu_of=self._cpu_of)
        self._processes.add(process)
        return process

    async def _end(self, process: Inspecting) -> None:
        self._processes.discard(process)
        await process.end()

    def __repr__(self) -> str:
        return f"<Inspector processes={len(self._processes)} idle={len(self._idle)}>"
