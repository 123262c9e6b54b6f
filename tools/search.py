"""Ask the built site's own search, in Chromium: ``python tools/search.py`` (``make docs``).

Each query of `QUERIES` must find its page among the first three hits. Without Chromium it says so and checks nothing.
"""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

SITE = Path(__file__).resolve().parent.parent / "site"
FIRST = 3
QUERIES = {
    "rename a label": "howto/rename-a-label/",
    "add a label": "howto/add-a-label/",
    "probabilities": "howto/probabilities/",
    "out of memory": "howto/out-of-memory/",
    "my own loss": "howto/own-loss/",
}
"""What a user types, and the page that answers it."""
PAGE = """<script>
const send = found => fetch('/found', {method: 'POST', body: JSON.stringify(found)});
(async () => {
  const index = await (await fetch('/search/search_index.json')).json();
  const worker = new Worker('/assets/javascripts/workers/WORKER'), queries = QUERIES, found = [];
  worker.onerror = event => send([event.message]);
  worker.onmessage = ({data: {type, data}}) => {
    if (type === 3) found.push(data.items.map(item => item[0].location));
    if (found.length === queries.length) send(found);
    else if (type === 1 || type === 3) worker.postMessage({type: 2, data: queries[found.length]});
  };
  worker.postMessage({type: 0, data: {config: index.config, docs: index.docs, options: {suggest: false}}});
})().catch(error => send([String(error)]));
</script>"""


def ask(browser: str, queries: list[str], *, site: Path = SITE, seconds: float = 120) -> list[list[str]]:
    """Return the pages that the search of a site finds for each query, best first."""
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search*.js")
    page = PAGE.replace("WORKER", worker.name).replace("QUERIES", json.dumps(queries))
    found: list[list[str]] = []
    done = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(site))

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            if self.path != "/ask":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())
            return None

        def do_POST(self) -> None:
            found.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            done.set()

    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
        command = [browser, *options, f"--user-data-dir={profile}"]
        with subprocess.Popen(  # noqa: S603
            [*command, f"http://127.0.0.1:{server.server_port}/ask"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            answered = done.wait(seconds)
            process.terminate()
        server.shutdown()
    if not answered or any(isinstance(one, str) for one in found):
        raise SystemExit(f"the search did not answer: {found}")
    return found


def main() -> int:
    """Check every query."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.stdout.write("chromium is not installed: the search was not asked\n")
        return 0
    wrong = 0
    for (query, wanted), found in zip(QUERIES.items(), ask(browser, [*QUERIES]), strict=True):
        place = found.index(wanted) + 1 if wanted in found else 0
        wrong += not 0 < place <= FIRST
        sys.stdout.write(f"{query!r}: {wanted} is hit {place or 'none'}; first {found[:FIRST]}\n")
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
