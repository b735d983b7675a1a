"""The blobs of a data folder, for verbs that look at it without a server."""

import os
from pathlib import Path

from torpor.cli.folders import blobs_folder
from torpor.settings import read_section
from torpor.store.contract import ErasableBlobs
from torpor.store.open_blobs import open_blobs


def stored_blobs(home: Path, folder: Path) -> ErasableBlobs:
    """Where the settings of ``home`` have them, and otherwise in the data folder ``folder``.

    Raises: ConfigError: the settings are not usable.
    """
    options = read_section(home.resolve(), os.environ, name="blobs")
    return open_blobs(options, folder=blobs_folder(folder), environ=os.environ, in_threads=False)
