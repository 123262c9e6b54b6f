"""Small things that many tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory, request):
    """Tests never touch the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MLCL_HOME", str(tmp_path_factory.mktemp("home")))
    yield
    patch.undo()
