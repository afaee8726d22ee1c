"""A run: cluster and clients begin, rounds of faults follow each other, and in the end all is compared."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.chaos.cluster import Cluster, History
from tests.chaos.comparing import (
    assigned_replicas,
    left_of_deleted_topics,
    wrong_records,
    wrong_replicas,
)
from tests.chaos.faults import Faults
from tests.chaos.grouping import Groups
from tests.chaos.leaks import Sample, grown, sample
from tests.chaos.nodes import ChaosError
from tests.chaos.plan import Fault, Plan
from tests.chaos.producing import TOPICS, make_loads
from tests.chaos.reading import FinalRead, Follower, Rereader, end_offsets
from tests.chaos.report import Progress, Result
from tests.chaos.stacks import write_stacks
from tests.chaos.topics import PASSING, PassingTopics, create_topics
from tests.chaos.view import NotSeenError
from tests.chaos.watch import Watch

__all__ = ["Failed", "Run"]

#: Seconds in which the cluster must be whole after the faults, and in which clients must be done.
HEALED: Final = 180.0
#: Seconds that a process must have run before its first sample.
_SETTLED: Final = 15.0


class Failed(Exception):
    """A guarantee is broken: the lines are in the result."""


class Run:
    """One run of a plan in ``folder``. ``execute`` fills ``result``."""

    def __init__(self, plan: Plan, folder: Path, result: Result, progress: Progress, rate: float) -> None:
        self.result = result
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._history = History(folder / "history.jsonl")
        self._cluster = Cluster(folder, self._history)
        self._rate = rate
        self._clients: list[Any] = []
        self._faults = Faults(self._cluster)
        #: The first sample of each process: of a controller one with its senders, and one without.
        self._early: dict[tuple[int, bool], Sample] = {}

    @property
    def description(self) -> str:
        """How the nodes run."""
        return self._cluster.hosts.description

    def execute(self) -> None:
        """Run everything. Raises Failed; the result has the reasons."""
        with self._cluster as cluster:
            try:
                self._progress.show("starting")
                cluster.start()
                create_topics(cluster.bootstrap, 60.0)
                self._begin_clients()
                for number, faults in enumerate(self._plan.rounds, 1):
                    self._storm(number, faults)
                    self._calm(number)
                    self.result.rounds += 1
                self._finish()
            except ChaosError as error:
                self.result.failures.append(f"{error}")
                if error.node is not None and error.node.pid is not None:
                    write_stacks(error.node.pid, self._folder, error.node.name)
            except (TimeoutError, NotSeenError) as error:
                self.result.failures.append(f"{error}")
                for node in cluster.servers:
                    if node.pid is not None:
                        write_stacks(node.pid, self._folder, node.name)
                for one in self._clients:
                    if isinstance(one, Follower | Rereader):
                        one.write_statistics(self._folder)
            except Failed:
                pass
            finally:
                self._end_clients()
                if self.result.failures:
                    self._keep_logs()
        self._history.close()

    def _end_clients(self) -> None:
        """Stop all clients and faults, without waiting for the former."""
        self._cluster.give_up()
        for one in self._clients:
            one.stop()
        self._faults.join()

    # -- clients

    def _begin_clients(self) -> None:
        bootstrap, seed = self._cluster.bootstrap, self._plan.seed
        self._watch = Watch(self._cluster, self._folder)
        self._loads = make_loads(bootstrap, self._rate)
        self._followers = [Follower(bootstrap, topic) for topic in TOPICS]
        self._rereader = Rereader(bootstrap, self._followers, seed)
        self._groups = Groups(bootstrap, seed)
        self._passing = PassingTopics(bootstrap, seed)
        self._clients = [self._watch, *self._loads, *self._followers]
        self._clients += [self._rereader, self._groups, self._passing]
        for one in self._clients:
            one.start()

    def _check(self) -> None:
        """Raises Failed where something has gone wrong."""
        found = [*self._watch.failures, *self._groups.failures, *self._passing.failures]
        for error in self._faults.failures:
            found.append(f"{error}")
            if error.node is not None and error.node.pid is not None:
                write_stacks(error.node.pid, self._folder, error.node.name)
        found += [line for load in self._loads for line in load.failures]
        found += [line for reader in (*self._followers, self._rereader) for line in reader.failures]
        self._fail(found)

    def _fail(self, lines: Iterable[str]) -> None:
        self.result.failures += lines
        self._count()
        if self.result.failures:
            raise Failed

    def _count(self) -> None:
        result = self.result
        result.acknowledged = sum(load.acknowledged for load in self._loads)
        result.refused = sum(load.refused for load in self._loads)
        result.replaced = sum(load.replaced for load in self._loads)
        result.read = sum(follower.records for follower in self._followers)
        result.reread = self._rereader.records
        result.commits = len(self._groups.commits)
        result.consumed = sum(group.records for group in self._groups.groups)
        result.passing_topics = self._passing.counts["deleted"]
        result.faults = self._faults.done

    def _wait(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for a condition. Raises TimeoutError, Failed."""
        deadline = time.monotonic() + seconds
        while not done():
            self._check()
            self._show(what)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {seconds:g} s")
            time.sleep(0.3)

    def _wait_for_none(self, left: Callable[[], list[str]], what: str) -> None:
        """Wait until nothing is left. Raises TimeoutError that names some of it, Failed."""
        found: list[str] = []

        def is_none_left() -> bool:
            found[:] = left()
            return not found

        try:
            self._wait(is_none_left, what, HEALED)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {'; '.join(found[:5])}") from None

    def _show(self, what: str) -> None:
        self._count()
        counts = {"faults": self._faults.done.total(), "acknowledged": self.result.acknowledged}
        self._progress.show(what, {**counts, "read": self.result.read, "reread": self.result.reread})

    # -- rounds

    def _storm(self, number: int, faults: tuple[Fault, ...]) -> None:
        begin = time.monotonic()
        what = f"round {number} of {len(self._plan.rounds)}"
        for fault in faults:
            self._wait(lambda at=begin + fault.at: time.monotonic() >= at, what, HEALED)  # type: ignore[misc]
            self._faults.begin(fault)

    def _calm(self, number: int) -> None:
        """Wait until everything has come back, and take samples."""
        what = f"round {number} of {len(self._plan.rounds)} heals"
        self._wait(lambda: not self._faults.under_way(), what, HEALED)
        self._history.add("calm")
        self._wait_until_whole(what)
        self._groups.rest()
        before = [(load, load.acknowledged) for load in self._loads]
        self._wait_for_none(
            lambda: [load.waiting for load, count in before if load.acknowledged == count],
            f"{what}: every producer goes on",
        )
        ends = end_offsets(self._cluster.bootstrap, TOPICS, HEALED)
        self._wait_for_none(
            lambda: [line for one in self._followers for line in one.behind(ends)],
            f"{what}: every reader goes on",
        )
        self._wait_for_none(self._groups.unread, f"{what}: committed offsets are read")
        self._groups.at_rest.clear()
        self._sample()

    def _wait_until_whole(self, what: str) -> None:
        def unready() -> list[str]:
            try:
                # Topics that come and go are always about to be made or deleted.
                return [one for one in self._cluster.view.out_of_sync() if not one.startswith(PASSING)]
            except NotSeenError as error:
                return [f"{error}"]

        self._wait_for_none(unready, what)

    def _sample(self) -> None:
        found = []
        active = self._cluster.view.controller_id()
        for node in self._cluster.servers:
            if node.pid is None or node.up_since is None or time.monotonic() - node.up_since < _SETTLED:
                continue
            now = sample(node.pid, str(self._cluster.folder))
            self._history.add("sample", node=node.name, sample=f"{now}", deleted=now.deleted)
            is_active = node.name == f"controller-{active}"
            found += grown(node.name, self._early.setdefault((node.pid, is_active), now), now)
        self._fail(found)

    # -- the end

    def _finish(self) -> None:
        bootstrap, brokers = self._cluster.bootstrap, self._cluster.brokers
        for load in self._loads:
            load.finish()
        deadline = time.monotonic() + HEALED
        self._passing.join()
        self._passing.delete_all(deadline)
        what = "all is acknowledged"
        self._wait_for_none(lambda: [load.waiting for load in self._loads if load.open()], what)
        ends = end_offsets(bootstrap, TOPICS, HEALED)
        self._wait_for_none(
            lambda: [line for one in self._followers for line in one.behind(ends)], "readers come to the end"
        )
        self._wait_until_whole("the cluster is whole")
        self._groups.rest()
        self._wait_for_none(lambda: self._groups.behind(ends), "groups come to the end")
        self._groups.join()
        self._rereader.join()
        for follower in self._followers:
            follower.join()
        seen = {
            (follower.topic.name, number): one
            for follower in self._followers
            for number, one in enumerate(follower.seen)
        }
        self._progress.show("reading all again")
        last = FinalRead(bootstrap, ends, seen, HEALED)
        last.read()
        self._check()
        self._fail(last.failures)
        self._fail(wrong_records(self._loads, self._groups, last.logs))
        self._wait_for_none(lambda: left_of_deleted_topics(brokers), "deleted topics are gone")
        self._wait_until_whole("the cluster is whole")
        self._sample()
        self._watch.stop()
        self._check()
        assigned = assigned_replicas(self._cluster.view)
        self._cluster.stop()
        self._fail(wrong_replicas(brokers, assigned, self.result))

    def _keep_logs(self) -> None:
        """Copy log directories from disks that end with the run."""
        if not self._cluster.hosts.has_disks:
            return
        for broker in self._cluster.brokers:
            broker.kill()
            for disk in broker.disks:
                copy = self._folder / "disks" / broker.name / disk.name
                with suppress(OSError, shutil.Error):
                    shutil.copytree(disk, copy)
