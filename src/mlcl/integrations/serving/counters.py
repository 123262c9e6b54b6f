"""What the service counts, in the text format of Prometheus; one small class instead of another dependency."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram of seconds."""


class Counters:
    """Requests by route and status, the seconds of those that were tagged, and their inputs.

    >>> counters = Counters()
    >>> counters.seen("/predict", 200)
    >>> counters.tagged(0.02, 1, 3)
    >>> for line in counters.text().splitlines()[2:3]:
    ...     print(line)
    mlcl_requests_total{route="/predict",status="200"} 1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self._inputs = self._tags = 0

    def seen(self, route: str, status: int) -> None:
        """Count one request; ``route`` must be one of few."""
        with self._lock:
            self._requests[route, status] += 1

    def tagged(self, seconds: float, inputs: int, tags: int) -> None:
        """Count an answer: refusals, which are quick, do not hide how long answers take."""
        with self._lock:
            self._buckets[sum(seconds > end for end in BUCKETS)] += 1
            self._seconds += seconds
            self._inputs += inputs
            self._tags += tags

    def text(self, more: Iterable[tuple[str, str, str, float]] = ()) -> str:
        """Return all values, in the text format of Prometheus.

        Args:
            more: name, kind, description and value of others.
        """
        with self._lock:
            requests, buckets = dict(self._requests), list(self._buckets)
            seconds, inputs, tags = self._seconds, self._inputs, self._tags
        lines = [
            "# HELP mlcl_requests_total Requests by route and status.",
            "# TYPE mlcl_requests_total counter",
        ]
        lines += [
            f'mlcl_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(requests.items())
        ]
        lines += [
            "# HELP mlcl_request_seconds Seconds per request that was tagged.",
            "# TYPE mlcl_request_seconds histogram",
        ]
        total = 0
        for end, count in zip((*(f"{end:g}" for end in BUCKETS), "+Inf"), buckets, strict=True):
            total += count
            lines.append(f'mlcl_request_seconds_bucket{{le="{end}"}} {total}')
        lines += [f"mlcl_request_seconds_sum {seconds:.6f}", f"mlcl_request_seconds_count {total}"]
        for name, kind, words, value in (
            ("mlcl_inputs_total", "counter", "Inputs that were tagged.", inputs),
            ("mlcl_tags_total", "counter", "Tags that they got.", tags),
            *more,
        ):
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"
