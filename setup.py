"""Builds the extension modules. Everything else about the package stands in pyproject.toml.

``CTRLCHAN_DEBUG=1`` builds the extensions with bounds checks, None checks, overflow checks and line tracing
(slow; for finding errors, and for coverage of the .pyx). ``CTRLCHAN_SANITIZE=1`` builds everything with the
address and undefined-behaviour sanitizers of gcc; ``make sanitize`` runs tests on that.
"""

import os
import platform
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("CTRLCHAN_DEBUG", "") not in ("", "0")
SANITIZE = os.environ.get("CTRLCHAN_SANITIZE", "") not in ("", "0")

directives = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    "cdivision": True,
    "overflowcheck": DEBUG,
    "linetrace": DEBUG,
    "embedsignature": True,
    "freethreading_compatible": False,
}

# x86-64-v2 is NumPy's own baseline (2009 and later); it has the byte shuffle that the codec's rows want.
BASELINE = ["-march=x86-64-v2"] if platform.machine() in ("x86_64", "AMD64") else []

if sys.platform == "win32":
    compile_args = []
elif DEBUG:
    # Cython checks differences of pointers for overflow as if they were numbers, which compilers may refuse.
    compile_args = ["-O0", "-g", "-Wno-int-conversion", *BASELINE]
else:
    compile_args = ["-O3", "-fno-strict-aliasing", *BASELINE]
link_args = []
if SANITIZE:
    link_args = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    # Behind -O3: with the vectors of the release, and names in what is reported.
    compile_args += ["-O1", "-g", "-fno-omit-frame-pointer", *link_args]

codec = Extension(
    "ctrlchan._codec",
    ["ctrlchan/_codec.pyx"],
    depends=[os.path.join("ctrlchan", "_wire", name) for name in sorted(os.listdir("ctrlchan/_wire"))],
    include_dirs=["ctrlchan"],
    define_macros=[("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [],
    extra_compile_args=compile_args,
    extra_link_args=link_args,
)

channel = [
    Extension(
        name,
        [name.replace(".", "/") + ".pyx"],
        depends=[
            "ctrlchan/channel/queues/_entries.pxd",
            "ctrlchan/channel/wire/_records.pxd",
            "ctrlchan/channel/senders/_request.pxd",
        ],
        define_macros=codec.define_macros,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for name in (
        "ctrlchan.channel.queues._entries",
        "ctrlchan.channel.observability._gather",
        "ctrlchan.channel.senders._request",
        "ctrlchan.channel.senders._fast_path",
    )
]

setup(
    ext_modules=cythonize(
        [codec, *channel],
        compiler_directives=directives,
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        force=DEBUG,
    ),
)
