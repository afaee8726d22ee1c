"""Network namespaces: of this thread, and of a process that does nothing else; interfaces without offload."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.kafka.processes import Child, Reaper
from tests.kafka.waiting import wait_until

__all__ = ["Holder", "entered", "missing_for_namespaces", "run", "without_segmentation_offload"]

_CLONE_NEWNET: Final = 0x40000000
_OURS: Final = "/proc/thread-self/ns/net"
_COMMAND_SECONDS: Final = 30.0

#: linux/sockios.h, linux/ethtool.h.
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO = 0x1F, 0x24, 0x2C
#: struct ethtool_value: command, data. struct ifreq: name, pointer; 40 bytes.
_VALUE: Final = struct.Struct("@II")
_REQUEST: Final = struct.Struct("@16sP16x")


def missing_for_namespaces() -> str | None:
    """Return why no network namespaces can be made here; None: they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    missing = [name for name in ("ip", "ss", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (packages iproute2 and util-linux)"
    trial = ["unshare", "--net", "ip", "link", "add", "trial", "type", "veth", "peer", "name", "other"]
    tried = subprocess.run(trial, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"network namespaces with veth interfaces need root (CAP_SYS_ADMIN, CAP_NET_ADMIN): {reason}"
    return None


@contextmanager
def entered() -> Iterator[None]:
    """Let this thread, and what it starts, have a new network namespace; go back in the end.

    The kernel removes the namespace and its interfaces with the last process in it. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def check(status: int, what: str) -> None:
        if status:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    before = os.open(_OURS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        check(libc.unshare(_CLONE_NEWNET), "unshare(CLONE_NEWNET)")
        try:
            run("ip", "link", "set", "lo", "up")
            yield
        finally:
            check(libc.setns(before, _CLONE_NEWNET), "setns")
    finally:
        os.close(before)


class Holder:
    """A network namespace that lives as long as a child process in it, which ends with this process."""

    def __init__(self, name: str, folder: Path, reaper: Reaper) -> None:
        command = ["unshare", "--net", "sleep", "infinity"]
        self._child = Child(f"namespace of {name}", command, folder / "namespaces.log", reaper)
        ours = os.readlink(_OURS)

        def is_apart() -> bool:
            self._child.check_alive()
            return os.readlink(f"/proc/{self._child.pid}/ns/net") != ours

        wait_until(is_apart, timeout=_COMMAND_SECONDS, what=f"{name} has a network namespace")
        self.run("ip", "link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def prefix(self) -> Sequence[str]:
        """The command that runs the command behind it in this namespace."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def run(self, *command: str) -> None:
        """Run a command in this namespace. Raises RuntimeError with its output where it fails."""
        run(*self.prefix, *command)

    def close(self) -> None:
        self._child.kill()


def run(*command: str) -> None:
    """Run a command. Raises RuntimeError with its output where it fails."""
    ran = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_COMMAND_SECONDS
    )
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ran.stderr.strip()}")


def without_segmentation_offload(interface: str) -> None:
    """Make an interface of this namespace carry no frames larger than its MTU. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in (_ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO):
            value = ctypes.create_string_buffer(_VALUE.pack(command, 0), _VALUE.size)
            request = _REQUEST.pack(interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
