"""A tagger as a service over HTTP: images, vectors or texts in, tags with probabilities out (extra ``serve``).

One process talks to clients (`server`: who may connect; `app`: the routes; `limits`)
and reads nothing of what they send. Others (`workers`) parse, decode and compute (`model`). Nothing that a
client sends is taken for a path, and nothing of it is ever run.
"""
