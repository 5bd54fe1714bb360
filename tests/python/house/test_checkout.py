"""Whether the package runs from a source tree, and is not fooled by an installation."""

from pathlib import Path

import pytest
from command_support import CHECKOUT

import vicinal
from vicinal.base.checkout import checkout


def test_these_tests_run_from_a_checkout() -> None:
    assert checkout() == CHECKOUT


def test_the_appliance_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the appliance, the provider's folder is next to site-packages."""
    (tmp_path / "provider").mkdir()
    package = tmp_path / "site-packages/vicinal"
    package.mkdir(parents=True)
    monkeypatch.setattr(vicinal, "__file__", str(package / "__init__.py"))
    assert checkout() is None
