"""Wrong rows and goals end in one sentence that names the parameter, for both taggers."""

from __future__ import annotations

import pytest

from mlcl.errors import InputError
from mlcl.sklearn import ContinualTagger, ExactTagger
from taggers import problem

TAGGERS = pytest.mark.parametrize("kind", [ContinualTagger, ExactTagger])


@TAGGERS
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[0], r"^X has shape \(\d+,\); expected rows of features \[n, D\]\."),
        (lambda x: x + 1j, r"^X has complex numbers; expected real ones\."),
        (lambda x: x.astype(str) + "?", r"^X has an entry that is no number: .*; expected numbers$"),
    ],
    ids=["one row", "complex", "text"],
)
def test_wrong_rows(kind, change, words):
    x, y = problem()
    fitted = kind().fit(x, y)
    for call in (lambda rows: kind().fit(rows, y), fitted.predict):
        with pytest.raises(InputError, match=words) as caught:
            call(change(x))
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200


@TAGGERS
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
def test_a_wrong_goal_names_the_parameter(kind, params, words):
    with pytest.raises(InputError, match=words):
        kind(**params).fit(*problem())
