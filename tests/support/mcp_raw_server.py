"""An MCP server without the SDK, so that it starts at once and can be as wrong as a test wants.

    python tests/support/mcp_raw_server.py           # over standard input and output
    python tests/support/mcp_raw_server.py PORT      # over HTTP
    ... --child FILE                                 # starts a process of its own session, whose id is in FILE
    ... --crowd                                      # 1,200 tools
    ... --stubborn                                   # heeds no signal that can be heeded, nor the end of its input

It speaks the handshake of 2025-11-25. Tools are told by what a call of them does; over standard output one that is
called with ``line`` answers with that, ``ID`` replaced by the number of the request.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OBJECT = {"type": "object"}
GOOD = [
    "echo",
    "silent",
    "exit",
    "endless",
    "garbage",
    "nonsense",
    "change",
    "long",
    "catalog.get",
    "catalog_get",
    "a/b",
    "naive-é",
]
BAD: Mapping[str, Any] = {
    "string-root": {"type": "string"},
    "any-of-root": {"type": "object", "anyOf": [{"required": ["a"]}]},
    "required-inside": {"type": "object", "properties": {"a": {"type": "string"}, "required": ["a"]}},
    "ref-to-missing": {"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}},
    "huge": {"type": "object", "description": "x" * 200_000},
    "no-schema": None,
    "list-schema": [1],
    "deep": json.loads('{"type":"object","default":' + "[" * 250 + "]" * 250 + "}"),
    "half-a-character": {"type": "object", "uniqueItems": "\ud83d"},
}
extra: list[str] = []


def tools() -> list[Any]:
    if "--crowd" in sys.argv:
        return [{"name": f"t{number:04}", "inputSchema": OBJECT} for number in range(1_200)]
    told = {"inputSchema": OBJECT, "outputSchema": {"type": "object", "required": ["what no answer has"]}}
    good = [{"name": name, "description": f"{name}.", **told} for name in [*GOOD, *extra]]
    return [*good, *({"name": name, "inputSchema": schema} for name, schema in BAD.items()), 7, {"inputSchema": OBJECT}]


def answer(method: str, params: Mapping[str, Any]) -> Any:
    """The result of a request; None for silence."""
    match method:
        case "initialize":
            info = {"name": "raw", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return {"tools": tools()}
        case "ping":
            return {}
        case "tools/call":
            return called(params["name"], params.get("arguments") or {})
    return {"error": {"code": -32_601, "message": f"no method {method}"}}


def called(tool: str, arguments: Mapping[str, Any]) -> Any:
    if refusal := arguments.get("refuse"):
        return {"error": refusal}
    match tool:
        case "silent":
            return None
        case "exit":
            key = os.environ.get("SHOP_KEY", "")
            print(f"{'x' * 10_000}\nthree lines\nbefore the last\nwith the key {key}", file=sys.stderr, flush=True)
            os._exit(3)
        case "garbage":
            for number in range(200):
                print(f"this is no message {number}", flush=True)
            return None
        case "nonsense":
            return {"content": 7}
        case "endless":
            while True:
                sys.stdout.write("x" * 65_536)
        case "long":
            return {"content": [{"type": "text", "text": "x" * int(arguments.get("size", 5_000_000))}]}
        case "change":
            extra.append("extra")
            say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    return {"content": [{"type": "text", "text": f"{tool} of {os.environ.get('CREDENTIAL', 'nobody')}"}]}


def replied(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The reply to a message; None for none."""
    if "id" not in message or "method" not in message:
        return None
    if line := (message.get("params") or {}).get("arguments", {}).get("line"):
        print(line.replace("ID", str(message["id"])), flush=True)
        return None
    result = answer(message["method"], message.get("params") or {})
    if result is None:
        return None
    kind = result if set(result) == {"error"} else {"result": result}
    return {"jsonrpc": "2.0", "id": message["id"], **kind}


def say(message: Mapping[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def over_pipes() -> None:
    for line in sys.stdin:
        if (reply := replied(json.loads(line))) is not None:
            say(reply)


class Handler(BaseHTTPRequestHandler):
    """Each message is a request of its own; an ``echo`` with ``forget`` ends the session behind it. It holds the status
    and the error with which that session is refused from then on; an empty error for a page of HTML. A call with
    ``accepted`` is answered to that credential alone, one with ``elsewhere`` is sent on."""

    session = 1
    forgotten: tuple[int, dict[str, Any]] = (404, {})

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = (message.get("params") or {}).get("name")
        if self.headers.get("Mcp-Session-Id", str(Handler.session)) != str(Handler.session):
            self.say_forgotten()
            return
        if name == "garbage":
            self.send_error(500)
            return
        arguments = (message.get("params") or {}).get("arguments") or {}
        if (accepted := arguments.get("accepted")) and self.headers.get("Authorization") != accepted:
            self.send_error(401)
            return
        if elsewhere := arguments.get("elsewhere"):
            self.send_response(307)
            self.send_header("Location", elsewhere)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if message.get("method") == "tools/call" and name == "silent":
            time.sleep(60)
            return
        reply = replied(message)
        if name == "echo" and reply is not None and (who := self.headers.get("Authorization")):
            reply["result"]["content"][0]["text"] = f"echo of {who}"
        body = json.dumps(reply).encode() if reply is not None else b""
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Mcp-Session-Id", str(Handler.session))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if name == "echo" and (forgotten := (message["params"].get("arguments") or {}).get("forget")):
            Handler.session += 1
            Handler.forgotten = (forgotten[0], forgotten[1])

    def say_forgotten(self) -> None:
        status, error = Handler.forgotten
        if not error:
            self.send_error(status)
            return
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *arguments: object) -> None:
        """Nobody reads it."""


def main() -> None:
    if "--child" in sys.argv:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(sys.argv[sys.argv.index("--child") + 1]).write_text(str(child.pid))
    ports = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if ports:
        ThreadingHTTPServer(("127.0.0.1", ports[0]), Handler).serve_forever()
    over_pipes()
    while "--stubborn" in sys.argv:
        time.sleep(60)


if __name__ == "__main__":
    main()
