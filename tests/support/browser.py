"""Pages in a real browser: how wide they are, what they draw, and what the console says."""

from __future__ import annotations

import html
import json
import re
import shutil

from children import complete

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """<script>
window.onerror = (message) => { document.title = 'error ' + message };
addEventListener('load', () => {
  const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg')
    && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className);
  const charts = [...document.querySelectorAll('svg.chart')];
  const drawn = charts.filter(e => { const b = e.getBoundingClientRect();
    return b.width > 150 && b.height > 60 && e.querySelectorAll('path, use, rect').length > 5 });
  parent.postMessage({inner: innerWidth, scroll: document.documentElement.scrollWidth, wide, charts: charts.length,
    drawn: drawn.length, background: getComputedStyle(document.body).backgroundColor}, '*');
});
</script>"""
FRAME = """<!doctype html><title>waiting</title>
<style>body{{margin:0}}iframe{{border:0;width:{width}px;height:900px}}</style>
<script>addEventListener('message', e => {{ document.title = JSON.stringify(e.data) }});</script>
<iframe src="probe.html"></iframe>"""
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0"),
)


def browse(options, folder, name):
    """Open a page of a folder in Chromium; messages of the console go to stderr."""
    command = [
        CHROMIUM,
        *SWITCHES,
        f"--user-data-dir={folder / 'profile'}",
        *options,
        (folder / name).as_uri(),
    ]
    return complete(command)


def probed(page, folder, width, *options):
    """Return what the probe sees of a page in a frame of this width: a window is never under 500 pixels."""
    (folder / "probe.html").write_text(page.replace("</body>", f"{PROBE}</body>"))
    (folder / "frame.html").write_text(FRAME.format(width=width))
    flags = ["--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom"]
    done = browse([*options, *flags], folder, "frame.html")
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None, done.stderr
    return json.loads(html.unescape(title[1])), done.stderr
