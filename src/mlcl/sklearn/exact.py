"""The exact tagger: scikit-learn's conventions over `mlcl.exact`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mlcl.arrays import ENDING
from mlcl.errors import InputError, check_choice, check_int, one_line
from mlcl.exact import Learner, Options, Solution, solve
from mlcl.exact.held_rows import HeldOutRows, row_hashes, row_keys
from mlcl.exact.learner import FORMS, Form
from mlcl.exact.ridge import Wanted
from mlcl.metrics import Goal, LogOddsLines, choose_thresholds, macro_auc
from mlcl.metrics.decisions import GoalKind
from mlcl.metrics.scaling import fit_lines
from mlcl.sklearn.array_files import names_of_features, set_features
from mlcl.sklearn.exact_inputs import Annotations, read_annotations, read_features
from mlcl.sklearn.exact_saving import Beside, read_exact_beside, write_exact
from mlcl.sklearn.rows import goal_of
from mlcl.sklearn.targets import Name, check_names, class_array

Floats = NDArray[np.float64]
SHARE = 0.1
"""Of the rows are held out at most, where rows are held out."""
LOST = 0.1
"""A projection that leaves out a larger share of the variance is worth a warning."""


@dataclass
class _Solving:
    """What was solved of the present state, once it was asked for, and the classes that a warning has named."""

    warned: set[Name]
    solution: Solution | None = None
    options: Options | None = None
    thresholds: dict[Goal, Floats] = field(default_factory=dict)


class ExactTagger(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A multi-label tagger on feature vectors that learns by addition: linear, in closed form, from sums over rows.

    It keeps no rows, only counts, sums and second moments per class. So rows may come in any order and in any number
    of calls, one row at a time or a million; new labels may appear in any call; taggers can be merged and rows can be
    forgotten, each with the same result as one call with all the rows. The weights of a class minimise the
    squared surrogate of its AUC over all pairs of a positive and a negative, plus a ridge, which is chosen by how
    unseen rows would score. They are computed when they are first asked for.

    A class may be unknown for a row: it was not annotated. Such rows are negatives of the class with the weight
    ``unlabelled``: 1 suits a tagger whose users see all labels at once, because hidden positives among many rows
    hardly change which direction is best; 0 takes annotated rows only.

    Args:
        form: what is kept: ``shared``, one second moment for all classes that were annotated together, and count, sum
            and sum of squares of each class, and its second moment along 48 directions in which the rows of the first
            call vary most (with more than 256 features, up to 2,000 classes, and not with ``dimensions=None``);
            ``full``, a second moment per class; ``auto``: ``full`` for up to 64 dimensions.
        spread: the weight, from 0 to 1, of the spread of a class's positives beside that of its negatives; ``auto``: by
            the goal.
        goal: what is chosen is chosen for, as far as the sums can predict: the AUC (``auc``), the average precision
            (``ap``), or the mean of both.
        unlabelled: the weight, from 0 to 1, of rows that were not annotated for a class, as its negatives; or the best
            over the rows annotated for a class (``in-task``), or over all rows (``pooled``).
        ridge: a number of at least 0, relative to the variance of the features; ``auto``: the best for unseen rows.
        exponent: how the ridge follows the variance of each feature: 0, not at all; 1, as if features were
            standardised; ``auto``: the best of 0, 0.5 and 1 for unseen rows.
        dimensions: rows with more features are projected to so many principal components of the rows of the first
            call; None: never. Memory and time grow with the square of the number of dimensions.
        decide: what the thresholds of ``predict`` are chosen for, as far as the sums can predict: the best ``f1`` of
            each class, ``f1-overall``, a wanted ``precision`` or ``recall``, or a ``cost`` ratio; see
            `mlcl.metrics.Goal`. It may change at any time.
        decide_value: the wanted precision or recall, or how much more a miss costs than a false alarm. A precision or
            recall is certified on rows that ``calibrate`` holds out, and refused without any.
        calibrate: how many rows are kept and not learnt, to fit probabilities and thresholds on: one in ten by a hash
            of their content, and of those the ones with the lowest hashes, as far as they fit into 16 MiB. None:
            probabilities follow from the sums. Rows with a ``sample_weight`` are always learnt.
        random_state: seed of the directions that are random if the first call has fewer rows than ``dimensions``,
            and more features.

    Attributes:
        classes_: names of all classes, in order of first appearance: the columns of every output.
        coef_: weights, ``[K, D]``.
        intercept_: intercepts, ``[K]``.
        thresholds_: the probability of each class above which it is predicted, ``[K]``.
        priors_: the share of positives among the rows annotated for each class, ``[K]``.
        held_out_: the rows that are kept and not learnt.
        choice_: ridge, exponent and weight of unlabelled rows that were chosen, and the mean AUC they should give.
        nbytes_: the size of the sums in bytes.
        n_features_in_: number of features.
        feature_names_in_: their names, if the first ``X`` had names that are strings.

    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random((400, 3)) < 0.3).astype(int)
    >>> x = y + rng.normal(0, 0.25, y.shape)
    >>> tagger = ExactTagger().partial_fit(x[:150], y[:150, :2], classes=["cat", "dog"])
    >>> tagger = tagger.partial_fit(x[150:300], y[150:300, 2:], classes=["car"])  # a new label, on other rows
    >>> tagger.classes_
    array(['cat', 'dog', 'car'], dtype=object)
    >>> tagger.score(x[300:], y[300:]) > 0.95
    True
    >>> tagger.forget(x[:1], y[:1, :2], classes=["cat", "dog"]).learner_.sums.total.count
    299.0
    """

    classes_: NDArray[Any]
    learner_: Learner
    held_out_: HeldOutRows
    _solving: _Solving

    def __init__(
        self,
        *,
        form: Form = "auto",
        spread: float | Literal["auto"] = "auto",
        goal: Wanted = "both",
        unlabelled: float | Literal["in-task", "pooled"] = 1.0,
        ridge: float | Literal["auto"] = "auto",
        exponent: float | Literal["auto"] = "auto",
        dimensions: int | None = 2048,
        decide: GoalKind = "f1",
        decide_value: float | None = None,
        calibrate: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.form = form
        self.spread = spread
        self.goal = goal
        self.unlabelled = unlabelled
        self.ridge = ridge
        self.exponent = exponent
        self.dimensions = dimensions
        self.decide = decide
        self.decide_value = decide_value
        self.calibrate = calibrate
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Declare that targets are a matrix of labels, each 0 or 1, and that features may be sparse."""
        tags = super().__sklearn_tags__()
        tags.target_tags.one_d_labels = tags.target_tags.single_output = False
        tags.target_tags.two_d_labels = tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: Any,
        classes: Any | None = None,
        *,
        annotated: Any | None = None,
        sample_weight: Any | None = None,
    ) -> Self:
        """Discard the state and learn from these rows alone; the arguments are those of `partial_fit`."""
        return self._learn(X, y, classes, annotated, sample_weight, first=True)

    def partial_fit(
        self,
        X: ArrayLike,
        y: Any,
        classes: Any | None = None,
        *,
        annotated: Any | None = None,
        sample_weight: Any | None = None,
    ) -> Self:
        """Learn from more rows, annotated for new classes, known classes, or both.

        Args:
            X: features, ``[n, D]``: an array, a sparse matrix, or a data frame, whose columns must then be those of
                the first call. Values must be finite, and at most 1e40 in absolute value (`mlcl.errors.LARGEST`).
            y: 0 or 1, ``[n, K]``: an array, nested lists, a sparse matrix, or a data frame, whose columns name the
                classes; or for each row the list or set of its tags.
            classes: a name (string or whole number) for each column of ``y``. By default the columns of a data frame,
                or else the classes known so far; in the first call 0, 1, 2, ... For tags, the names that rows were
                annotated for, by default the known classes and all new tags.
            annotated: which cells of ``y`` are known, bool ``[n, K]``; all by default.
            sample_weight: a weight per row, from 0 to 1e40.
        """
        return self._learn(X, y, classes, annotated, sample_weight, first=not hasattr(self, "classes_"))

    def forget(
        self,
        X: ArrayLike,
        y: Any,
        classes: Any | None = None,
        *,
        annotated: Any | None = None,
        sample_weight: Any | None = None,
    ) -> Self:
        """Take rows back: the tagger becomes what it would be without them, up to rounding.

        The arguments must be those with which the rows were learnt. Rows that cannot have been learnt, as far as the
        sums show it, are refused with an `InputError`, and nothing changes. The feature map stays.
        """
        check_is_fitted(self, "classes_")
        known = self.classes_.tolist()
        rows = read_features(self, X, reset=False)
        given = read_annotations(
            y,
            classes,
            rows=rows.shape[0],
            known=known,
            only_known=True,
            annotated=annotated,
            sample_weight=sample_weight,
        )
        ids = [known.index(name) for name in given.names]
        own, aside = self._aside(rows, given, ids, len(known))
        held, found = self.held_out_.without(own)
        learnt = np.ones(rows.shape[0], np.bool_)
        learnt[aside[found]] = False
        after = self.learner_
        if learnt.any() or not len(learnt):
            after = after.forget(*_some(rows, given, learnt), ids, **_marked(given, learnt), names=known)
        return self._become(after, held=held)

    def merge(self, other: ExactTagger) -> Self:
        """Add what another tagger has learnt, as if its rows had been learnt here.

        Classes with the same name are the same class. Taggers whose features are projected must share the projection:
        begin the other one with `spawn`.

        Args:
            other: the other tagger; it stays as it is.
        """
        check_is_fitted(self, "classes_")
        if not isinstance(other, ExactTagger):
            raise InputError(f"other is a {type(other).__name__}; expected an ExactTagger")
        check_is_fitted(other, "classes_")
        if other.n_features_in_ != self.n_features_in_:
            raise InputError(
                f"other has {other.n_features_in_} features, but this tagger has {self.n_features_in_}; "
                f"expected the same"
            )
        mine, theirs = (getattr(one, "feature_names_in_", None) for one in (self, other))
        if mine is not None and theirs is not None and list(mine) != list(theirs):
            raise InputError(
                "the names of the features of other differ; expected the same names in the same order"
            )
        names = check_names(other.classes_.tolist(), "other.classes_", self.classes_.tolist())
        position = {name: k for k, name in enumerate(dict.fromkeys([*self.classes_.tolist(), *names]))}
        ids = [position[name] for name in names]
        merged = self.learner_.merge(other.learner_, ids)
        held = self.held_out_.placed(range(len(self.classes_)), len(position))
        held, more = held.joined(other.held_out_.placed(ids, len(position)), self._most(other))
        return self._become(_learnt_too(merged, more), list(position), held=held)

    def remove(self, label: Name) -> Self:
        """Remove a class. The rows annotated for it stay, as rows of other classes or as unlabelled ones."""
        k = self._number(label)
        names = self.classes_.tolist()
        left = [j for j in range(len(names)) if j != k]
        held = replace(
            self.held_out_, labels=self.held_out_.labels[:, left], known=self.held_out_.known[:, left]
        )
        return self._become(self.learner_.remove(k), [names[j] for j in left], held=held)

    def rename(self, names: Mapping[Name, Name]) -> Self:
        """Give classes new names.

        Args:
            names: the new name of each class that changes its name.
        """
        for label in names:
            self._number(label)
        changed = [names.get(name, name) for name in self.classes_.tolist()]
        return self._become(self.learner_, check_names(changed, "names", []))

    def spawn(self) -> ExactTagger:
        """Return a tagger with the same feature map, classes and parameters that has learnt nothing.

        Send it, by `save`, to another machine or owner, let it learn there, and `merge` it back.
        """
        check_is_fitted(self, "classes_")
        fresh = type(self)(**self.get_params())
        fresh.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            fresh.feature_names_in_ = self.feature_names_in_
        nothing = HeldOutRows.none(self.n_features_in_, len(self.classes_))
        return fresh._become(self.learner_.empty(), self.classes_.tolist(), held=nothing)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the log-odds of each class, ``[n, K]``, in the order of ``classes_``: ``X coef_' + intercept_``."""
        check_is_fitted(self, "classes_")
        return self._solved().scores(read_features(self, X, reset=False))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class, ``[n, K]``; a row need not sum to 1, because labels are independent.

        It is the probability in rows of the kind that was annotated for the class.
        """
        check_is_fitted(self, "classes_")
        return self._solved().probabilities(read_features(self, X, reset=False))

    def predict_top(self, X: ArrayLike, n: int = 10) -> tuple[NDArray[Any], Floats]:
        """Return the n surest classes of each row by name, best first, and their probabilities, ``[rows, n]``.

        Memory does not grow with rows times classes, so that there may be a hundred thousand classes.
        """
        check_is_fitted(self, "classes_")
        check_int("n", n, 1)
        best, scores = self._solved().top(read_features(self, X, reset=False), n)
        return self.classes_[best], expit(scores)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return 1 for each class whose probability exceeds its threshold, ``[n, K]``; see ``decide``."""
        return (self.predict_proba(X) > self.thresholds_).astype(np.int64)

    def score(self, X: ArrayLike, y: Any, classes: Any | None = None) -> float:
        """Return the Macro-AUC over the columns of ``y``; classes without positives or without negatives are left out.

        If that leaves no class, it is nan, with a warning.

        Args:
            X: features, ``[n, D]``.
            y: 0 or 1, ``[n, K]``, or tags, as in `partial_fit`.
            classes: the names of the columns of ``y``, as in `partial_fit`; they must be known.
        """
        values = self.decision_function(X)
        known = self.classes_.tolist()
        given = read_annotations(y, classes, rows=len(values), known=known, only_known=True)
        found = macro_auc(values[:, [known.index(name) for name in given.names]], given.labels)
        if np.isnan(found):
            warnings.warn(
                "no class has both positives and negatives in y, so the score is undefined (nan)",
                UserWarning,
                stacklevel=2,
            )
        return found

    @property
    def coef_(self) -> Floats:
        """The weights ``[K, D]``, on the features as they are passed."""
        return self._solved().weights

    @property
    def intercept_(self) -> Floats:
        """The intercepts ``[K]``."""
        return self._solved().intercepts

    @property
    def thresholds_(self) -> Floats:
        """The probability of each class above which it is predicted, ``[K]``."""
        goal = goal_of(self.decide, self.decide_value)
        if goal.certified and not len(self.held_out_):
            raise InputError(
                f"decide is {str(self.decide)!r}, which is certified on rows that are not learnt, and none were held "
                "out; expected a tagger that kept some: ExactTagger(calibrate=400)"
            )
        solution = self._solved()
        if goal not in self._solving.thresholds:
            held = self.held_out_
            found = (
                choose_thresholds(
                    solution.probabilities(held.inputs), held.labels, goal=goal, mask=held.known
                ).values
                if len(held)
                else expit(solution.thresholds(goal))
            )
            self._solving.thresholds = {goal: found}
        return self._solving.thresholds[goal]

    @property
    def priors_(self) -> Floats:
        """The share of positives among the rows annotated for each class, ``[K]``."""
        return self._solved().prior

    @property
    def choice_(self) -> Any:
        """Ridge, exponent and weight of unlabelled rows that were chosen, a `mlcl.exact.ridge.Choice`."""
        return self._solved().choice

    @property
    def nbytes_(self) -> int:
        """The size of the sums in bytes."""
        check_is_fitted(self, "classes_")
        return self.learner_.nbytes

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the tagger; loading it runs no code.

        Args:
            path: a folder, which every command that uses a tagger takes (``mlcl predict``, ``serve``, ``update``, ...);
                or a name that ends in ``.safetensors``, for one file of arrays and JSON that `load` alone reads.
            overwrite: replace an existing file, or a folder that holds a tagger.
        """
        check_is_fitted(self, "classes_")
        if Path(path).suffix != ENDING:
            self._save_folder(Path(path), overwrite=overwrite)
            return
        write_exact(
            Path(path),
            self.learner_,
            params=self.get_params(),
            classes=self.classes_.tolist(),
            feature_names=names_of_features(self),
            overwrite=overwrite,
            beside=Beside({"held_out": True}, vars(self.held_out_)) if len(self.held_out_) else None,
        )

    def _save_folder(self, path: Path, *, overwrite: bool) -> None:
        from mlcl.runs.folder import claim_folder  # of torch, which learning does not need
        from mlcl.taggers.sums import LearntSums, write_sums

        names = self.classes_.tolist()
        numbers = all(isinstance(name, int) for name in names)
        if not numbers and not all(isinstance(name, str) for name in names):
            raise InputError(
                "the names of the classes are numbers and texts; expected one of both: rename some (ExactTagger.rename)"
            )
        features = names_of_features(self)
        learnt = LearntSums(
            self.learner_,
            tuple(str(name) for name in names),
            self._options(),
            self.dimensions,
            self.form,
            goal_of(self.decide, self.decide_value),
            numbers,
            None if features is None else tuple(features),
            int(self.random_state) if isinstance(self.random_state, int | np.integer) else None,
            share=SHARE if self.calibrate else 0.0,
            held_out=self.held_out_ if len(self.held_out_) else None,
            calibrate=self.calibrate,
        )
        claim_folder(path, overwrite=overwrite)
        write_sums(path, learnt, command="written by mlcl.sklearn.ExactTagger.save")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return a tagger from what `save` wrote, or from the folder of any run of the exact learner on vectors.

        Of a folder with versions it is the one in use. A corrupt file, or one of another kind, is an `InputError`.
        """
        if Path(path).is_dir():
            return cls._load_folder(Path(path))
        learner, params, classes, feature_names, beside = read_exact_beside(Path(path))
        held = HeldOutRows.none(learner.features.features, len(classes))
        if beside is not None and "held_out" in beside.header:
            held = _read_held(beside.arrays, held, path)
        try:
            tagger = cls(**params)
            tagger._options()
        except (TypeError, InputError) as error:
            raise InputError(f"{path} is corrupt: {one_line(error)}.") from None
        set_features(tagger, learner.features.features, feature_names)
        return tagger._become(learner, classes, held=held)

    @classmethod
    def _load_folder(cls, path: Path) -> Self:
        from mlcl.taggers.sums import load_sums

        found = load_sums(path)
        options, goal = found.options, found.goal
        tagger = cls(
            **asdict(options),
            form=found.form,
            dimensions=found.dimensions,
            decide=goal.kind,
            decide_value=goal.value,
            calibrate=found.calibrate,
            random_state=found.seed,
        )
        features = None if found.features is None else list(found.features)
        set_features(tagger, found.learner.features.features, features)
        names: list[Name] = [int(c) if found.numbers else c for c in found.classes]
        held = found.held_out or HeldOutRows.none(found.learner.features.features, len(names))
        return tagger._become(found.learner, names, held=held)

    def _learn(
        self, X: Any, y: Any, classes: Any, annotated: Any, sample_weight: Any, *, first: bool
    ) -> Self:
        self._options()
        kept = {name: value for name, value in vars(self).items() if name.endswith("_in_")}
        known = [] if first else self.classes_.tolist()
        try:
            rows = read_features(self, X, reset=first)
            given = read_annotations(
                y, classes, rows=rows.shape[0], known=known, annotated=annotated, sample_weight=sample_weight
            )
            before = self._begin(rows) if first else self.learner_
            position = {name: k for k, name in enumerate(dict.fromkeys([*known, *given.names]))}
            ids = [position[name] for name in given.names]
            held = HeldOutRows.none(rows.shape[1], 0) if first else self.held_out_
            held = held.placed(range(held.labels.shape[1]), len(position))
            learnt = np.ones(rows.shape[0], np.bool_)
            if self.calibrate is not None:
                own, aside = self._aside(rows, given, ids, len(position))
                learnt[aside] = False
                held, more = held.joined(own, self._most())
            after = before.learn(*_some(rows, given, learnt), ids, **_marked(given, learnt))
            if self.calibrate is not None:
                after = _learnt_too(after, more)
        except ValueError:
            # The number and names of the features are still those of the state.
            for name in [name for name in vars(self) if name.endswith("_in_")]:
                delattr(self, name)
            self.__dict__.update(kept)
            raise
        return self._become(after, list(position), held=held, fresh=first)

    def _most(self, other: ExactTagger | None = None) -> int:
        """Return how many rows are kept; where a tagger does not say, as many as there are."""
        return self.calibrate or sum(len(one.held_out_) for one in (self, other) if one is not None)

    def _aside(
        self, rows: Any, given: Annotations, ids: list[int], classes: int
    ) -> tuple[HeldOutRows, NDArray[np.int64]]:
        """Return which of some rows are to be held out, by their content alone, as rows of all classes."""
        keys = row_keys(row_hashes(rows))
        chosen = np.flatnonzero((keys < np.uint64(int(SHARE * 2**64))) & (given.weights is None))
        taken, labels = rows[chosen], given.labels[chosen]
        known = np.ones(labels.shape, np.bool_) if given.annotated is None else given.annotated[chosen]
        taken, labels = (one.toarray() if hasattr(one, "toarray") else one for one in (taken, labels))
        own = HeldOutRows(taken, np.asarray(labels, np.uint8), known, keys[chosen])
        return own.placed(ids, classes), chosen

    def _begin(self, rows: Any, *, fixed: bool | None = None) -> Learner:
        """Return a learner with the feature map of the first rows."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        learner = Learner.begin(rows, dimensions=self.dimensions, seed=seed, form=self.form, fixed=fixed)
        if learner.features.lost > LOST:
            warnings.warn(
                f"the projection of {rows.shape[1]} features to {learner.features.dimension} leaves out "
                f"{learner.features.lost:.0%} of their variance, and what it says; pass dimensions=None, or a larger "
                "number",
                UserWarning,
                stacklevel=4,
            )
        if learner.features.random:
            warnings.warn(
                f"the first call has {rows.shape[0]} rows, which determine "
                f"{learner.features.dimension - learner.features.random} of {learner.features.dimension} principal "
                f"components; the other directions are random. Pass more rows in the first call, or dimensions=None.",
                UserWarning,
                stacklevel=4,
            )
        return learner

    def _become(
        self,
        learner: Learner,
        classes: list[Name] | None = None,
        *,
        held: HeldOutRows | None = None,
        fresh: bool = False,
    ) -> Self:
        """Take over a state; the weights are solved when they are asked for."""
        self.learner_ = learner
        if held is not None:
            self.held_out_ = held
        if classes is not None:
            self.classes_ = class_array(classes)
        self._solving = _Solving(set() if fresh or not hasattr(self, "_solving") else self._solving.warned)
        return self

    def _solved(self) -> Solution:
        check_is_fitted(self, "classes_")
        options = self._options()
        if self._solving.solution is None or self._solving.options != options:
            self._solving.solution, self._solving.options = self._calibrated(options), options
            self._solving.thresholds = {}
            self._warn(self._solving.solution)
        return self._solving.solution

    def _calibrated(self, options: Options) -> Solution:
        """Return the solution, its scores made log-odds by the rows that are held out, if there are any."""
        found, held = solve(self.learner_, options), self.held_out_
        if not len(held):
            return found
        lines, _ = fit_lines(
            found.scores(held.inputs),
            held.labels,
            start=LogOddsLines.identity(len(found.prior)),
            prior=found.prior,
            mask=held.known,
        )
        return found.on_lines(lines.slope, lines.offset)

    def _warn(self, solution: Solution) -> None:
        """Say once which classes have no positive or no negative row."""
        names = zip(self.classes_.tolist(), solution.defined, strict=True)
        lacking = [name for name, defined in names if not defined and name not in self._solving.warned]
        if lacking:
            warnings.warn(
                f"the classes {lacking} have no positive or no negative row so far; their score is their prior",
                UserWarning,
                stacklevel=4,
            )
            self._solving.warned |= set(lacking)
        negative = self.learner_.sums.counts(0.0)[1]
        only = [
            name
            for name, known, defined in zip(
                self.classes_.tolist(), negative > 0, solution.defined, strict=True
            )
            if defined and not known and name not in self._solving.warned
        ]
        if only:
            warnings.warn(
                f"the classes {only} have positive rows only: their probabilities take every other row for a negative, "
                "and are too low by the share of positives among those",
                UserWarning,
                stacklevel=4,
            )
            self._solving.warned |= set(only)

    def _number(self, label: Name) -> int:
        check_is_fitted(self, "classes_")
        known = self.classes_.tolist()
        if label not in known:
            raise InputError(f"label is {label!r}; expected one of {known}")
        return int(known.index(label))

    def _options(self) -> Options:
        """Check the parameters: by scikit-learn's conventions when fitting, not in ``__init__``."""
        if self.dimensions is not None:
            check_int("dimensions", self.dimensions, 1)
        check_choice("form", self.form, FORMS)
        goal_of(self.decide, self.decide_value)
        if self.calibrate is not None:
            check_int("calibrate", self.calibrate, 1)
        return Options(**{one.name: getattr(self, one.name) for one in fields(Options)})


def _some(rows: Any, given: Annotations, chosen: NDArray[np.bool_]) -> tuple[Any, Any]:
    return (rows, given.labels) if chosen.all() else (rows[chosen], given.labels[chosen])


def _marked(given: Annotations, chosen: NDArray[np.bool_]) -> dict[str, Any]:
    annotated, weights = given.annotated, given.weights
    return {"annotated": None if annotated is None else annotated[chosen], "weights": weights}


def _learnt_too(learner: Learner, rows: HeldOutRows) -> Learner:
    """Return the learner that has seen rows that are not held out any more, each for the labels that are known."""
    if not len(rows):
        return learner
    patterns, own = np.unique(rows.known, axis=0, return_inverse=True)
    for number, known in enumerate(patterns):  # one per call that they came with, rather than per row
        some, ids = own.ravel() == number, np.flatnonzero(known)
        learner = learner.learn(rows.inputs[some], rows.labels[np.ix_(some, ids)], ids.tolist())
    return learner


def _read_held(arrays: Mapping[str, NDArray[Any]], nothing: HeldOutRows, path: str | Path) -> HeldOutRows:
    found = HeldOutRows(*(arrays[name] for name in vars(nothing)))
    fits = all(
        getattr(found, name).shape[1:] == like.shape[1:] and len(getattr(found, name)) == len(found)
        for name, like in vars(nothing).items()
    )
    types = all(
        getattr(found, name).dtype == like.dtype for name, like in vars(nothing).items() if name != "inputs"
    )
    fits = fits and types and found.inputs.dtype.kind == "f" and bool(np.isfinite(found.inputs).all())
    if not fits or (found.labels > found.known).any():
        raise InputError(f"{path} is corrupt: the rows that were held out do not fit together.")
    return found
