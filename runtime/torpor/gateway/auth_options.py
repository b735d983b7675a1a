"""Whose tokens count here, and where the keys are that check them."""

import msgspec

from torpor.records.bounds import Pause, Seconds


class AuthOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts that are empty are not used; paths begin at the home. With nothing set, the data folder's own secret is
    all there is, which is enough for a server that only its own machine can reach."""

    secret_file: str = ""
    """A file with a secret of at least 32 bytes that signs tokens with HS256; blanks at its ends do not count."""
    secret_env: str = ""
    """The variable of the environment that holds such a secret instead."""
    jwks: str = ""
    """The public keys of an issuer of tokens (RS256, ES256, EdDSA): a file, or an https address; needs ``issuer`` and
    ``audience``."""
    issuer: str = ""
    """What a token must have as ``iss``, unless this machine signed it for itself."""
    audience: str = ""
    """What a token must have as ``aud``, or as one of them; likewise."""
    owner_claim: str = "owner"
    """The claim of an issuer's token that says whose conversations are meant; without it ``sub`` does."""
    tenant_claim: str = "tenant"
    """The claim that says where the owner belongs."""
    scope_claim: str = "scope"
    """The claim that says what the token may be used for."""
    local_tokens: bool = True
    """Beside a configured secret or issuer, tokens that the data folder's own secret signed count for clients on this
    machine, as ``torpor ps`` is one."""

    jwks_refresh_s: Seconds = 300.0
    """Between two looks at the keys when nothing asks for them sooner."""
    jwks_pause_s: Pause = 3.0
    """The least time between two looks, whatever keys tokens name."""
    jwks_deadline_s: Seconds = 5.0
    """Within which the keys are there; after it the last good ones stay."""
