"""How a channel's processes start: what they import, and what they do without standard descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ctrlchan.channel import OutcomeKind
from tests.fault.channels import MODES, channel_to, eventually, holdings, peers
from tests.fault.requests import update

ROOT = Path(__file__).parents[2]

#: Modules of the standard library and others that the fork server or a sender imports.
IMPORTED = (
    "json",
    "socket",
    "selectors",
    "struct",
    "mmap",
    "resource",
    "multiprocess",
    "dill",
    "ssl",
    "hmac",
)

_PROGRAM = """
    import os, signal
    from contextlib import ExitStack
    {before}
    from ctrlchan.channel import ControllerChannelManager
    from tests.fault.channels import config, peers
    from tests.fault.requests import update

    # The channel starts first, so its descriptors have the lowest numbers.
    with ControllerChannelManager(config(senders={senders!r}), 7) as channel, ExitStack() as stack:
        channel.startup([])
        brokers = stack.enter_context(peers(2))
        for peer in brokers:
            channel.add_broker(peer.broker)
        outcomes = channel.wait(channel.send_requests([1, 2], update()), 20)
        {during}
        os.write({report}, " ".join(outcome.kind.value for outcome in outcomes).encode())
"""


def outcomes_of_a_program(
    before: str = "",
    during: str = "",
    *,
    senders: str | int = 1,
    report: int = 3,
    closed: tuple[int, ...] = (),
) -> tuple[int, str]:
    """Run a program that sends a request to two brokers, with these standard descriptors closed.

    Returns its exit code and the outcomes that it has written to the descriptor `report`.
    """
    program = textwrap.dedent(_PROGRAM).format(before=before, during=during, senders=senders, report=report)
    read, write = os.pipe()
    code = f"import os; os.dup2({write}, {report}); os.set_inheritable({report}, True)"
    for fd in closed:
        code += f"\nos.close({fd})"
    code += f"\nos.execv({sys.executable!r}, [{sys.executable!r}, '-c', {program!r}])"
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            pass_fds=(write,),
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
        os.set_blocking(read, False)
        try:
            return ran.returncode, os.read(read, 4096).decode()
        except BlockingIOError:
            return ran.returncode, ""
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("on_path", [False, True])
@pytest.mark.parametrize("senders", MODES)
def test_no_process_imports_from_the_working_directory(
    senders: str | int, on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in IMPORTED:
        (tmp_path / f"{name}.py").write_text(f"open('{name}.ran', 'w').close()\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    if on_path:
        monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        outcomes = channel.wait(channel.send_requests([1, 2], update()), 20)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
    assert list(tmp_path.glob("*.ran")) == []
    eventually(lambda: holdings()["children"] == [])


@pytest.mark.parametrize("senders", MODES)
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_a_channel_works_when_standard_descriptors_are_closed(
    closed: tuple[int, ...], senders: str | int
) -> None:
    assert outcomes_of_a_program(closed=closed, senders=senders, report=30) == (
        0,
        "acknowledged acknowledged",
    )


def test_children_ignore_the_parents_action_for_sigpipe() -> None:
    """The parent's default action for SIGPIPE does not end a sender whose broker closes the connection."""
    during = "; ".join(
        [
            "[pid, _] = [broker['sender_pid'] for broker in channel.describe()['brokers'].values()]",
            "brokers[0].drop_connections()",
            "outcomes = channel.wait(channel.send_requests([1, 2], update()), 20)",
            "assert [b['sender_pid'] for b in channel.describe()['brokers'].values()] == [pid, pid]",
        ]
    )
    before = "signal.signal(signal.SIGPIPE, signal.SIG_DFL)"
    assert outcomes_of_a_program(before, during, report=30) == (0, "acknowledged acknowledged")
