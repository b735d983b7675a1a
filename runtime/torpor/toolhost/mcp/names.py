"""What a server's tool is called to the model. Pure.

A name is the server's, two underscores and the tool's. What the model host does not allow, or has no room for, is
replaced, and then eight hexadecimal digits of a hash over the true names stand at the end; so they do where a tool's
own name looks as if they did. Thus different tools have different names, whatever other tools there are, at every
start.
"""

import hashlib
import re
from typing import Final

NAME_MAX: Final = 64
DIVIDER: Final = "__"
_DIGITS: Final = 8
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASHED: Final = re.compile(rf"_[0-9a-f]{{{_DIGITS}}}\Z")


def tool_name(server: str, tool: str) -> str:
    """Matches ``[a-zA-Z0-9_-]{1,64}``. Args: server: a match of ``SERVER_NAME``, at most 40 characters."""
    plain = _FOREIGN.sub("_", tool)
    name = f"{server}{DIVIDER}{plain}"
    if tool and plain == tool and len(name) <= NAME_MAX and not _HASHED.search(tool):
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[: NAME_MAX - _DIGITS - 1]}_{digest}"


def server_of(name: str) -> str:
    """The server whose tool may be called so; empty for none."""
    server, divider, _ = name.partition(DIVIDER)
    return server if divider else ""
