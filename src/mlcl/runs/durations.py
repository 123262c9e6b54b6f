"""How durations are written, in the terminal and on pages: one that was measured, and one that is estimated."""

from __future__ import annotations


def measured(seconds: float) -> str:
    """Return a duration that was measured; a short one with as many digits as it takes to be more than 0.

    >>> [measured(s) for s in (0.0004, 0.032, 0.3, 8.04, 59.96, 95, 7300)]
    ['under 0.01 s', '0.03 s', '0.3 s', '8.0 s', '1 min 0 s', '1 min 35 s', '2 h 1 min']
    """
    if seconds < 0.005:
        return "under 0.01 s"
    if seconds < 0.05:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def estimated(seconds: float) -> str:
    """Return a duration that is not exact.

    >>> [estimated(s) for s in (3.2, 89, 150, 5400, 200000)]
    ['3 s', '89 s', '3 min', '1 h 30 min', '2 d 7 h']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = -(-int(seconds) // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
