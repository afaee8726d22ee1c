"""``ctrlchan pipeline prepare``: keeps Spark's classes for the next jobs of this user."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import require_spark, say
from ctrlchan.cli.progress import step

__all__ = ["prepare"]


def prepare(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, and no progress.")
    ] = False,
) -> None:
    """Keep Spark's classes, so that jobs on small inputs take two thirds of their time.

    Runs the jobs once, and lets Java write the classes that they needed into a
    file in the user's cache (XDG_CACHE_HOME, else ~/.cache). Sessions on this
    machine use it from then on. After a new Java or a new Spark the file is
    not used: run the command again. To be rid of it, remove the file.

    Examples:

    \b
      ctrlchan pipeline prepare
      RUN ctrlchan pipeline prepare     (in a Dockerfile)
    """
    from contextlib import nullcontext

    require_spark()
    from ctrlchan.pipeline.prepare import prepare as job

    with nullcontext() if as_json else step("running the jobs and writing their classes"):
        archive = job()
    say({"archive": str(archive), "bytes": archive.stat().st_size}, as_json=as_json)
