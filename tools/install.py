"""Installs ctrlchan in place, into the environment of the Python that runs this: ``python tools/install.py``.

``--build`` compiles codec and channel in place, while pip downloads the dependencies, and installs the
command: the main job needs no more. ``--build-rest`` compiles the other extensions. Without both only the
packages of the named extras are installed, with ``--if-possible`` those of which the system has what they are
compiled with. Nothing is compiled twice.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
#: Of extras whose packages are compiled with the system's libraries: a command that comes with their headers,
#: and what else there is to know.
NEEDS: Final = {
    "kerberos": ("krb5-config", "GSSAPI's tests are skipped: install libkrb5-dev or krb5-devel for them")
}
LOG: Final = ROOT / "build" / "extensions.log"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extra", nargs="*", help="extras of pyproject.toml whose packages are installed, too")
    parser.add_argument(
        "--build", action="store_true", help="compile codec and channel, and install the command"
    )
    parser.add_argument("--build-rest", action="store_true", help="compile the other extensions")
    parser.add_argument(
        "--if-possible", action="store_true", help="leave out an extra for which the system has no headers"
    )
    options = parser.parse_args()
    if options.if_possible:
        for extra in [one for one in options.extra if shutil.which(NEEDS[one][0]) is None]:
            print(f"no {NEEDS[extra][0]}: {NEEDS[extra][1]}", flush=True)
            options.extra.remove(extra)
        if not options.extra:
            return
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = packages_of(declared, options.extra)
    if options.build_rest:
        with compiling():
            print(
                "compiling the controller's and the broker's extensions (a minute of processor time)",
                flush=True,
            )
        return
    if not options.build:
        pip("install", *packages)
        return
    pip("install", *declared["build-system"]["requires"])
    print("compiling the extensions meanwhile (half a minute of processor time)", flush=True)
    with compiling(CTRLCHAN_CHANNEL_ONLY="1"):
        pip("install", *packages)
        print("waiting for the compiler", flush=True)
    # The extensions are compiled already; CTRLCHAN_PREBUILT keeps pip from compiling them again.
    pip("install", "--no-deps", "--no-build-isolation", "-e", ".", CTRLCHAN_PREBUILT="1")


@contextmanager
def compiling(**environment: str) -> Iterator[None]:
    """Compile extensions in place while the block runs. Ends this program if they cannot be compiled."""
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as log:
        build = subprocess.Popen(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )
        try:
            yield
            failed = build.wait() != 0
        finally:
            build.kill()
            build.wait()
    if failed:
        sys.exit(
            f"{LOG.read_text(errors='replace')}\nerror: the extensions could not be compiled (see above)"
        )


def packages_of(declared: dict[str, Any], extras: list[str]) -> list[str]:
    """Return the requirements of the package and of these extras."""
    project = declared["project"]
    packages = list(project["dependencies"])
    for extra in extras:
        packages += project["optional-dependencies"][extra]
    return packages


def pip(*arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    status = subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False).returncode
    if status != 0:
        sys.exit(status)


if __name__ == "__main__":
    main()
