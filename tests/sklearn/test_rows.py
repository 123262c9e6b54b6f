"""Wrong rows and goals end in one sentence that names the parameter, and change nothing."""

from __future__ import annotations

import pytest

from mlcl.errors import InputError
from mlcl.sklearn import ExactTagger
from taggers import problem


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[0], r"^X has shape \(\d+,\); expected rows of features \[n, D\]\."),
        (lambda x: x + 1j, r"^X has complex numbers; expected real ones\."),
        (lambda x: x.astype(str) + "?", r"^X has an entry that is no number: .*; expected numbers$"),
    ],
    ids=["one row", "complex", "text"],
)
def test_wrong_rows(change, words):
    x, y = problem()
    fitted = ExactTagger().fit(x, y)
    for call in (lambda rows: ExactTagger().fit(rows, y), fitted.predict):
        with pytest.raises(InputError, match=words) as caught:
            call(change(x))
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (
            {"decide": "precisions"},
            r"^decide is 'precisions'; expected one of: .* Did you mean 'precision'\?$",
        ),
        (
            {"decide": "recall", "decide_value": 2},
            r"^decide_value: recall is 2; expected a number above 0, up to 1$",
        ),
        ({"decide_value": 0.9}, r"^decide_value: the goal 'f1' has the value 0\.9; expected none$"),
    ],
)
def test_a_wrong_goal_names_the_parameter(params, words):
    with pytest.raises(InputError, match=words):
        ExactTagger(**params).fit(*problem())
