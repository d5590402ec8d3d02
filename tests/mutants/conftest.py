"""The table of seeded faults, printed after the tests' own report."""

import pytest

FOUND: pytest.StashKey[list[tuple[str, ...]]] = pytest.StashKey()
"""One line for each fault that was seeded."""

HEAD = ("fault", "", "in", "step", "phase", "check", "")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing was found yet."""
    config.stash[FOUND] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line for each fault: caught, where, at which step, in which phase, by which check, as expected or not."""
    lines = config.stash.get(FOUND, [])
    if not lines:
        return
    widths = [max(len(line[column]) for line in (HEAD, *lines)) for column in range(len(HEAD))]
    terminalreporter.section("seeded faults")
    for line in (HEAD, *lines):
        terminalreporter.write_line(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
    expected = sum(line[-1] == "as expected" for line in lines)
    terminalreporter.write_line(f"{expected} of {len(lines)} as expected.")


@pytest.fixture
def found_faults(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """The table's lines so far."""
    return request.config.stash[FOUND]
