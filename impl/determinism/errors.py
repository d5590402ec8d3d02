"""Errors of the determinism suite."""

from vosti.impl.errors import EngineError


class SuiteError(EngineError):
    """Base of the suite's errors."""


class AxisError(SuiteError, ValueError):
    """An axis or a suite that does not exist, or that the engine has no means to run."""


class ResultsError(SuiteError):
    """A results' file that cannot be read, or that was made under another configuration."""


class ContextError(SuiteError):
    """The model's context is too short for the suite."""


class IndifferentEngineError(SuiteError):
    """Logits that do not depend on the tokens, so that equal rows would prove nothing."""


class MissingEngineError(SuiteError):
    """The engine to be measured is not installed, or cannot do what the suite needs."""


class FreshProcessError(SuiteError):
    """An engine in a process of its own did not answer, or has another configuration."""
