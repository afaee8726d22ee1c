"""Which suites there are: their questions, and how the raw results of each become measures.

A suite of a general shape needs no entry here. Each of its benchmarks has one of two shapes, and may have
``goals``: name of a measure -> goal, and ``higher``: names of measures of which more is better.

- ``figures``: name -> [unit, {side: [samples]}];
- a question over sizes: ``question``, ``unit``, ``per`` (what a size counts), ``sides``: side -> size ->
  [samples], and perhaps ``gave_up``: side -> size -> why a side was not measured there. The names of its
  measures are ``QUESTION, SIZE PER``, as in ``memory, 1,000 connections``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from bench.alternate import OURS
from bench.measures.goals import goals_for
from bench.measures.measure import Measure
from ctrlchan.channel.config import PER_BROKER
from ctrlchan.protocol import API_NAMES

__all__ = ["SUITES", "Result", "Suite", "measures_of", "suite_of"]

#: One result: ``name``, ``date``, ``commit``, ``machine``, ``versions``, ``command``, perhaps ``load``, and
#: ``benchmarks``: the ``extra_info`` of each test.
Result: TypeAlias = dict[str, Any]
Benchmark: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite: its title and question, how it measures, and its note below ``bench/notes``.

    ``runs_with``: the suite of ``python -m bench SUITE`` that measures it, where that has another name.
    """

    title: str
    question: str = ""
    about: str = ""
    note: str = ""
    runs_with: str = ""
    read: Callable[[str, Benchmark], Iterable[Measure]]


def suite_of(name: str) -> Suite:
    """Return the description of a suite; one that is not known here has the general shape."""
    return SUITES.get(name) or Suite(title=name.replace("_", " ").capitalize(), note=name, read=_general)


def measures_of(result: Result) -> list[Measure]:
    """Return all measures of a result. Raises ValueError if two have the same name."""
    name = result["name"]
    read = suite_of(name).read
    found = [one for benchmark in result["benchmarks"] for one in read(name, benchmark)]
    if len({one.id for one in found}) != len(found):
        raise ValueError(f"two measures of {name!r} have the same name")
    return found


def _measure(suite: str, what: str, unit: str, sides: Mapping[str, Any], **more: Any) -> Measure:
    """Return a measure with its goals; a single figure is one sample."""
    samples = {
        _SIDES.get(side, side): list(values) if isinstance(values, list) else [values]
        for side, values in sides.items()
        if values is not None
    }
    goals = more.pop("goals", None) or goals_for(suite, what)
    return Measure(suite=suite, what=what, unit=unit, sides=samples, goals=goals, **more)


_SIDES: Final = {"blast": "limit", PER_BROKER: "per-broker"}


def _shape(one: Benchmark) -> str:
    return f"{one['partitions']:,} → {one['brokers']:,}"


def _general(suite: str, one: Benchmark) -> Iterable[Measure]:
    return _figures(suite, one) if "figures" in one else _over_sizes(suite, one)


def _figures(suite: str, one: Benchmark) -> Iterable[Measure]:
    for what, (unit, sides) in one["figures"].items():
        yield _measure(suite, what, unit, sides, **_said_by(one, what))


def _over_sizes(suite: str, one: Benchmark) -> Iterable[Measure]:
    question, per = one["question"], one["per"]
    gave_up = one.get("gave_up", {})
    sizes = {int(size) for sides in (one["sides"], gave_up) for by_size in sides.values() for size in by_size}
    for size in sorted(sizes):
        what = f"{question}, {size:,} {per}"
        yield _measure(
            suite,
            what,
            one["unit"],
            {side: by_size[str(size)] for side, by_size in one["sides"].items() if by_size.get(str(size))},
            gave_up={side: why[str(size)] for side, why in gave_up.items() if str(size) in why},
            chart=f"{question[0].upper()}{question[1:]}",
            line=question,
            size=(per, size),
            **_said_by(one, what),
        )


def _said_by(one: Benchmark, what: str) -> dict[str, Any]:
    """Return the goals and the direction that the results say of a measure."""
    goal = one.get("goals", {}).get(what)
    return {"goals": (goal,) if goal else (), "higher": what in one.get("higher", ())}


def _security(suite: str, one: Benchmark) -> Iterable[Measure]:
    names = {"100,000": OURS, "10,000": "ours, 10,000 ACLs"}
    figures = {
        what: (unit, {names.get(side, side): values for side, values in sides.items()})
        for what, (unit, sides) in one["figures"].items()
    }
    return _figures(suite, {**one, "figures": figures})


def _push(suite: str, one: Benchmark) -> Iterable[Measure]:
    shape, of = _shape(one), f"{one['brokers']:,} brokers"
    parts = (
        ("full push", "ms", one["ms"]),
        ("first push of a new process", "ms", one["first_ms"]),
        ("memory", "MiB", one["pss_mib"]),
    )
    for what, unit, sides in parts:
        yield _measure(
            suite,
            f"{what}, {shape}",
            unit,
            sides,
            chart=what.capitalize(),
            line=f"{what}, {of}",
            size=("partitions", one["partitions"]),
        )


def _small(suite: str, one: Benchmark) -> Iterable[Measure]:
    for what, key in (("", "ms"), ("first requests of a new process, ", "first_ms")):
        sides = {
            side: [one["requests"] / each * 1e3 for each in (times if isinstance(times, list) else [times])]
            for side, times in one[key].items()
        }
        chart = "The first requests of a new process" if what else "Small requests"
        name = f"{what}{one['mode']}, {one['brokers']:,} brokers"
        yield _measure(suite, name, "requests/s", sides, chart=chart, higher=True)


def _start(suite: str, one: Benchmark) -> Iterable[Measure]:
    shape = _shape(one)
    yield _measure(suite, f"start, {shape}", "ms", one["ms"], chart="Start")
    yield _measure(suite, f"first push, {shape}", "ms", one["first_ms"], chart="First push and warm push")
    yield _measure(suite, f"warm push, {shape}", "ms", one["warm_ms"], chart="First push and warm push")
    ratios = {
        side: [first / warm for first, warm in zip(one["first_ms"][side], one["warm_ms"][side], strict=True)]
        for side in one["ms"]
    }
    yield _measure(suite, f"first push / warm push, {shape}", "×", ratios)


def _features(suite: str, one: Benchmark) -> Iterable[Measure]:
    yield _measure(suite, f"{one['feature']}: {one['work']}", "ms", one["ms"], chart=f"Work: {one['work']}")


def _codec(suite: str, one: Benchmark) -> Iterable[Measure]:
    """Read milliseconds of a message as nanoseconds of a partition."""
    message = f"{API_NAMES[one['api_key']]} v{one['version']} {one['direction']}"
    buffers = f", {one['buffers']} buffers" if "buffers" in one else ""
    sides = {side: [each * 1e6 / one["partitions"] for each in times] for side, times in one["ms"].items()}
    chart = f"{one['direction'].capitalize()}, ns a partition"
    yield _measure(
        suite,
        f"{message}, {one['partitions']:,} partitions{buffers}",
        "ns",
        sides,
        chart=chart,
    )


def _spark(suite: str, one: Benchmark) -> Iterable[Measure]:
    for what, unit, key in (("time", "ms", "ms"), ("memory", "MiB", "pss_mib")):
        sides = {"Spark alone" if side == "without" else side: each for side, each in one[key].items()}
        job = one["job"].replace("`", "")
        name = f"{job}, {one['rows']:,} {one['work']}: {what}"
        line = f"{job}, {one['work']}"
        yield _measure(
            suite, name, unit, sides, chart=f"Jobs: {what}", line=line, size=(_noun(one["work"]), one["rows"])
        )


def _noun(work: str) -> str:
    return work.split()[0]


def _spark_small(suite: str, one: Benchmark) -> Iterable[Measure]:
    for job, times in one["ms"].items():
        if job == "session":
            continue
        sides = {OURS: times, "session": one["ms"]["session"]}
        yield _measure(suite, job.replace("`", ""), "ms", sides, chart="Processor time of a command")


def _spark_stores(suite: str, one: Benchmark) -> Iterable[Measure]:
    for store, times in one["ms"].items():
        if store != "disk":
            sides = {OURS: times, "disk": one["ms"]["disk"]}
            yield _measure(suite, f"{one['job'].replace('`', '')}: {store}", "ms", sides, chart="Jobs")


def _controller(suite: str, one: Benchmark) -> Iterable[Measure]:
    shape, of = _shape(one), f"{one['brokers']:,} brokers"
    size = ("partitions", one["partitions"])
    for event, times in one["ms"].items():
        chart = f"{event[0].upper()}{event[1:]}"
        yield _measure(suite, f"{event}, {shape}", "ms", times, chart=chart, line=f"{event}, {of}", size=size)
        yield _measure(
            suite,
            f"{event}, {shape}: processor time",
            "s",
            one["cpu_seconds"][event],
            chart=f"{chart}: processor time",
            line=f"{event}, {of}",
            size=size,
        )
    yield _measure(
        suite,
        f"memory, {shape}",
        "MiB",
        one["pss_mib"],
        chart="Memory in a failover",
        line=f"memory, {of}",
        size=size,
    )


_LIFE: Final = {
    "ready": ("ready", "ms"),
    "acknowledged": ("first record acknowledged", "ms"),
    "read": ("first record read by a group", "ms"),
    "stop": ("stop", "ms"),
    "processor": ("start and life: processor time", "s"),
    "memory": ("memory", "MiB"),
}


def _clusters(suite: str, one: Benchmark) -> Iterable[Measure]:
    lives, failed = one["lives"], one["failed"]
    names = {
        name: _plain(name)
        + (f" ({failed[name]} of {failed[name] + len(lives[name])} lives failed)" if name in failed else "")
        for name in sorted(lives, key=lambda name: (name != OURS, not name.startswith(OURS)))
    }
    for key, (what, unit) in _LIFE.items():
        sides = {shown: [life[key] for life in lives[name]] for name, shown in names.items()}
        yield _measure(suite, what, unit, sides)


def _plain(name: str) -> str:
    return name.replace("`", "")


def _clusters_semantics(suite: str, one: Benchmark) -> Iterable[Measure]:
    reasons = one["reasons"]
    tried = {trial for each in reasons.values() for trial in each}
    sides = {
        {"mock": "librdkafka's mock"}.get(name, name): sum(reason is None for reason in each.values())
        for name, each in reasons.items()
    }
    yield _measure(suite, f"semantics of {len(tried)} that clients tried", "semantics", sides, higher=True)


def _clusters_first_test(suite: str, one: Benchmark) -> Iterable[Measure]:
    names = {"three brokers": "ours, three brokers", "Hypothesis": "ours, Hypothesis is installed"}
    for what, unit, key in (
        ("the first test begins", "ms", "ms"),
        ("the first test: processor time", "s", "processor"),
    ):
        sides = {names.get(name, name): values for name, values in one[key].items()}
        yield _measure(suite, what, unit, sides)


def _clusters_installation(suite: str, one: Benchmark) -> Iterable[Measure]:
    names = {"ctrlchan[testing]": OURS, "ctrlchan[testing,parquet], with pyarrow": "ours, with pyarrow"}
    sides = {names.get(_plain(name), _plain(name)): size / 1e6 for name, size in one["bytes"].items()}
    yield _measure(suite, "installation", "MB", sides)


#: In the order of the page.
SUITES: Final[Mapping[str, Suite]] = {
    "push": Suite(
        title="Full push",
        question="How long until every broker has acknowledged every partition, and with how much memory?",
        about="UpdateMetadata v8 of all partitions to all brokers, from new_batch to the last outcome. "
        "Memory is the most of the proportional set sizes of the controller and all its processes.",
        note="push",
        read=_push,
    ),
    "plan": Suite(
        title="Plan",
        question="How near does ctrlchan plan come to what is measured?",
        about="Bytes, and times of clusters of sizes that were not calibrated. predicted: by ctrlchan plan.",
        note="plan",
        read=_general,
    ),
    "small": Suite(
        title="Small requests",
        question="How many requests of one partition are sent and acknowledged in a second?",
        about="Awaited: each round of one request to every broker is answered before the next begins. "
        "Queued: all rounds are queued at once. Nothing is merged.",
        note="small-requests",
        read=_small,
    ),
    "start": Suite(
        title="Start of the channel",
        question="How long until every broker has acknowledged a new process's first update, and a push?",
        about="Start: from making the channel until every broker has acknowledged an update without "
        "partitions. First push: the next request. Warm push: the median of those after it.",
        note="push",
        read=_start,
    ),
    "controller": Suite(
        title="Controller",
        question="How long does the controller of a whole cluster take for a failover and for other events?",
        about="From the cause of an event until the last broker has answered its last request, on a real "
        "ZooKeeper 3.8.4. Processor time is that of controller and ZooKeeper; memory that of the controller.",
        note="controller",
        read=_controller,
    ),
    "scale": Suite(
        title="Scale",
        question="What does one more broker, partition, connection, group, member or producer cost?",
        about="Sizes grow until a side gives up. Processor time and memory: of the process that serves.",
        note="scale",
        read=_general,
    ),
    "codec": Suite(
        title="Codec beside memcpy",
        question="How far are encoding and decoding from copying the bytes?",
        about="Same buffers are in the last-level cache where they fit there, rotating ones are not.",
        note="codec",
        read=_codec,
    ),
    "peers": Suite(
        title="Codec beside other codecs",
        question="How far are other codecs from ours?",
        about="Encoding from each codec's own objects, decoding into them.",
        note="codec",
        runs_with="codec",
        read=_codec,
    ),
    "broker": Suite(
        title="Broker: Produce and Fetch",
        question="What do Produce, Fetch, start and recovery cost a broker that stores records?",
        about="One connection, topics of one partition on the same disk, acks=1. Processor time is that of "
        "the broker's process. Kafka: default configuration, heap of 1 GB, G1.",
        note="broker",
        read=_figures,
    ),
    "transactions": Suite(
        title="Transactions and clients",
        question="What does a transaction cost a broker, and how long does its producer wait?",
        about="Processor time is that of the broker's process for one transaction with all its requests. The "
        "clients are programs in C, and Kafka Streams.",
        note="transactions",
        read=_figures,
    ),
    "security": Suite(
        title="Security",
        question="What do 100,000 ACLs cost?",
        about="Ours and Kafka have 100,000 ACLs. Without: no authorizer. Reading: the same nodes of "
        "ZooKeeper, read only.",
        note="security",
        read=_security,
    ),
    "tls": Suite(
        title="TLS",
        question="What does TLS cost a broker?",
        about="TLS 1.3, AES-256-GCM, a key of P-256, OpenSSL 3.0, no kTLS. The limit has the same libssl.",
        note="tls",
        read=_figures,
    ),
    "features": Suite(
        title="Journal, metrics, state-change log",
        question="What do journal, metrics and state-change log cost?",
        about="100,000 partitions, 30 brokers: a full push, and 100 rounds of small requests.",
        note="push",
        read=_features,
    ),
    "clusters": Suite(
        title="Clusters for tests",
        question="How long do clusters for tests take to start, and how much memory?",
        about="From nothing to each step of the same client, confluent-kafka. Processor time: of all "
        "processes until a group has read the first record. Memory: of the idle cluster.",
        note="clusters",
        read=_clusters,
    ),
    "clusters_semantics": Suite(
        title="Semantics of clusters for tests",
        question="Which of Kafka's semantics does each have?",
        about="Tried by clients on three brokers, none claimed.",
        note="clusters",
        runs_with="clusters",
        read=_clusters_semantics,
    ),
    "clusters_first_test": Suite(
        title="The first test",
        question="How long does the first test with the fixture kafka_cluster wait?",
        about="From the end of pytest's collection to the beginning of the test, in a new folder.",
        note="clusters",
        runs_with="clusters",
        read=_clusters_first_test,
    ),
    "clusters_installation": Suite(
        title="Installation",
        question="What does an installation add to a new environment?",
        about="With all that it depends on, and its compiled bytecode.",
        note="clusters",
        runs_with="clusters",
        read=_clusters_installation,
    ),
    "spark": Suite(
        title="Spark jobs",
        question="How far are the pipeline's jobs from the same data moved by Spark alone?",
        about="One local session on all cores, heap of 2 GiB. Memory is that of driver, JVM and workers.",
        note="spark",
        read=_spark,
    ),
    "spark_small": Suite(
        title="Spark jobs on small inputs",
        question="What do commands on small inputs cost?",
        about="Processor time of the process, its JVM and workers. Session: a process that only starts one. "
        "Prepared: after ctrlchan pipeline prepare.",
        note="spark",
        runs_with="spark",
        read=_spark_small,
    ),
    "spark_stores": Suite(
        title="Spark jobs on HDFS and S3",
        question="What do other stores cost?",
        about="A real HDFS of one NameNode and one DataNode; moto's S3 server in the driver's process.",
        note="spark",
        read=_spark_stores,
    ),
}
