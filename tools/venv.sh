#!/bin/sh
# Make the virtual environment $1 with the first Python of 3.11 or later that can build a C extension.
set -eu
venv=$1

for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
    command -v "$python" >/dev/null 2>&1 || continue
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    found=$python
    break
done
if [ -z "${found:-}" ]; then
    echo "error: no Python 3.11 or later on the path (set PYTHON=/path/to/python)" >&2
    exit 1
fi
echo "making $venv with $("$found" --version)"

if ! "$found" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; then
    echo "error: $found has no C headers (Python.h); install its development package (Debian: python3-dev)" >&2
    exit 1
fi
if ! command -v "${CC:-cc}" >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1 && ! command -v clang >/dev/null 2>&1; then
    echo "error: no C compiler on the path (cc, gcc or clang; or set CC)" >&2
    exit 1
fi
if ! "$found" -m venv "$venv"; then
    # Debian ships Python without ensurepip; virtualenv brings its own pip.
    rm -rf "$venv"
    if "$found" -m virtualenv --version >/dev/null 2>&1; then
        "$found" -m virtualenv "$venv"
    else
        echo "error: $found cannot make virtual environments; install its venv package (Debian: python3-venv)" >&2
        exit 1
    fi
fi
