"""The estimator: scikit-learn's conventions over `mlcl.sklearn.learning`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mlcl.config.schema import TrainConfig
from mlcl.errors import InputError, check_choice, check_int, check_number, one_line
from mlcl.memories import Memory
from mlcl.metrics import macro_auc
from mlcl.metrics.decisions import GoalKind
from mlcl.models import MODELS
from mlcl.sklearn.array_files import names_of_features, set_features
from mlcl.sklearn.learning import Inputs, Learnt, Settings, begin, learn, scores
from mlcl.sklearn.rows import check_rows, goal_of
from mlcl.sklearn.saving import read_tagger, write_tagger
from mlcl.sklearn.targets import class_array, read_targets

Floats = NDArray[np.float64]
DEFAULTS: dict[str, dict[str, Any]] = {
    "linear": {"weight_decay": 100.0},
    "mlp": {"epochs": 10, "batch_size": 128, "lr": 0.005, "weight_decay": 0.03},
}
"""How each model is trained unless a parameter says otherwise: docs/decisions.md#tagger-defaults."""


class ContinualTagger(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A multi-label tagger on feature vectors that learns new labels over time, with the RLDAM loss and a WRU memory.

    The ``classes`` of ``partial_fit(X, y, classes=names)`` name the columns of ``y``; they may be new classes, known
    classes, or both. A known class that is not among them is *unknown* for these rows, not negative: a row contributes
    to the loss only for the classes that it was annotated for. Each call learns from its rows together with rows of
    earlier calls. Those are stored in the estimator without any transformation, at most ``memory_size`` of them,
    selected so that every label set keeps its proportions of positives.

    A part of the rows is not trained on, but stored, at most ``memory_size`` of them: by these rows the network's
    scores become probabilities, and the thresholds of ``predict`` are chosen (docs/calibration.md).

    Pass hundreds of rows or more per call, not single rows: the loss compares the positives and negatives of a call.
    Rows with the same label set form one task, even if they come in several calls; many label sets with few rows each
    are hard to learn from.

    Args:
        model: ``linear``: one weight vector per class, solved to the minimum of the loss, and no shared layer, so that
            a call changes no class but its own; or ``mlp``, trained by SGD, for features that are not good enough for
            that, and thousands of rows.
        hidden: width of the hidden layers (``mlp``; 256 if not given).
        depth: number of hidden layers (``mlp``; 2 if not given).
        memory_size: the number of rows to store, over all calls.
        margin: lambda of the margins lambda / P_k^(1/4).
        epochs: passes over the rows of a call (``mlp``; 10 if not given).
        batch_size: rows of the call per step; as many rows of the memory are added (``mlp``; 128 if not given).
        lr: learning rate of SGD, multiplied by 0.4 after 3/8 and again after 5/8 of the epochs of each call (``mlp``;
            0.005 if not given).
        weight_decay: of SGD (``mlp``; 0.03 if not given); for ``linear`` half of it, divided by the number of
            positives of the class, is the weight of the squared norm of its weights on standardised features (100).
        held_out: share of the rows of each call that are not trained on, from 0 to below 1.
        decide: what the thresholds of ``predict`` are chosen for: the best ``f1`` of each class, ``f1-overall``, a
            wanted ``precision`` or ``recall``, or a ``cost`` ratio; see `mlcl.metrics.Goal`. It may change at any time.
        decide_value: the wanted precision or recall, or how much more a miss costs than a false alarm.
        random_state: seed of all random draws. The same calls with the same seed give the same tagger, on the
            same number of CPU threads.

    Attributes:
        classes_: names of all classes, in order of first appearance: the columns of every output.
        memory_: the labels of the stored rows and the label counts of each label set, a `Memory`.
        memory_inputs_: the stored rows, as they were passed.
        thresholds_: the probability of each class above which it is predicted.
        n_features_in_: number of features.
        feature_names_in_: their names, if the first ``X`` had names that are strings.

    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random((400, 3)) < 0.3).astype(int)
    >>> x = y + rng.normal(0, 0.25, y.shape)
    >>> tagger = ContinualTagger(random_state=0)
    >>> tagger = tagger.partial_fit(x[:300], y[:300, :2], classes=["cat", "dog"])
    >>> tagger = tagger.partial_fit(x[:300], y[:300, 2:], classes=["car"])  # a new label
    >>> tagger.classes_
    array(['cat', 'dog', 'car'], dtype=object)
    >>> tagger.score(x[300:], y[300:]) > 0.95
    True
    """

    classes_: NDArray[Any]
    _learnt: Learnt

    def __init__(
        self,
        *,
        model: Literal["mlp", "linear"] = "linear",
        hidden: int | None = None,
        depth: int | None = None,
        memory_size: int = 1000,
        margin: float = 1.0,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        held_out: float = 0.1,
        decide: GoalKind = "f1",
        decide_value: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.depth = depth
        self.memory_size = memory_size
        self.margin = margin
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.held_out = held_out
        self.decide = decide
        self.decide_value = decide_value
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Declare that targets are a matrix of labels, each 0 or 1."""
        tags = super().__sklearn_tags__()
        tags.target_tags.one_d_labels = tags.target_tags.single_output = False
        tags.target_tags.two_d_labels = tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: ArrayLike, y: Any, classes: Any | None = None) -> Self:
        """Discard the state and learn from these rows alone; the arguments are those of `partial_fit`."""
        return self._learn(X, y, classes, first=True)

    def partial_fit(self, X: ArrayLike, y: Any, classes: Any | None = None) -> Self:
        """Learn from more rows, annotated for new classes, known classes, or both.

        Args:
            X: features, ``[n, D]``: an array, or a data frame, whose columns must then be those of the first call.
            y: 0 or 1, ``[n, K]``: an array, nested lists, a sparse matrix, or a data frame, whose columns name the
                classes; or a list or set of tags per row, which annotates all known classes and the new tags.
            classes: a name (string or whole number) for each column of ``y``. By default the columns of a data frame,
                or else the classes known so far; in the first call 0, 1, 2, ...
        """
        return self._learn(X, y, classes, first=not hasattr(self, "classes_"))

    def _learn(self, X: ArrayLike, y: Any, classes: Any | None, *, first: bool) -> Self:
        settings = self._settings()
        x = self._inputs(X, reset=first)
        known = [] if first else self.classes_.tolist()
        names, labels = read_targets(y, classes, known=known, rows=len(x))
        position = {name: k for k, name in enumerate(dict.fromkeys([*known, *names]))}
        if first:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            before = begin(x, settings, seed=seed)
        else:
            before = self._learnt
        ids = np.array([position[name] for name in names], np.int64)
        self._learnt = learn(before, x, labels, ids, classes=len(position), settings=settings)
        self.classes_ = class_array(list(position))
        lacking = [name for name, k in zip(names, ids, strict=True) if not self._learnt.counts.defined[k]]
        if lacking:
            warnings.warn(
                f"the classes {lacking} have no positive or no negative row so far; they are not learnt yet",
                UserWarning,
                stacklevel=3,
            )
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the log-odds of each class, ``[n, K]``, in the order of ``classes_``."""
        check_is_fitted(self, "classes_")
        return scores(self._learnt, self._inputs(X, reset=False))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class, ``[n, K]``; a row need not sum to 1, because labels are independent.

        It is the probability in rows of the kind that was annotated for the class.
        """
        return np.exp(-np.logaddexp(0, -self.decision_function(X)))

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return 1 for each class whose probability exceeds its threshold, ``[n, K]``; see ``decide``."""
        return (self.predict_proba(X) > self.thresholds_).astype(np.int64)

    @property
    def thresholds_(self) -> Floats:
        """The probability of each class above which it is predicted, ``[K]``: chosen on the rows held out."""
        check_is_fitted(self, "classes_")
        learnt = self._learnt
        return learnt.held_out.thresholds(learnt.lines, goal_of(self.decide, self.decide_value)).values

    def score(self, X: ArrayLike, y: Any, classes: Any | None = None) -> float:
        """Return the Macro-AUC over the columns of ``y``; classes without positives or without negatives are left out.

        Args:
            X: features, ``[n, D]``.
            y: 0 or 1, ``[n, K]``.
            classes: the names of the columns of ``y``, as in `partial_fit`; they must be known.
        """
        values = self.decision_function(X)
        known = self.classes_.tolist()
        names, labels = read_targets(y, classes, known=known, rows=len(values), only_known=True)
        return macro_auc(values[:, [known.index(name) for name in names]], labels)

    @property
    def memory_(self) -> Memory:
        """Labels and label counts of the stored samples, one task per label set."""
        check_is_fitted(self, "classes_")
        return self._learnt.memory

    @property
    def memory_inputs_(self) -> Inputs:
        """The stored rows ``[M, D]``, in the order that ``memory_.rows`` refers to."""
        check_is_fitted(self, "classes_")
        return self._learnt.inputs

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the tagger to one safetensors file of tensors and JSON; loading it runs no code.

        A ``random_state`` that is not a number is not saved. A loaded tagger nevertheless continues exactly as this one
        would, because its seed is saved.

        Args:
            path: the file.
            overwrite: replace an existing file.
        """
        check_is_fitted(self, "classes_")
        write_tagger(
            Path(path),
            self._learnt,
            params=self.get_params(),
            classes=self.classes_.tolist(),
            feature_names=names_of_features(self),
            overwrite=overwrite,
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the tagger that `save` wrote; a corrupt file, or one of another kind, raises an `InputError`."""
        learnt, params, classes, feature_names = read_tagger(Path(path))
        try:
            tagger = cls(**params)
            tagger._settings()
        except (TypeError, InputError) as error:
            raise InputError(f"{path} is corrupt: {one_line(error)}.") from None
        tagger._learnt, tagger.classes_ = learnt, class_array(classes)
        set_features(tagger, learnt.inputs.shape[1], feature_names)
        return tagger

    def _inputs(self, X: ArrayLike, *, reset: bool) -> Inputs:
        """Check features as scikit-learn does."""
        x: Inputs = check_rows(self, X, reset=reset, dtype=np.float32)
        return x

    def _settings(self) -> Settings:
        """Check the parameters: by scikit-learn's conventions when fitting, not in ``__init__``."""
        check_choice("model", self.model, ("mlp", "linear"))
        given = {"hidden": self.hidden, "depth": self.depth}
        options = {name: check_int(name, value, 1) for name, value in given.items() if value is not None}
        MODELS.check(self.model, options)
        check_int("memory_size", self.memory_size, 0)
        check_number("margin", self.margin)
        check_number("held_out", self.held_out, high=0.9)
        goal_of(self.decide, self.decide_value)
        chosen = dict(DEFAULTS[self.model])
        for name in DEFAULTS["mlp"]:
            value = getattr(self, name)
            if value is None:
                continue
            if name not in chosen:
                raise InputError(
                    f"{name} is {value!r}, but model='linear' is solved without it; expected None"
                )
            whole = name in ("epochs", "batch_size")
            chosen[name] = check_int(name, value, 1) if whole else check_number(name, value)
        model = {"kind": self.model, **options}
        return Settings(model, self.memory_size, self.margin, TrainConfig(**chosen), self.held_out)
