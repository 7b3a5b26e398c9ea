"""Writes the headers of app/server/headers.py into the files that need them as text: python -m
app.building.headers

Each place has two lines that contain "headers: begin" and "headers: end", in deploy.md with a name after "begin".
"""

from __future__ import annotations

import html
import json
from pathlib import Path

from app.building.common import ROOT
from app.server.headers import HEADERS, META_POLICY, POLICIES, SERVER_HEADERS, headers_of

SERVICE_WORKER = ROOT / "web" / "sw.js"
PAGE = ROOT / "web" / "index.html"
DEPLOY = ROOT / "docs" / "guide" / "deploy.md"
_VARIABLE = "sonata_policy"


def headers_file(root: Path = ROOT) -> str:
    """The file that Netlify and Cloudflare Pages read. They combine all matching rules, so each policy is listed with
    its paths only."""
    workers = sorted(path.relative_to(root / "web").as_posix() for path in (root / "web").rglob("*worker.js"))
    lines = ["/*", *(f"  {name}: {value}" for name, value in SERVER_HEADERS.items())]
    for path in ("", "index.html", "sw.js", *workers):
        lines += [f"/{path}", f"  Content-Security-Policy: {headers_of(path)['Content-Security-Policy']}"]
    return "\n".join(lines) + "\n"


def _nginx() -> str:
    lines = [f"map $uri ${_VARIABLE} {{", *_by_path("    "), "}", "server {", "    # listen, server_name, certificates"]
    lines += ["    root /srv/sonata/dist;", f'    add_header Content-Security-Policy "${_VARIABLE}" always;']
    lines += [f'    add_header {name} "{value}" always;' for name, value in SERVER_HEADERS.items()]
    lines += ["    types { text/javascript js mjs; application/wasm wasm; text/html html; text/css css;"]
    lines += ["            image/svg+xml svg; application/json json; application/manifest+json webmanifest; }", "}"]
    return "```nginx\n" + "\n".join(lines) + "\n```\n"


def _caddy() -> str:
    lines = ["example.org {", "    root * /srv/sonata/dist", f"    map {{path}} {{{_VARIABLE}}} {{"]
    lines += [*(line.rstrip(";") for line in _by_path("        ")), "    }", "    header {"]
    lines += [f'        Content-Security-Policy "{{{_VARIABLE}}}"']
    lines += [f'        {name} "{value}"' for name, value in SERVER_HEADERS.items()]
    return "```caddy\n" + "\n".join([*lines, "    }", "    file_server", "}"]) + "\n```\n"


def _by_path(indent: str) -> list[str]:
    """The cases of a `map`, whose first matching regular expression counts, in nginx and in Caddy."""
    return [
        f'{indent}~{end.replace(".", chr(92) + ".")}$ "{policy}";' if end else f'{indent}default "{policy}";'
        for end, policy in POLICIES
    ]


def _table() -> str:
    kinds = {"": "the page, and every other file", "worker.js": "every other file whose name ends so"}
    rows = ["| with | header | value |", "|---|---|---|"]
    rows += [f"| every file | `{name}` | `{value}` |" for name, value in SERVER_HEADERS.items()]
    for end, policy in POLICIES:
        files = f"`{end}`" + (f", {kinds[end]}" if end in kinds else "") if end else kinds[end]
        rows.append(f"| {files} | `Content-Security-Policy` | `{policy}` |")
    return "\n".join(rows) + "\n"


def _script() -> str:
    policies = "".join(f"  [{_quoted(end)}, {_quoted(policy)}],\n" for end, policy in POLICIES)
    headers = "".join(f"  {_quoted(name)}: {_quoted(value)},\n" for name, value in HEADERS.items())
    return (
        f"const HEADERS = {{\n{headers}}};\n"
        f"const POLICIES = [ // by how a path ends: the first that fits\n{policies}];\n"
    )


def _quoted(text: str) -> str:
    return json.dumps(text) if "'" in text else f"'{text}'"


def _tag() -> str:
    return f'  <meta http-equiv="Content-Security-Policy" content="{html.escape(META_POLICY, quote=False)}">\n'


def written(path: Path) -> str:
    """The correct text of one of the three files."""
    blocks = {
        "": _script() if path == SERVICE_WORKER else _tag(),
        "table": _table(),
        "nginx": _nginx(),
        "caddy": _caddy(),
        "_headers": f"```text\n{headers_file()}```\n",
    }
    kept, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        inside &= "headers: end" not in line
        if not inside:
            kept.append(line)
        if "headers: begin" in line:
            inside = True
            kept.append(blocks[line.split("headers: begin")[1].replace("-->", "").strip()])
    return "".join(kept)


def main() -> None:
    for path in (SERVICE_WORKER, PAGE, DEPLOY):
        path.write_text(written(path), encoding="utf-8")


if __name__ == "__main__":
    main()
