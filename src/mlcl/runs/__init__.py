"""Runs: from a config to a result and to a run folder, and what can be done with a finished run.

``run`` starts and resumes; ``folder`` is the one module that reads and writes the run folder; ``checkpoints``,
``environment`` and ``result`` are what it holds; ``trackers`` report a run to other services. ``trained`` loads a
finished run, which ``predict``, ``export``, ``extend`` and ``features`` put to use.
"""
