"""A log of every request around any model.

The log outlives the process; a line is a request with its body and what it is for, or the end of one with what was
said. Each request has a run of its own, which the reply carries as its request id.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from tests.support.side_model import purpose_of
from torpor.conversation.publish import text_of
from torpor.conversation.view import request_body
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink


class LoggingModel:
    """Implements ``model.contract.Model``; the log is ``model.jsonl`` in ``home``."""

    def __init__(self, model: Model, home: Path) -> None:
        self._model = model
        self._log = home / "model.jsonl"
        self._numbers = count(1)

    def request_fields(self) -> Mapping[str, Any]:
        return self._model.request_fields()

    async def warm(self) -> None:
        await self._model.warm()

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        run = f"r{os.getpid()}-{next(self._numbers)}-{request.call}"
        body = json.loads(request_body(request.preamble, request.view, live=request.live))
        attached = {blob: hashlib.sha256(data).hexdigest() for blob, data in request.attached.items()}
        digest, link = request.preamble.digest, request.view.link.hex()
        purpose = purpose_of(request)
        started = {"run": run, "call": request.call, "purpose": purpose, "preamble": digest, "link": link}
        self._note(what="started", **started, body=body, attached=attached)
        reply = await self._model.reply(request, sink)
        self._note(what="ended", run=run, said=text_of(reply.blocks))
        return msgspec.structs.replace(reply, request_id=run)

    def _note(self, **line: Any) -> None:
        log = os.open(self._log, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(log, b"\n" + json.dumps(line).encode() + b"\n")  # a kill may have cut the line before this one
        finally:
            os.close(log)
