"""What every test runs under: one thread, fixed examples, and a floor on the number of tests that passed."""

import os
import signal
from collections.abc import Generator
from typing import Any

# Read by torch when it is first imported, here and in child processes: results are compared bit for bit at one thread.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest
from hypothesis import settings

# The same examples on every run, whatever the machine's load: a verdict depends on the code alone.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--at-least N`: fail the run unless N tests passed."""
    parser.addoption("--at-least", type=int, default=0, metavar="N", help="fail unless at least N tests passed")


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, object, object]:
    """Have a timeout fire again: what it raises is dropped in a finalizer, or a callback of C, and solvers run both.

    After a fifth of its time, which no report of the first one takes.
    """
    result = yield
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout / 5)
    return result


def _passed(reporter: pytest.TerminalReporter) -> int:
    return len(reporter.getreports("passed"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a run in which too few tests passed into a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and session.exitstatus == pytest.ExitCode.OK and _passed(reporter) < session.config.option.at_least:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say why, when too few tests passed."""
    if _passed(terminalreporter) < config.option.at_least:
        terminalreporter.write_line(
            f"Only {_passed(terminalreporter)} tests passed, and --at-least asks for {config.option.at_least}.",
            red=True,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is none, and say so."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch finds none"))
