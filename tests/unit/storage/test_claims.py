"""One owner of a broker at a time, without file locks, and a new one when the owner has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.dispatch import claims, lease
from ctrlchan.pipeline.jobs.dispatch.claims import Claims
from ctrlchan.pipeline.jobs.dispatch.lease import Owner
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.storage import AnyPath, names_in, replace
from tests.fault.channels import eventually
from tests.storage.s3 import S3Server

#: An object store takes many requests here.
MOSTLY_LOCAL = pytest.mark.parametrize(
    "root",
    ["local", pytest.param("s3", marks=pytest.mark.long), pytest.param("hdfs", marks=pytest.mark.long)],
    indirect=True,
)


def begun(root: AnyPath, name: str = "run") -> Run:
    run = Run(root, name)
    run.begin()
    return run


class _Clock:
    """A clock that the test moves, and a count of the looks of tasks that wait."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._looked = threading.Semaphore(0)

    def __call__(self) -> float:
        return self.now

    def looked(self) -> None:
        self._looked.release()

    def wait_for_looks(self, task: threading.Thread, count: int) -> None:
        """Wait until tasks have looked so many times, or ``task`` has ended."""
        self._looked = threading.Semaphore(0)
        for _ in range(count):
            while not self._looked.acquire(timeout=0.05) and task.is_alive():
                pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    moved = _Clock()
    newest = claims._newest

    def looking(folder: AnyPath) -> claims._Claim:
        moved.looked()
        return newest(folder)

    monkeypatch.setattr(lease, "clock", moved)
    monkeypatch.setattr(claims, "clock", moved)
    monkeypatch.setattr(claims, "_newest", looking)
    monkeypatch.setattr(claims, "_RETRY_URL", 0.01)
    monkeypatch.setattr(claims, "_RETRY", 0.01)
    monkeypatch.setattr(lease, "_LOOK", 0.01)
    # As on another machine.
    monkeypatch.setattr(lease, "_kernel", lambda: None)
    return moved


def until_renewed(owner: Claims, before: float) -> None:
    eventually(lambda: owner._lease._until > before)


@MOSTLY_LOCAL
def test_an_owner_that_works_is_waited_for(root: AnyPath, clock: _Clock) -> None:
    run = begun(root)
    second = Claims(run, 300)
    with Claims(run, 300) as first:
        first.claim([7, 3])
        got = threading.Thread(target=second.claim, args=([3, 7],), daemon=True)
        got.start()
        # Twice as long as the lease: it is renewed.
        for _ in range(6):
            before = first._lease._until, second._lease._until
            clock.now += 101
            until_renewed(first, before[0])
            until_renewed(second, before[1])
            clock.wait_for_looks(got, 2)
            assert got.is_alive()
            assert first.held()
    got.join(60)
    assert not got.is_alive()
    assert second.held()
    second.release()
    assert [name for name in names_in(run.folder) if name.startswith("owner-")] == []
    assert names_in(run.folder / "broker-3") == ["000000000002"]


@MOSTLY_LOCAL
def test_every_broker_has_one_owner_at_a_time(root: AnyPath) -> None:
    """Many tasks claim, hold and release: no two hold one broker at once."""
    run = begun(root)
    owned: dict[int, str] = {}
    problems: list[str] = []
    turns: list[str] = []

    def task(name: str) -> None:
        for _ in range(3):
            with Claims(run, 20) as ours:
                ours.claim([1, 2])
                for broker in (1, 2):
                    if broker in owned:
                        problems.append(f"{name} and {owned[broker]} own {broker}")
                    owned[broker] = name
                time.sleep(0.002)
                owned.clear()
                turns.append(name)

    tasks = [threading.Thread(target=task, args=(f"task {number}",)) for number in range(4)]
    for one in tasks:
        one.start()
    for one in tasks:
        one.join(120)
    assert problems == []
    assert len(turns) == 12


def test_two_runs_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """After an interruption the frames of two runs may begin with different brokers."""
    run = begun(tmp_path)
    with Claims(run, 300) as one:
        one.claim([3])
        with Claims(run, 300) as other:
            other.claim([7])
            waiting = threading.Thread(target=one.claim, args=([7],), daemon=True)
            waiting.start()
            with pytest.raises(PipelineError, match=r"broker 3 belongs to another run .*dispatch again"):
                other.claim([3])
            assert waiting.is_alive()
        waiting.join(60)
        assert not waiting.is_alive()


def _silent(ours: Claims) -> None:
    """End the thread that renews, as if the process were stopped or cut off."""
    ours._lease._ended.set()
    ours._lease._thread.join()


@MOSTLY_LOCAL
def test_a_silent_owner_is_ended_before_another_takes_over(root: AnyPath, clock: _Clock) -> None:
    run = begun(root)
    old, new = Claims(run, 100), Claims(run, 100)
    old.claim([1])
    _silent(old)
    _silent(new)
    new._lease._until = float("inf")
    taken = threading.Thread(target=new.claim, args=([1],), daemon=True)
    taken.start()
    ended_at = taken_at = None
    for _ in range(30):
        clock.wait_for_looks(taken, 2)
        if ended_at is None and not old.held():
            ended_at = clock.now
        if taken_at is None and not taken.is_alive():
            taken_at = clock.now
            break
        clock.now += 5
    taken.join(30)
    assert ended_at is not None
    assert taken_at is not None
    assert ended_at - 1_000 <= 91
    assert taken_at - ended_at >= 15
    with pytest.raises(PipelineError, match="were not renewed for 100 s"):
        old.require()
    with pytest.raises(PipelineError, match="another run may own"):
        old.claim([2])


def test_an_owner_that_ended_on_this_machine_is_not_waited_for(tmp_path: Path) -> None:
    begun(tmp_path)
    hold = (
        "import sys, time; from ctrlchan.pipeline.jobs.dispatch.claims import Claims\n"
        "from ctrlchan.pipeline.jobs.dispatch.run import Run\n"
        "claims = Claims(Run(sys.argv[1], 'run'), 600); claims.claim([3, 4]); print('held', flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        owner.kill()
        owner.wait()
    with Claims(Run(tmp_path, "run"), 600) as ours:
        ours.claim([4, 3])
        assert ours.held()


def test_an_owner_works_on_when_the_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path)
    with Claims(Run(tmp_path, "run"), 600) as owner:
        owner.claim([3])
        [file] = (tmp_path / "_dispatch").glob("owner-*")
        # The start of a process as a time of day: it follows the clock.
        create_time = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) + 5)
        found = Owner.read(tmp_path / "_dispatch", file.name.removeprefix("owner-"))
        assert found is not None
        assert found.process == os.getpid()
        assert not found.is_dead()


def test_a_claim_that_came_too_late_is_worth_nothing(root: AnyPath) -> None:
    """A task saw number 1; meanwhile 2 and 3 were made and 2 was removed. Its own 2 is not the newest."""
    run = begun(root)
    with Claims(run, 30) as third, Claims(run, 30) as late:
        for number in (1, 2, 3):
            folder = run.folder / "broker-5"
            if isinstance(folder, Path):
                folder.mkdir(exist_ok=True)
            assert third._take(folder, number)
        assert names_in(folder) == ["000000000003"]
        assert not late._take(folder, 2)
        assert third.held()


def test_a_store_that_does_not_answer_is_named(
    tmp_path: Path, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write that renews the lease hangs; neither the process nor its machine is to blame."""
    run = begun(tmp_path)
    answers, asked = threading.Event(), threading.Event()
    with Claims(run, 100) as ours:
        ours.claim([1])

        def hanging(path: AnyPath, content: bytes) -> None:
            asked.set()
            assert answers.wait(60)
            replace(path, content)

        monkeypatch.setattr(lease, "replace", hanging)
        clock.now += 40
        assert asked.wait(60)
        clock.now += 70
        with pytest.raises(PipelineError, match="has not been written for 70 s: the store does not answer"):
            ours._lease.require()
        answers.set()


def test_a_store_that_fails_for_longer_than_a_lease_ends_the_owner(s3: S3Server, bucket: AnyPath) -> None:
    run = begun(bucket)
    with Claims(run, 0.6) as ours:
        ours.claim([1])
        s3.fault = lambda _: "busy"
        eventually(lambda: not ours.held(), 60)
        with pytest.raises(PipelineError, match="were not renewed"):
            ours.require()
        s3.fault = None
        with Claims(run, 0.6) as other:
            other.claim([1])
        # Renewing again would be too late.
        assert not ours.held()


def test_a_store_that_fails_for_a_moment_does_not(s3: S3Server, bucket: AnyPath) -> None:
    run = begun(bucket)
    with Claims(run, 60) as ours:
        ours.claim([1])
        answers = iter(["busy", "lost", "busy"])
        s3.fault = lambda _: next(answers, None)
        ours.claim([2, 3])
        ours.require()


def test_a_silent_store_does_not_hold_a_task(s3: S3Server, bucket: AnyPath) -> None:
    answers, asked = threading.Event(), threading.Event()

    def silent(_: object) -> None:
        asked.set()
        answers.wait(300)

    try:
        with Claims(begun(bucket), 0.6) as ours:
            ours.claim([1])
            s3.fault = silent
            assert asked.wait(60)
            release = threading.Thread(target=ours.release, daemon=True)
            release.start()
            release.join(60)
            assert not release.is_alive()
    finally:
        answers.set()


def test_the_request_to_stop_reaches_other_machines(bucket: AnyPath) -> None:
    run, there = begun(bucket), Run(bucket, "run")
    there.require_begun()
    with Claims(there, 30):
        assert there.stopped() is None
        run.stop("broker 4 has a newer controller")
        eventually(lambda: there.stopped() == "broker 4 has a newer controller", 60)
    run.end()
    with pytest.raises(PipelineError, match="is not the driver's here"):
        there.require_begun()
