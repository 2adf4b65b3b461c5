"""Puts the commands together and turns every expected failure into one line and an exit status.

Exit status: 0 done; 1 the work failed; 2 the command line or the configuration is wrong, a path that is not there
included; 130 interrupted.
"""

import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import version
from types import FrameType
from typing import Annotated, ClassVar

import typer

from lucid_app.console import err, print_json
from lucid_app.lazy import Later, LazyGroup


class _Lucid(LazyGroup):
    table: ClassVar = {
        "demo": Later(
            "lucid_app.demo:demo",
            "Make a small labelled set of drawn scenes, train on it, score held-out scenes and draw predictions.",
        ),
        "fit": Later("lucid_app.fit:fit", "Train a detector on your own images."),
        "eval": Later(
            "lucid_app.evaluate:evaluate", "Score a checkpoint's averaged weights with the COCO protocol."
        ),
        "score": Later("lucid_app.score:score", "Score any tool's COCO results or DOTA Task 1 files."),
        "predict": Later(
            "lucid_app.predict:predict",
            "Find objects in images, folders and globs, or in large pictures by their tiles; EXIF tags turn photos "
            "upright.",
        ),
        "plot": Later("lucid_app.plot:plot", "Draw a run's loss and AP curves."),
        "report": Later(
            "lucid_app.report:report",
            "Write a run as one HTML file: settings, curves, scores, confusions, errors, best and worst images.",
        ),
        "export": Later(
            "lucid_app.export:export",
            "Write the deployed network, selection of rows included: no suppression is left to do.",
        ),
        "info": Later(
            "lucid_app.info:info",
            "Show parameters and GFLOPs of every network, this machine's environment, and the switches it can use.",
        ),
        "data": Later("lucid_app.data:app", "Look after data sets."),
        "bench": Later("lucid_app.bench:app", "Measure, and prove that nothing else changed."),
    }


app = typer.Typer(
    name="lucid",
    cls=_Lucid,
    help="Train, score and run real-time object detectors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"lucid {version('lucid-app')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the command; ``--debug`` is accepted anywhere."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logging.getLogger("lucid").setLevel(
        logging.INFO
    )  # other libraries tell their users, not ours, what they do
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(_delivered(run(words, debug=debug)))


def _delivered(status: int) -> int:
    """Return the exit status after what was printed has gone out, or could not."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # the interpreter would try again as it ends, and print a traceback
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not status:
            err.print(f"error: {one_line(error)}", style="red", soft_wrap=True)
            return 1
    return status


def _stop(number: int, frame: FrameType | None) -> None:
    """Let what is half-written be taken away; without a handler the process would end on the spot."""
    raise KeyboardInterrupt


def run(words: Sequence[str], *, debug: bool = False) -> int:
    """Return the exit status of a command line; the failure's one line, and with --json its document, are printed."""

    def document(said: str, status: int) -> None:
        # of the processes that torchrun started, one speaks
        if "--json" in words and os.environ.get("RANK", "0") == "0":
            with suppress(OSError):  # where stdout is what failed, the line on stderr is all
                print_json({"error": said, "status": status})

    def interrupted() -> int:
        document("interrupted", 130)
        err.print("interrupted", style="yellow")
        return 130

    command = typer.main.get_command(app)
    try:
        code = command.main(args=list(words), prog_name="lucid", standalone_mode=False)
        if code == 130:  # typer's answer to Ctrl-C, without a word
            return interrupted()
        return code if isinstance(code, int) else 0
    except Exception as error:
        status, said = status_of(error), one_line(error)
        document(said, status or 1)
        if status is None or (debug and not hasattr(error, "exit_code")):
            raise
        if said:  # a command that needs another one has shown its help
            err.print(f"error: {said}", style="red", soft_wrap=True)
        return status
    except KeyboardInterrupt:
        return interrupted()


def status_of(error: BaseException) -> int | None:
    """Return the exit status of an expected failure, or None for a defect that deserves its traceback."""
    if type(error).__name__ == "Abort":  # typer's answer to Ctrl-C
        return 130
    if hasattr(error, "exit_code") and hasattr(error, "format_message"):  # a usage error of the parser
        return 2
    if isinstance(error, ImportError):
        return 1
    from lucid_train import ConfigError, Interrupted  # a mistyped word is told without them

    if isinstance(error, Interrupted):
        return 130
    if isinstance(error, ConfigError):
        return 2
    return 1 if isinstance(error, ValueError | OSError | MemoryError) else None


def one_line(error: BaseException) -> str:
    r"""Return the message of a failure on one line: what is wrong, where, what to do.

    Example:
        >>> one_line(ValueError("two\nlines"))
        'two lines'
    """
    if hasattr(error, "format_message"):
        text = str(error.format_message())
        if near := getattr(
            error, "possibilities", None
        ):  # of an unknown option; the nearest one says it best
            wrong = str(getattr(error, "option_name", ""))
            text = (
                f"No such option {wrong}. Did you mean {get_close_matches(wrong, near, n=1, cutoff=0.0)[0]}?"
            )
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    else:
        text = original_message(str(error)) or type(error).__name__
    return " ".join(text.split())


def original_message(text: str) -> str:
    r"""Return what an error said before a loader process passed it on with its traceback; other text as it is.

    Example:
        >>> original_message("Caught OSError in DataLoader worker process 0.\nOriginal Traceback (…)\nOSError: gone")
        'gone'
    """
    passed_on = re.match(r"Caught (\w+) in .*\nOriginal Traceback", text)
    if passed_on is None:
        return text
    said = re.split(rf"^(?:[\w.]+\.)?{passed_on[1]}: ", text, flags=re.MULTILINE)
    return said[-1] if len(said) > 1 else passed_on[1]
