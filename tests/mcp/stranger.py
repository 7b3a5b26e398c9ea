"""A tool server of a stranger, without any package: `python stranger.py '[{"name": ...}]'` offers these tools. Some
that `run` knows go wrong; each other tool tells its arguments."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

PNG = "iVBORw0KGgo="
PICTURES = [
    {"type": "text", "text": "Look:"},
    {"type": "image", "data": PNG, "mimeType": "image/png"},
    {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a.txt", "name": "a\u001b[31m"},
    {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "the text of b"}},
    {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": PNG}},
]
ASKED = ("sampling/createMessage", "elicitation/create", "roots/list")


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def ask_back() -> dict[str, Any]:
    """Ask the client for what a tool should not get, and tell the answers."""
    answers = []
    for number, method in enumerate(ASKED):
        params = {"messages": [], "maxTokens": 9, "message": "Your password?", "requestedSchema": {"type": "object"}}
        send({"id": f"back{number}", "method": method, "params": params})
        answer = json.loads(sys.stdin.readline())
        answers.append("error" if "error" in answer else "an answer")
    return text(", ".join(answers))


def run(name: str, given: dict[str, Any]) -> dict[str, Any]:
    if name == "fails":
        return {**text("There is no such city."), "isError": True}
    if name == "pictures":
        return {"content": PICTURES}
    if name == "long":
        return text("x" * 200_000)
    if name == "odd":
        return {"content": 5}
    if name == "asks":
        return ask_back()
    if name == "slow":
        time.sleep(60)
    if name == "dies":
        sys.exit("out of coffee")
    if name == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if name == "flood":
        while True:
            send({"method": "notifications/message", "params": {"level": "info", "data": "again"}})
    if name == "noise":
        print("Listening ...\n{not json}\n[]", flush=True)
    if name == "child":
        return text(str(subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL).pid))
    return text(json.dumps({"tool": name, "given": given}))


def main() -> None:
    tools = json.loads(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params", {})
        if message["method"] == "initialize":
            told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            send({"id": message["id"], "result": {**told, "serverInfo": {"name": "stranger", "version": "1"}}})
        elif message["method"] == "tools/list":
            forms = [{"description": "", "inputSchema": {"type": "object"}, **tool} for tool in tools]
            send({"id": message["id"], "result": {"tools": forms}})
        elif message["method"] == "tools/call":
            send({"id": message["id"], "result": run(params["name"], params.get("arguments", {}))})
        elif "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
