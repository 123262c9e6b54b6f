"""Runs: from a config to a result and to a run folder.

``run`` starts and resumes, ``continuing`` goes on from a finished run; ``folder`` is the one module that reads and
writes the run folder; ``checkpoints``, ``environment`` and ``result`` are what it holds; ``trackers`` report a run to
other services. ``trained`` loads a finished run. What is done with what was learnt is in `mlcl.taggers`.
"""
