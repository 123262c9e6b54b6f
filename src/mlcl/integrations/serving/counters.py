"""What the service counts, in the text format of Prometheus; one small class instead of another dependency."""

from __future__ import annotations

import threading
from collections import Counter

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram of seconds."""


class Counters:
    """Requests by route and status, their seconds, and the inputs that were tagged.

    >>> counters = Counters()
    >>> counters.seen("/predict", 200, 0.02)
    >>> counters.tagged(1, 3)
    >>> for line in counters.text().splitlines()[2:3]:
    ...     print(line)
    mlcl_requests_total{route="/predict",status="200"} 1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self._inputs = self._tags = self.waiting = 0

    def seen(self, route: str, status: int, seconds: float) -> None:
        """Count one request; ``route`` must be one of few."""
        with self._lock:
            self._requests[route, status] += 1
            self._buckets[sum(seconds > end for end in BUCKETS)] += 1
            self._seconds += seconds

    def tagged(self, inputs: int, tags: int) -> None:
        """Count inputs, and the tags that they got."""
        with self._lock:
            self._inputs += inputs
            self._tags += tags

    def enter(self, limit: int) -> bool:
        """Count a request that begins to wait; False, and nothing is counted, if as many as allowed do."""
        with self._lock:
            if self.waiting >= limit:
                return False
            self.waiting += 1
            return True

    def leave(self) -> None:
        """Count a request that waits no longer."""
        with self._lock:
            self.waiting -= 1

    def text(self) -> str:
        """Return all values, in the text format of Prometheus."""
        with self._lock:
            requests, buckets = dict(self._requests), list(self._buckets)
            seconds, inputs, tags, waiting = self._seconds, self._inputs, self._tags, self.waiting
        lines = [
            "# HELP mlcl_requests_total Requests by route and status.",
            "# TYPE mlcl_requests_total counter",
        ]
        lines += [
            f'mlcl_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(requests.items())
        ]
        lines += ["# HELP mlcl_request_seconds Seconds per request.", "# TYPE mlcl_request_seconds histogram"]
        total = 0
        for end, count in zip((*(f"{end:g}" for end in BUCKETS), "+Inf"), buckets, strict=True):
            total += count
            lines.append(f'mlcl_request_seconds_bucket{{le="{end}"}} {total}')
        lines += [f"mlcl_request_seconds_sum {seconds:.6f}", f"mlcl_request_seconds_count {total}"]
        for name, kind, words, value in (
            ("mlcl_inputs_total", "counter", "Inputs that were tagged.", inputs),
            ("mlcl_tags_total", "counter", "Tags that they got.", tags),
            ("mlcl_requests_waiting", "gauge", "Requests at work or waiting.", waiting),
        ):
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"
