"""``ctrlchan pipeline package``: the archive for executors that have a Python without ctrlchan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import Overwrite, say
from ctrlchan.cli.progress import step

__all__ = ["package"]


def package(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The archive to make, a .tar.gz file.")
    ] = Path("ctrlchan.tar.gz"),
    wheel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A wheel of ctrlchan for the executors' platform and Python; pip gets the other packages.",
            show_default="executors have this platform and this Python",
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, and no progress.")
    ] = False,
) -> None:
    """Make an archive of ctrlchan and what its tasks import, for executors with Python and Spark alone.

    Each job takes it by --package. To Spark's own commands give what the summary says.

    Examples:

    \b
      ctrlchan pipeline package -o ctrlchan.tar.gz
      ctrlchan pipeline check --master yarn --package ctrlchan.tar.gz
      ctrlchan pipeline package --wheel ctrlchan-0.1.0-cp312-cp312-manylinux_2_28_aarch64.whl
    """
    from contextlib import nullcontext

    from ctrlchan.pipeline.package import make_package, package_settings

    with nullcontext() if as_json else step(f"making {output}"):
        made = make_package(output, wheel=wheel, overwrite=overwrite)
    say(
        {
            "output": str(made.path),
            "bytes": made.bytes,
            "python": made.python,
            "platform": made.platform,
            "packages": ", ".join(made.names),
            "settings": " ".join(
                f"--conf {name}={value}" for name, value in package_settings(made.path).items()
            ),
        },
        as_json=as_json,
    )
