"""``python -m torpor_fake_api``: the fake API as a process of its own.

Prints one line of JSON once it listens: ``url`` for clients, ``control`` for ``/_fake/``. SIGTERM and SIGINT end it.
"""

import argparse
import json
import secrets
import signal
import sys
from pathlib import Path

import anyio

from torpor_fake_api.profiles import PROFILES
from torpor_fake_api.scripting.files import ScriptFile, read
from torpor_fake_api.server import serving


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torpor fake-api", description="A Messages API that enforces the rules and misbehaves by script."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 finds a free one (default: %(default)s)")
    parser.add_argument(
        "--profile", choices=sorted(PROFILES), default="default", help="how strictly to read (default: %(default)s)"
    )
    parser.add_argument("--script", type=Path, metavar="FILE", help="what to say, in TOML or JSON")
    parser.add_argument("--api-key", metavar="KEY", help="the only key to accept; any by default")
    parser.add_argument(
        "--seed", metavar="WORD", help="part of every id, for ids that repeat; new each time by default"
    )
    parser.add_argument(
        "--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: %(default)s)"
    )
    return parser


async def run(options: argparse.Namespace, script: ScriptFile) -> None:
    """Serve until a signal comes."""
    seed = options.seed if options.seed is not None else secrets.token_hex(3)
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serving(
            profile=options.profile, api_key=options.api_key, seed=seed, host=options.host, port=options.port
        ) as api:
            api.control.add(script)
            sys.stdout.write(json.dumps({"url": api.url, "control": api.control_url}) + "\n")
            sys.stdout.flush()
            async for _ in signals:
                return


def main() -> int:
    """The exit code: 0 after a signal, 1 when it cannot listen, 2 when the script cannot be used."""
    options = arguments().parse_args()
    try:
        script = read(options.script) if options.script else ScriptFile()
    except (OSError, ValueError) as exc:
        sys.stderr.write(f"torpor fake-api: {options.script}: {exc}\n")
        return 2
    try:
        anyio.run(run, options, script, backend=options.backend)
    except OSError as exc:
        sys.stderr.write(f"torpor fake-api: {options.host}:{options.port}: {exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
