"""Failures inside the shared definition are explained as those of a test are."""

import pytest

pytest.register_assert_rewrite("batch_kl_definition")
