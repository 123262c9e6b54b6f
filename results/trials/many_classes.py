"""Make a dataset with many classes: ``python results/trials/many_classes.py 400 many400.npz``, then
``mlcl data prepare arrays --root many400.npz --out many400`` (lab/decisions.md, the loss and the number of classes).
"""

import sys

import numpy as np

K, path = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
n, d = 4000, 64
weights, x = rng.normal(size=(d, K)), rng.normal(size=(2 * n, d)).astype(np.float32)
rate = 0.3 * (0.01 / 0.3) ** (np.arange(K) / (K - 1))  # from 30 % down to 1 % positives
scores = x @ weights / np.sqrt(d) + 0.5 * rng.normal(size=(2 * n, K))
y = np.stack([scores[:, k] > np.quantile(scores[:, k], 1 - rate[k]) for k in range(K)], 1).astype(np.uint8)
np.savez(path, x_train=x[:n], y_train=y[:n], x_test=x[n:], y_test=y[n:])
