"""No test here asserts how fast the machine is, not even by a default of Hypothesis."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
