"""Which of scikit-learn's estimator checks do not apply to a tagger."""

from __future__ import annotations

NO_ZERO_ONE = "gives y as one column with the values 1 and 2; labels are 0 and 1 here"
ONE_D = "gives y as a vector with one class per row; a tagger takes a matrix"
CLASSES = "takes `classes` for the values of y; here they are the names of its columns"
EXCEPTIONS = {
    "check_classifier_data_not_an_array": NO_ZERO_ONE,
    "check_estimators_dtypes": NO_ZERO_ONE,
    "check_fit2d_1feature": NO_ZERO_ONE,
    "check_classifier_not_supporting_multiclass": ONE_D,
    "check_classifiers_classes": ONE_D,
    "check_classifiers_train": "wants the predictions of one column as a vector",
    "check_decision_proba_consistency": ONE_D,
    "check_estimators_partial_fit_n_features": CLASSES,
    "check_n_features_in_after_fitting": CLASSES,
}
"""Checks of scikit-learn that a multi-label estimator cannot pass, and why; docs/howto/one-piece.md lists them too."""

EXACT_EXCEPTIONS = EXCEPTIONS | {
    "check_sample_weights_not_an_array": NO_ZERO_ONE,
    "check_sample_weights_shape": NO_ZERO_ONE,
    "check_sample_weights_not_overwritten": NO_ZERO_ONE,
    "check_estimator_sparse_array": ONE_D,
    "check_estimator_sparse_matrix": ONE_D,
    "check_classifier_multioutput": "predicts above 0; here every label has a threshold of its own",
}
"""Checks of scikit-learn that the exact tagger cannot pass, and why."""
