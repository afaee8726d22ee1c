"""Snapshots on disk, Arrow tables, and the schemas of everything that is stored.

In: folders and Arrow tables. Out: columns, or an error that names file, row and reason. This room must not
import ``ClusterState``, which imports it.
"""

from ctrlchan.packages import require_pyarrow

# Before any module of this room imports it.
require_pyarrow()
