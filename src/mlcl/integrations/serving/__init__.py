"""A finished run as a service over HTTP: images or vectors in, tags with probabilities out (extra ``serve``).

`tagger` is the model, loaded once; `app` the routes and their limits; `counters` what ``/metrics`` shows; `server` the
process. Nothing that a client sends is taken for a path, and nothing of it is ever run.
"""
