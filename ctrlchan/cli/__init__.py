"""The ``ctrlchan`` command, one file per subcommand.

In: words of a shell. Out: text for people, or JSON with ``--json``. Exit status 0 when it went well, 1 or 2
(wrong usage) with one ``error: ...`` line when it did not, 130 after Ctrl-C. What a subcommand needs is
imported when it runs, so that ``--help`` is quick; this file imports nothing, so that Ctrl-C works at once.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these arguments (None: the process's own). Always raises SystemExit."""
    try:
        from ctrlchan.cli.run import run

        status = run(arguments)
    except KeyboardInterrupt:
        status = 130
    raise SystemExit(status)
