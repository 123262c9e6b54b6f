"""Measurements: ``make bench`` (ratios and goals), ``make growth`` (how cost grows). One file a subject."""
