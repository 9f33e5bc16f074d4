"""An expression that has no value: the one exception that evaluation raises on purpose.

It lives between the place in a template, a path or a function body where
something is wrong and the single edge where `execution` makes an error message
of it; it never leaves the package.
"""

from __future__ import annotations


class ExpressionFault(Exception):
    """A dynamic value cannot be given a value; the text says why, for the agent to read."""
