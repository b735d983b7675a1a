"""Ask for a fork, see ``tests.support.forked``; needs so little that a shell can do it by ``python -IS`` in no time.

python -IS asked_fork.py DOOR MODULE ...    # ends as the fork does
"""

import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

REQUEST_BYTES_MAX = 200_000
TOLD = struct.Struct("=i")


def request(
    module: str, arguments: Sequence[str], *, cwd: str, env: Mapping[str, str], has_terminal: bool = False
) -> bytes:
    """What is sent."""
    asked = {"module": module, "arguments": list(arguments), "cwd": cwd, "env": dict(env), "has_terminal": has_terminal}
    return json.dumps(asked).encode()


def ask(line: socket.socket, request: bytes, streams: Sequence[int]) -> tuple[int, int]:
    """The id of the process, and the descriptor that hears its exit code."""
    hears, tells = os.pipe()
    try:
        socket.send_fds(line, [request], [*streams, tells])
    finally:
        os.close(tells)
    (pid,) = TOLD.unpack(os.read(hears, TOLD.size))
    return pid, hears


def main(door: str, module: str, *arguments: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(door)
        cwd = os.getcwd()  # noqa: PTH109 - pathlib takes longer to import than all of this
        _, hears = ask(line, request(module, arguments, cwd=cwd, env=os.environ), (0, 1, 2))
    code: int = TOLD.unpack(os.read(hears, TOLD.size))[0]
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
