"""Whether an address that was asked plainly speaks TLS: asked when what came back was no HTTP. Nothing is sent."""

import ssl
from urllib.parse import urlsplit

import anyio

_PLAIN_PORT = 80


async def speaks_tls(url: str, *, deadline_s: float) -> bool:
    """Args: url: of a plain server, ``ws://host:port``."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # whose certificate it is does not matter: nothing is said to it
    with anyio.move_on_after(deadline_s):
        try:
            stream = await anyio.connect_tcp(
                parts.hostname or "",
                parts.port or _PLAIN_PORT,
                tls=True,
                ssl_context=context,
                tls_standard_compatible=False,
            )
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream):  # an SSLError is an OSError
            return False
        await anyio.aclose_forcefully(stream)
        return True
    return False
