"""What an address that others can reach needs before anything listens on it.

Above: the composition root. On the loopback address nothing is needed: whoever gets there is on this machine, unless a
proxy is said to stand before it. Elsewhere tokens must not travel in the clear, and the data folder's own secret is not
enough: it came about by itself, and signed a development token that never ends and may do everything.
"""

import ipaddress
import socket
from typing import Final

import anyio

from torpor.errors import ConfigError
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.options import GatewayOptions
from torpor.misfits import Words

_ENCRYPTED: Final = (
    "TLS here by gateway.tls_certificate and gateway.tls_key, or gateway.tls = 'terminated' where a proxy before it "
    "speaks TLS"
)
_ADDRESS: Final = "address to listen on"
"""It comes from the file, from a variable or from the command line."""
_SIGNED: Final = "a secret of your own by auth.secret_file or auth.secret_env, or an issuer's keys by auth.jwks"


def check_exposure(options: GatewayOptions, auth: AuthOptions, *, is_loopback: bool) -> None:
    """Raises: ConfigError: others could reach the address, and something they need is missing."""
    is_behind_proxy = options.tls == "terminated"
    has_tls = bool(options.tls_certificate) or is_behind_proxy
    has_secret = bool(auth.secret_file or auth.secret_env or auth.jwks)
    missing = [text for text, is_there in ((_ENCRYPTED, has_tls), (_SIGNED, has_secret)) if not is_there]
    if missing and (is_behind_proxy or not is_loopback):
        by = " by the proxy of gateway.tls = 'terminated'" if is_loopback else ""
        found = Words(f"{options.host!r}, which others can reach{by}")
        raise ConfigError(_ADDRESS, key="gateway.host", found=found, expected="; and ".join(missing))


def reachable_here(host: str) -> str:
    """How clients on this machine reach a server that listens on ``host``, which may stand for every address."""
    try:
        told = ipaddress.ip_address(host) if host else ipaddress.IPv4Address(0)
    except ValueError:
        return host
    if not told.is_unspecified:
        return host
    return "::1" if isinstance(told, ipaddress.IPv6Address) else "127.0.0.1"


def is_loopback_name(host: str) -> bool:
    """Whether that can be told without asking anybody."""
    return host == "localhost" or is_loopback_address(host)


async def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there. Raises: OSError: nothing is known of the host."""
    if not host:
        return False  # every address
    found = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(is_loopback_address(address[0]) for *_, address in found)


def is_loopback_address(address: str) -> bool:
    """Whether a numeric address is this machine's own."""
    try:
        told = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(told, ipaddress.IPv6Address) and told.ipv4_mapped is not None:
        return told.ipv4_mapped.is_loopback
    return told.is_loopback
