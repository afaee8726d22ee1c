"""The clients of a load as tasks of Spark, for ``ctrlchan bench --master``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctrlchan.cli.bench.options import SparkOptions
    from ctrlchan.loads.load import Load
    from ctrlchan.loads.result import Result

__all__ = ["work_on_spark"]


def work_on_spark(load: Load, options: SparkOptions) -> Result:
    """Run the load there, and return the sum of what all clients have done. Raises CtrlchanError.

    Ctrl-C ends the tasks, and what they have done is lost.
    """
    from ctrlchan.cli.pipeline.common import RunOptions, require_spark, spark_of

    require_spark()
    from ctrlchan.pipeline.jobs.load.job import FEW_RETRIES, run_load

    # A server of Spark Connect was started with settings of its own.
    conf = {**({} if options.remote else FEW_RETRIES), **options.conf}
    run = RunOptions(master=options.master, remote=options.remote, conf=conf, package=options.package)
    with spark_of(f"bench {load.kind}", run) as spark:
        return run_load(spark, load)
