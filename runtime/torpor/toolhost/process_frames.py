"""What the server and its worker processes say to each other: JSON behind four bytes that tell its length.

Both sides are this engine, of one version. What a tool takes and gives crosses here as JSON, never as a pickle, so that
nothing a tool returns can run anything in the server.
"""

import struct
from typing import Final, TypeAlias

import msgspec

FRAME_BYTES_MAX: Final = 67_108_864
"""A longer one is refused by who would send it, and ends the process for who reads it."""

LENGTH: Final = struct.Struct(">I")


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag="setup"):
    """First of all, and once."""

    memory_bytes: int
    """Of address space; 0 for no limit."""
    progress_cap_chars: int


class Module(msgspec.Struct, frozen=True, kw_only=True, tag="module"):
    """A file of tools, before the first call of one of them."""

    path: str
    source: bytes


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """One call; the answer is zero or more ``Reported`` between ``Begun`` and its end."""

    number: int = 0
    """Given when it is made. Every frame of the answer has it as ``call``: no other call of the server has the same."""
    tool: str
    path: str
    """Of its module, sent before."""
    arguments: msgspec.Raw
    tenant: str
    owner: str
    conversation: str
    principal: str
    turn: int
    call_id: str
    idempotency_key: str


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """The tool's function is entered next."""

    call: int


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="reported"):
    """Progress."""

    call: int
    text: str


class Returned(msgspec.Struct, frozen=True, kw_only=True, tag="returned"):
    """What the model will read."""

    call: int
    text: str
    replaced: int


class Denied(msgspec.Struct, frozen=True, kw_only=True, tag="denied"):
    """The tool raised ``ToolRefused``."""

    call: int
    text: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The tool raised something else."""

    call: int
    text: str
    error: str = ""
    """The name of its type; empty for what tools raise on purpose."""
    where: str = ""


class NotBegun(msgspec.Struct, frozen=True, kw_only=True, tag="not_begun"):
    """The call cannot be made here; nothing was run."""

    call: int
    text: str


ToWorker: TypeAlias = Setup | Module | Call
FromWorker: TypeAlias = Begun | Reported | Returned | Denied | Failed | NotBegun

_ENCODER: Final = msgspec.json.Encoder()


def framed(frame: ToWorker | FromWorker) -> bytes:
    """``frame`` with its length. Raises: ValueError: it is too long."""
    body = _ENCODER.encode(frame)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(body)} bytes, expected at most {FRAME_BYTES_MAX}")
    return LENGTH.pack(len(body)) + body
