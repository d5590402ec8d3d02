"""How the command line ends: exit codes, and one sentence for every error that is somebody's input."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NoReturn

import click

from vosti.impl.errors import BrokenStepError, EngineError
from vosti.refinement.errors import BadTrace, RefinementError

REFINES = 0
VIOLATION = 1
CANNOT_RUN = 2
BAD_TRACE = 3
INTERRUPTED = 130

ENGINE_PACKAGES = ("immutables", "numpy", "tokenizers", "torch")
"""What the extra `engine` installs."""

PROOF_PACKAGES = ("cvc5", "z3")
"""What only the extra `proofs` installs."""

NO_MEMORY = "can't allocate memory"
"""What torch says in a RuntimeError instead of raising MemoryError."""


class CannotRun(Exception):
    """The command cannot do what it was asked for; the message is one sentence."""


class Commands(click.Group):
    """A group of commands that return exit codes and raise errors; here both become what the shell sees.

    A command's name may be two words; then the first may be a command's, too, and options may come before the second.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that two words name, or else one."""
        for name, command in self.commands.items():
            first, _, second = name.partition(" ")
            if second in args[1:] and first == args[0]:
                place = args.index(second, 1)
                if _are_options(command, args[1:place]):
                    return name, command, args[1:place] + args[place + 1 :]
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]  # the base has overloads for the two values of standalone_mode
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command and exit."""
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, **extra) or REFINES
            sys.stdout.flush()
        except click.Abort:
            code = INTERRUPTED
        except BrokenPipeError:
            # Whoever read the output has gone. What is still buffered has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = CANNOT_RUN
        except SystemExit:
            code = CANNOT_RUN  # how the base class ends when it meets a broken pipe, and only then
        except Exception as error:  # every command ends with a documented code
            code = complain(error)
        sys.exit(code)


def _are_options(command: click.Command, args: list[str]) -> bool:
    """Whether these are whole options of a command, with their values, and nothing else."""
    options = click.Command(None, params=[one for one in command.params if isinstance(one, click.Option)])
    try:
        return not options.make_parser(click.Context(options)).parse_args(list(args))[1]
    except click.UsageError:
        return False


def complain(error: Exception) -> int:
    """Say on stderr what went wrong; return the exit code."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return CANNOT_RUN
        case click.ClickException():
            sentence, code = error.format_message(), CANNOT_RUN
        case BadTrace():
            sentence, code = str(error), BAD_TRACE
        case BrokenStepError():
            sentence, code = str(error), VIOLATION
        case EngineError() | RefinementError() | CannotRun():
            sentence, code = str(error), CANNOT_RUN
        case ModuleNotFoundError(name=name) if (name or "").split(".")[0] in ENGINE_PACKAGES:
            sentence = f"This command needs the engine, and {name} is not installed: pip install 'vosti[engine]'."
            code = CANNOT_RUN
        case ModuleNotFoundError(name=name) if (name or "").split(".")[0] in PROOF_PACKAGES:
            sentence = f"This command needs the solvers, and {name} is not installed: pip install 'vosti[proofs]'."
            code = CANNOT_RUN
        case BrokenProcessPool():
            sentence, code = "A process died at work, perhaps for want of memory: try again with --jobs 1.", CANNOT_RUN
        case MemoryError() | RuntimeError() if isinstance(error, MemoryError) or NO_MEMORY in str(error):
            sentence, code = "There is not enough memory: make the pool smaller (--pages, --page-size).", CANNOT_RUN
        case OSError(filename=str() as filename, strerror=str() as reason):
            sentence, code = f"{filename}: {reason}.", CANNOT_RUN
        case _:
            traceback.print_exception(error)
            sentence, code = "This is a fault of vosti itself; what is above says where.", CANNOT_RUN
    click.echo(f"vosti: {' '.join(sentence.split())}", err=True)
    return code
