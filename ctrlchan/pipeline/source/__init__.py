"""``format("ctrlchan")``: Spark reads snapshots, frames and journals by it, and sends frames.

``source`` finds the files, ``pieces`` divides them into tasks and reads them, ``stream`` reads the new files
of a journal, ``rows`` gives what was read the columns that Spark has planned.
"""

from ctrlchan.pipeline.source.source import CtrlchanSource

__all__ = ["CtrlchanSource"]
