"""Fixtures of the attacks."""

import pytest


@pytest.fixture
def application(folder) -> dict:
    """An application whose script is `index.php`; `folder.php` adds others."""
    folder.php("index.php", "echo 'here';")
    return {"type": "php", "root": str(folder.root), "processes": 2}
