"""The blobs that a configuration asks for."""

from collections.abc import Mapping
from pathlib import Path

import structlog

from torpor.errors import ConfigError
from torpor.store.blobs import LocalBlobs
from torpor.store.bucket_trouble import BucketTrouble
from torpor.store.contract import ErasableBlobs
from torpor.store.options import BlobOptions
from torpor.store.s3_blobs import WHERE, S3Blobs

_log = structlog.get_logger()


def open_blobs(
    options: BlobOptions, *, folder: Path, environ: Mapping[str, str], in_threads: bool = True
) -> ErasableBlobs:
    """Nothing is read or written yet.

    Args: folder: for those that lie in files.  in_threads: see ``LocalBlobs``; an object store has them always.
    Raises: ConfigError: something is missing for an object store, or a variable that is named is not set.
    """
    if options.kind == "folder":
        return LocalBlobs(folder, in_threads=in_threads)
    if not options.bucket:
        raise ConfigError(WHERE, key="blobs.bucket", found="nothing", expected="the name of a bucket for kind 's3'")
    if options.endpoint and not options.endpoint.startswith(("http://", "https://")):
        expected = "an address that begins with http:// or https://"
        raise ConfigError(WHERE, key="blobs.endpoint", found=options.endpoint, expected=expected)
    if bool(options.access_key_env) != bool(options.secret_key_env):
        told = options.access_key_env or options.secret_key_env
        raise ConfigError(
            WHERE, key="blobs.access_key_env", found=f"only {told}", expected="both variables of a key, or none"
        )
    named = {"access_key_id": options.access_key_env, "secret_access_key": options.secret_key_env}
    credentials = {
        name: _told(variable, key=key, environ=environ)
        for (name, variable), key in zip(named.items(), ("access_key_env", "secret_key_env"), strict=True)
        if variable
    }
    return S3Blobs(options, credentials=credentials)


async def trouble_with(blobs: ErasableBlobs) -> BucketTrouble | None:
    """What is wrong with an object store; None when all is well, or where blobs lie in files. Takes some seconds at
    most."""
    return await blobs.trouble() if isinstance(blobs, S3Blobs) else None


async def check_blobs(blobs: ErasableBlobs, options: BlobOptions) -> None:
    """Look at an object store before anybody needs it: one that does not answer now may come back, and is warned of.

    Raises: ConfigError: its bucket is not there.
    """
    if (trouble := await trouble_with(blobs)) is None:
        return
    if trouble.is_missing:
        raise ConfigError(
            WHERE, key="blobs.bucket", found=options.bucket, expected=f"one that is there; {trouble.remedy}"
        )
    _log.warning("blobs.not_reached", why=trouble.what, remedy=trouble.remedy)


def _told(variable: str, *, key: str, environ: Mapping[str, str]) -> str:
    if not (value := environ.get(variable, "").strip()):
        raise ConfigError(
            WHERE, key=f"blobs.{key}", found=f"{variable}, which is not set", expected="a variable that holds it"
        )
    return value
