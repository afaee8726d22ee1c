"""Builds the extension modules. Everything else about the package is in pyproject.toml.

``CTRLCHAN_DEBUG=1`` builds with bounds checks, None checks, overflow checks and line tracing (slow; for
finding errors, and for coverage of the .pyx). ``CTRLCHAN_SANITIZE=1`` builds with gcc's address and
undefined-behaviour sanitizers; ``make sanitize`` runs tests on that build. ``CTRLCHAN_COVERAGE=1`` lets gcov
count the lines that run; ``make coverage`` does it. ``CTRLCHAN_PREBUILT=1`` builds
no extensions: tools/install.py has compiled them in place. ``CTRLCHAN_CHANNEL_ONLY=1`` leaves out what the
main job does not need: the extensions of the controller and of brokers that store records.
"""

import glob
import os
import platform
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("CTRLCHAN_DEBUG", "") not in ("", "0")
COVERAGE = os.environ.get("CTRLCHAN_COVERAGE", "") not in ("", "0")
SANITIZE = os.environ.get("CTRLCHAN_SANITIZE", "") not in ("", "0")
PREBUILT = os.environ.get("CTRLCHAN_PREBUILT", "") not in ("", "0")
CHANNEL_ONLY = os.environ.get("CTRLCHAN_CHANNEL_ONLY", "") not in ("", "0")
JOBS = os.cpu_count() or 1

directives = {
    "language_level": 3,
    # The code itself checks every index into C memory.
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    # C's division: divisors are constants, dividends are not negative.
    "cdivision": True,
    "overflowcheck": DEBUG,
    "linetrace": DEBUG,
    # Signatures are in the .pyi files; pickling is refused; the source need not be repeated in the C.
    "embedsignature": False,
    "auto_pickle": False,
    "emit_code_comments": DEBUG or COVERAGE,
    "freethreading_compatible": False,
}

# x86-64-v2 is NumPy's own baseline (2009 and later); rows_wide.h needs its byte shuffle.
BASELINE = ["-march=x86-64-v2"] if platform.machine() in ("x86_64", "AMD64") else []
if platform.machine() == "aarch64":
    # CRC-32C in hardware, which ARMv8.1 demands; Apple's compilers take it for granted.
    BASELINE = ["-march=armv8-a+crc"]

if sys.platform == "win32":
    compile_args = []
elif DEBUG:
    # Cython checks differences of pointers for overflow as if they were numbers; some compilers refuse that.
    compile_args = ["-O1", "-g", "-Wno-int-conversion", *BASELINE]
else:
    # -O3: with -O2, sizing and writing a small request takes a fifth longer.
    # -g0: Python's own flags say -g, which makes compiling a quarter slower and the file seven times larger.
    # -fno-strict-aliasing: pointers to columns are passed as `void**`.
    compile_args = ["-O3", "-g0", "-fno-strict-aliasing", *BASELINE]
link_args = []
if COVERAGE:
    # gcov counts the lines of the C files; their comments say which lines of the Cython sources they are.
    compile_args += ["-O0", "-g", "--coverage"]
    link_args = ["--coverage"]
if SANITIZE:
    link_args = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    # After -O3 and -g0: the vector code of a release stays, and reports have function names and lines.
    compile_args += ["-O1", "-g", "-fno-omit-frame-pointer", *link_args]


# OpenSSL is found by dlopen, which is in libdl before glibc 2.34.
libraries = ["dl"] if sys.platform == "linux" else []


def extension(name, depends, trace=DEBUG):
    return Extension(
        name,
        [name.replace(".", "/") + ".pyx"],
        depends=depends,
        include_dirs=["ctrlchan"],
        define_macros=[("CYTHON_TRACE_NOGIL", "1")] * trace + [("CTRLCHAN_CHECKS_LOCKS", "1")] * DEBUG,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        libraries=libraries,
    )


# What extensions of several rooms share. A change of one file compiles them all again.
c_parts = sorted(glob.glob("ctrlchan/_c/*.h") + glob.glob("ctrlchan/_c/*.pxd"))
codec_parts = [*c_parts, *sorted(glob.glob("ctrlchan/_wire/*"))]
channel_parts = [
    *c_parts,
    "ctrlchan/channel/queues/_entries.pxd",
    "ctrlchan/channel/queues/_frames.pxd",
    "ctrlchan/channel/senders/_request.pxd",
    "ctrlchan/channel/wire/_records.pxd",
]
log_parts = [*c_parts, *sorted(glob.glob("ctrlchan/broker/log/**/*.pxd", recursive=True))]
metadata_parts = [*c_parts, "ctrlchan/broker/metadata/_snapshot.pxd"]
replica_parts = [
    *log_parts,
    *metadata_parts,
    "ctrlchan/server/_connection_quotas.pxd",
    "ctrlchan/server/_idle_entries.pxd",
    "ctrlchan/server/_rates.pxd",
    "ctrlchan/server/_processor.pxd",
    "ctrlchan/server/_loop/poller.h",
    "ctrlchan/broker/replica/_partition_roles.pxd",
    "ctrlchan/broker/replica/_partition_state.pxd",
    "ctrlchan/broker/replica/_partitions.pxd",
]
quota_parts = [
    *c_parts,
    "ctrlchan/server/_idle_entries.pxd",
    "ctrlchan/server/_rates.pxd",
    *sorted(glob.glob("ctrlchan/broker/quota/*.pxd")),
]
handler_parts = [
    *replica_parts,
    *quota_parts,
    "ctrlchan/server/_cursor.pxd",
    "ctrlchan/broker/_decisions.pxd",
    "ctrlchan/broker/handlers/_hot.pxd",
    *sorted(glob.glob("ctrlchan/broker/handlers/_fetching/*")),
]
message_parts = [*c_parts, "ctrlchan/server/_cursor.pxd", "ctrlchan/server/_values.pxd"]
server_parts = [
    *c_parts,
    "ctrlchan/server/_connection_quotas.pxd",
    "ctrlchan/server/_idle_entries.pxd",
    "ctrlchan/server/_openssl.pxd",
    "ctrlchan/server/_processor.pxd",
    "ctrlchan/server/_rates.pxd",
    *sorted(glob.glob("ctrlchan/server/_loop/*")),
]

# The codec takes longest, so it comes first.
extensions = [
    extension("ctrlchan._codec", codec_parts),
    extension("ctrlchan.channel.senders._request", channel_parts),
    extension("ctrlchan.channel.senders._fast_path", channel_parts),
    extension("ctrlchan.channel.observability._gather", channel_parts),
    extension("ctrlchan.channel.queues._frames", channel_parts),
    extension("ctrlchan.channel.queues._entries", channel_parts),
    extension("ctrlchan._c.watchdog", c_parts, trace=False),
    extension("ctrlchan.server.apis._metadata", message_parts),
    extension("ctrlchan._c.locks", c_parts, trace=False),
    extension("ctrlchan._c.clock_functions", c_parts, trace=False),
    # Their threads are not Python's: nothing traces them.
    extension("ctrlchan.server._processor", server_parts, trace=False),
    extension("ctrlchan.server._connection_quotas", server_parts, trace=False),
    extension("ctrlchan.server._openssl", server_parts, trace=False),
]
if not CHANNEL_ONLY:
    extensions += [
        *(
            extension(path.removesuffix(".pyx").replace(os.sep, "."), log_parts)
            for path in sorted(glob.glob("ctrlchan/broker/log/**/*.pyx", recursive=True))
        ),
        extension("ctrlchan.zookeeper._states", c_parts),
        extension("ctrlchan.calibration._sink", server_parts, trace=False),
        extension("ctrlchan.broker.metadata._snapshot", metadata_parts, trace=False),
        *(
            extension(f"ctrlchan.broker.quota.{name}", quota_parts, trace=False)
            for name in ("_client_quotas", "_replication_quota")
        ),
        extension("ctrlchan.broker._decisions", [*c_parts, "ctrlchan/broker/_decisions.pxd"], trace=False),
        *(
            extension(f"ctrlchan.broker.replica.{name}", replica_parts, trace=False)
            for name in ("_partition_state", "_partition_roles", "_partitions")
        ),
        *(
            extension(f"ctrlchan.broker.handlers.{name}", handler_parts, trace=False)
            for name in ("_hot", "_produce", "_fetch", "_end_txn", "_known_metadata")
        ),
        extension(
            "ctrlchan.broker.coordinator._record_batches",
            [*log_parts, "ctrlchan/broker/coordinator/transaction/_values.pxd"],
        ),
        extension("ctrlchan.broker.coordinator.transaction._values", c_parts),
        extension("ctrlchan.broker.handlers._group_messages", message_parts),
        extension("ctrlchan.broker.handlers._membership_messages", message_parts),
        extension("ctrlchan.controller.server.apis._alter_partition", message_parts),
        extension("ctrlchan.broker.handlers._transaction_messages", message_parts),
    ]

# A build in place is a checkout's, which has the tests: no wheel has their extensions.
if not CHANNEL_ONLY and "--inplace" in sys.argv:
    extensions += [
        extension(name, [*server_parts, *log_parts], trace=False)
        for name in ("tests.unit.server._echo", "tests.simulation._operating_system")
    ]

# Guarded: where processes are spawned, Cython's workers import this file again.
if __name__ == "__main__":
    setup(
        ext_modules=[]
        if PREBUILT
        else cythonize(
            extensions,
            compiler_directives=directives,
            build_dir="build/cython-debug" if DEBUG else "build/cython",
            force=DEBUG,
            nthreads=JOBS,
        ),
        options={"build_ext": {"parallel": JOBS}},
    )
