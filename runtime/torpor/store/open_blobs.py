"""The blobs that a configuration asks for."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

from torpor.errors import ConfigError
from torpor.misfits import Words
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
    for problem in blob_problems(options, environ):
        raise problem
    return S3Blobs(options, credentials=_credentials(options, environ))


def blob_problems(options: BlobOptions, environ: Mapping[str, str]) -> Iterator[ConfigError]:
    """All that is missing for an object store, its library apart; nothing where blobs lie in files."""
    if options.kind == "folder":
        return
    if not options.bucket:
        yield ConfigError(
            WHERE, key="blobs.bucket", found=Words("empty"), expected="the name of a bucket for kind 's3'"
        )
    if options.endpoint and not options.endpoint.startswith(("http://", "https://")):
        expected = "an address that begins with http:// or https://"
        yield ConfigError(WHERE, key="blobs.endpoint", found=options.endpoint, expected=expected)
    if bool(options.access_key_env) != bool(options.secret_key_env):
        alone = "access_key_env" if options.access_key_env else "secret_key_env"
        told = options.access_key_env or options.secret_key_env
        yield ConfigError(
            WHERE, key=f"blobs.{alone}", found=Words(f"{told} alone"), expected="both variables of a key, or none"
        )
    named = (options.access_key_env, options.secret_key_env)
    if missing := [variable for variable in named if variable and not environ.get(variable, "").strip()]:
        key = "access_key_env" if missing[0] == options.access_key_env else "secret_key_env"
        are = "which is not set" if len(missing) == 1 else "which are not set"
        found, expected = Words(f"{' and '.join(missing)}, {are}"), "variables that hold the key"
        yield ConfigError(WHERE, key=f"blobs.{key}", found=found, expected=expected)


def _credentials(options: BlobOptions, environ: Mapping[str, str]) -> dict[str, str]:
    named = {"access_key_id": options.access_key_env, "secret_access_key": options.secret_key_env}
    return {name: environ[variable].strip() for name, variable in named.items() if variable}


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
