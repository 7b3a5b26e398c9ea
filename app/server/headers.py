"""The headers of the site's files, defined in this one place. Standard library only.

`app/server/site.py` sends them. `python -m app.building.headers` writes them into web/sw.js, which adds them if
the server does not, web/index.html (the page's policy, for the first visit) and docs/guide/deploy.md; a test compares.
"""

from __future__ import annotations

_COMMON = {
    "default-src": "'none'",
    "script-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # No text becomes a script: DOMPurify makes the answers' HTML, web/common/own_script.js the addresses of scripts.
    "require-trusted-types-for": "'script'",
    "trusted-types": "sonata",
}
_PAGE = _COMMON | {
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",  # of formulas
    "manifest-src": "'self'",
    "worker-src": "'self'",
    "trusted-types": "dompurify lit-html sonata",
}
_WORKER = _COMMON | {
    # Python, the kernels and the embedder are WebAssembly; text is never evaluated.
    "script-src": "'self' 'wasm-unsafe-eval'",
    # The kernels' workers start from a blob, so that they can start again without a network (kernel_pool.js).
    "worker-src": "'self' blob:",
}
_DOWNLOADS = _WORKER | {
    # The user chooses the hosts that models may come from (web/downloads/model_hosts.js), so a header cannot know them.
    # These workers see no message, so no text can leave through them.
    "connect-src": "'self' https: http://localhost:* http://127.0.0.1:*",
    "worker-src": "'none'",
}
# The user's tool servers. This worker sees what a call says, and nothing else of the chat; it refuses hosts that are
# not on the user's list (web/mcp/mcp_worker.js).
_TOOL_SERVERS = _COMMON | {"connect-src": _DOWNLOADS["connect-src"], "worker-src": "'none'"}
# It only hands ports over (web/engine/broker_worker.js).
_BROKER = _COMMON | {"connect-src": "'none'", "worker-src": "'none'"}
# The template is untrusted: the worker that runs it may connect to nothing.
_TEMPLATES = _WORKER | {"connect-src": "'none'", "worker-src": "'none'"}
# The user's code: the worker that this one starts inherits the policy (web/interpreter/host_worker.js). Blobs are
# scripts that the page has sent.
_INTERPRETER = _COMMON | {
    "script-src": "'wasm-unsafe-eval' blob:",
    "connect-src": "'none'",
    "worker-src": "data:",
}


def _policy(directives: dict[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in directives.items())


POLICIES = (
    ("downloads/model_worker.js", _policy(_DOWNLOADS)),
    ("downloads/other_sites_worker.js", _policy(_DOWNLOADS)),
    ("mcp/mcp_worker.js", _policy(_TOOL_SERVERS)),
    ("tokenizers/template_worker.js", _policy(_TEMPLATES)),
    ("engine/broker_worker.js", _policy(_BROKER)),
    ("interpreter/host_worker.js", _policy(_INTERPRETER)),
    ("worker.js", _policy(_WORKER)),
    ("sw.js", _policy(_COMMON)),
    ("", _policy(_PAGE)),
)
"""Content-Security-Policy by how a file's path ends: the first match. A worker has the policy of its own script."""

META_POLICY = _policy({name: value for name, value in _PAGE.items() if name != "frame-ancestors"})
"""The part that a tag in the page can carry: browsers ignore frame-ancestors there."""

_UNUSED_FEATURES = (
    *("accelerometer", "browsing-topics", "camera", "clipboard-read", "display-capture"),
    *("encrypted-media", "geolocation", "gyroscope", "hid", "idle-detection", "local-fonts", "magnetometer"),
    *("microphone", "midi", "payment", "picture-in-picture", "publickey-credentials-get", "screen-wake-lock"),
    *("serial", "usb", "xr-spatial-tracking"),
)

HEADERS = {
    # SharedArrayBuffer exists only in a page that shares its process with no other origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in _UNUSED_FEATURES),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Sent with every file, besides its Content-Security-Policy."""

# The browser asks every time and gets 304, so a rebuilt site is never mixed with an old one.
SERVER_HEADERS = HEADERS | {"Cache-Control": "no-cache"}
"""Headers that only a server sends: the service worker names its files by their content."""


def headers_of(path: str) -> dict[str, str]:
    """The headers that a server sends with a file of the site. path: from the site's folder, "" for the page."""
    return SERVER_HEADERS | {"Content-Security-Policy": next(policy for end, policy in POLICIES if path.endswith(end))}
