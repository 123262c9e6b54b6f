"""Training: `loop` is the training loop, `learner` what it works on.

``batches``: which rows a step sees, and how they become tensors. ``evaluation``: what is measured after each task.
``optimisation``: optimiser and learning-rate schedule. ``state``: what a checkpoint holds. ``callbacks``: hooks that
are called while training. ``processes`` and ``launching``: several processes that train one network. ``replay``: the
same batches for a loop of your own.
"""
