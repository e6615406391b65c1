"""What both command-line programs share: arguments in, one line for an error, an exit status out."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slurm_interleave.client.core.errors import InterleaveError

if TYPE_CHECKING:
    import click

INTERRUPTED = 130


def run(program: str, module: str, arguments: Sequence[str] | None) -> int:
    """Run the click command `command` of *module* and return the exit status: 0, 1 failed, 2 bad usage."""
    if importlib.util.find_spec("click") is None:
        return _fail(program, missing("click", "cli"))
    _open_standard_streams()
    command: click.Command = importlib.import_module(module).command
    try:
        return _call(program, command, arguments)
    except InterleaveError as error:
        return _fail(program, str(error))
    except UnicodeError as error:
        return _fail(program, _no_text(error))
    except BrokenPipeError:
        # Python would report the same again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(program, f"{error.filename or 'input or output'}: {error.strerror or error}")


def missing(package: str, extra: str) -> str:
    """Return the text that says which extra of the distribution brings *package*."""
    return f"this needs {package}, which is not installed; run: pip install 'slurm-interleave[{extra}]'"


def _no_text(error: UnicodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"what is read is not text in {error.encoding}: {error.reason} at byte {error.start}"
    if not isinstance(error, UnicodeEncodeError):
        return str(error)
    # Bytes of the command line that are no characters of its encoding.
    text = error.object[max(error.start - 20, 0) : error.end + 20]
    return f"{text!a} is no text, so it can be neither sent nor written; write it in UTF-8"


def _open_standard_streams() -> None:
    """Have all three: without, the next file or connection takes the number of one that is closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - for as long as we run


def _call(program: str, command: click.Command, arguments: Sequence[str] | None) -> int:
    import click

    try:
        code = command.main(arguments, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        return _fail(program, error.format_message(), error.exit_code)
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _fail(program: str, text: str, status: int = 1) -> int:
    print(f"{program}: error: {' '.join(text.split())}", file=sys.stderr)
    return status
