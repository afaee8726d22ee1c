"""State-change log lines of one partition as each release of Kafka from 0.10 to 3.9 writes them.

Topic ``t`` is created with replicas 1 and 2, and its leader changes from 1 to 2. Broker 1 is the controller.
Every function takes the release as a tuple, as (2, 3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

Release = tuple[int, ...]

RELEASES: Final[list[Release]] = [
    *((0, 10, patch) for patch in range(3)),
    (0, 11, 0),
    (1, 0),
    (1, 1),
    *((2, minor) for minor in range(9)),
    *((3, minor) for minor in range(10)),
]
#: The first release whose brokers log at level INFO which leader epochs they applied.
APPLIED_AT_INFO: Final = (2, 6)
TOPIC_ID: Final = "rF41Lbl0Tk-lREojfrGsiA"
BROKERS: Final = (1, 2)


class Line(NamedTuple):
    broker: int
    level: str
    #: With its prefix.
    message: str


def name_of(release: Release) -> str:
    return ".".join(map(str, release))


def creation(release: Release) -> list[Line]:
    return [
        controller(
            release,
            f"Changed partition {_tp(release)} state from NonExistentPartition to NewPartition with assigned "
            "replicas 1,2",
            level=_info_since_2_6(release),
        ),
        controller(
            release,
            f"Changed partition {_tp(release)} from NewPartition to OnlinePartition with "
            + ("leader 1" if release < (1, 1) else f"state {_decided(release)}"),
            level=_info_since_2_6(release),
        ),
    ]


def requests(release: Release, epoch: int, leader: int, *, error: int = 0) -> list[Line]:
    """Return the lines of a LeaderAndIsr to brokers 1 and 2, of their answers, and of an UpdateMetadata.

    ``error``: the error code of the partition in broker 2's response.
    """
    lines = []
    for broker in BROKERS:
        role = "leader" if broker == leader else "follower"
        lines.append(
            controller(
                release,
                f"Sending become-{role} LeaderAndIsr request {_sent(release, epoch, leader)} to broker {broker} "
                f"for partition {_tp(release)}",
            )
        )
    for broker in BROKERS:
        lines += received(release, epoch, leader, broker)
        lines += applied(release, epoch, leader, broker)
    lines += [response(release, broker, epoch, error if broker == 2 else 0) for broker in BROKERS]
    return lines + [cached(release, epoch, leader, broker) for broker in BROKERS]


def received(release: Release, epoch: int, leader: int, broker: int) -> list[Line]:
    state = _state(release, "LeaderAndIsr", epoch, leader)
    named = f" for partition {_tp(release)}" if release < (2, 4) else ""
    text = (
        f"Received LeaderAndIsr request {state} correlation id {epoch + 5} from controller 1 epoch 1{named}"
    )
    return [of_broker(release, broker, text)]


def applied(release: Release, epoch: int, leader: int, broker: int) -> list[Line]:
    role = "leader" if broker == leader else "follower"
    # TopicAndPartition until 0.10.1, then TopicPartition.
    tp = "[t,0]" if release < (0, 10, 2) else "t-0"
    request = f"LeaderAndIsr request correlationId {epoch + 5} from controller 1 epoch 1"
    which = f"for partition {tp}"
    if release >= (2, 0) and role == "follower":
        which += f" with leader {leader}"
    lines = [of_broker(release, broker, f"Handling {request} starting the become-{role} transition {which}")]
    if release >= APPLIED_AT_INFO:
        lines.append(of_broker(release, broker, _starts(release, epoch, leader, role), level="INFO"))
    return [
        *lines,
        of_broker(release, broker, f"Completed {request} for the become-{role} transition {which}"),
    ]


def failed(release: Release, epoch: int, leader: int, broker: int) -> list[Line]:
    """Return the lines of a broker whose replica is offline; Kafka since 1.0 has replicas offline."""
    completed = applied(release, epoch, leader, broker)[-1]
    role = "leader" if broker == leader else "follower"
    with_leader = f" with leader {leader}" if release >= (2, 0) and role == "follower" else ""
    text = (
        f"Skipped the become-{role} state change with correlation id {epoch + 5} from controller 1 epoch 1 for "
        f"partition t-0 (last update controller epoch 1){with_leader} since the replica for the partition is "
        f"offline due to {'disk' if release < (3, 1) else 'storage'} error java.io.IOException: gone"
    )
    return [of_broker(release, broker, text, level="ERROR"), completed]


def response(release: Release, broker: int, epoch: int, error: int) -> Line:
    if release < (2, 4):
        answer = f"{{error_code=0,partitions=[{{topic=t,partition=0,error_code={error}}}]}}"
    elif release < (2, 8):
        tags = ",_tagged_fields={}"
        answer = (
            "{error_code=0,partition_errors=[{topic_name=t,partition_index=0,"
            f"error_code={error}{tags}}}]{tags}}}"
        )
    elif release < (3, 0):
        answer = (
            "LeaderAndIsrResponseData(errorCode=0, partitionErrors=[LeaderAndIsrPartitionError(topicName='t', "
            f"partitionIndex=0, errorCode={error})], topics=[])"
        )
    else:
        answer = (
            "LeaderAndIsrResponseData(errorCode=0, partitionErrors=[], topics=[LeaderAndIsrTopicError(topicId="
            f"{TOPIC_ID}, partitionErrors=[LeaderAndIsrPartitionError(topicName='', partitionIndex=0, "
            f"errorCode={error})])])"
        )
    request = "a request" if release < (1, 1) else f"request LEADER_AND_ISR with correlation id {epoch + 5}"
    sent = f"sent to broker kafka-{broker}:9092 (id: {broker} rack: null)"
    return controller(release, f"Received response {answer} for {request} {sent}")


def cached(release: Release, epoch: int, leader: int, broker: int) -> Line:
    if release < (1, 0):
        state = f"(LeaderAndIsrInfo:{_sent(release, epoch, leader)},ReplicationFactor:2),AllReplicas:1,2)"
    else:
        state = _state(release, "UpdateMetadata", epoch, leader)
    return of_broker(
        release,
        broker,
        f"Cached leader info {state} for partition {'[t,0]' if release < (0, 10, 1) else 't-0'} in response to "
        f"UpdateMetadata request sent by controller 1 epoch 1 with correlation id {epoch + 6}",
    )


def controller(release: Release, text: str, *, level: str = "TRACE") -> Line:
    if release < (1, 0):
        return Line(1, level, f"Controller 1 epoch 1 {text[0].lower()}{text[1:]}")
    return Line(1, level, f"[Controller id=1 epoch=1] {text}")


def of_broker(release: Release, broker: int, text: str, *, level: str = "TRACE") -> Line:
    if release < (1, 0):
        return Line(broker, level, f"Broker {broker} {text[0].lower()}{text[1:]}")
    return Line(broker, level, f"[Broker id={broker}] {text}")


def _info_since_2_6(release: Release) -> str:
    return "TRACE" if release < (2, 6) else "INFO"


def _tp(release: Release) -> str:
    return "[t,0]" if release < (1, 0) else "t-0"


def _zk_version(release: Release) -> str:
    return "zkVersion" if release < (3, 0) else "partitionEpoch"


def _decided(release: Release) -> str:
    if release < (3, 4):
        return f"LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), {_zk_version(release)}=0)"
    states = "BrokerState(brokerId=1, brokerEpoch=-1), BrokerState(brokerId=2, brokerEpoch=-1)"
    return f"LeaderAndIsr(leader=1, leaderEpoch=0, isrWithBrokerEpoch=List({states}), partitionEpoch=0)"


def _sent(release: Release, epoch: int, leader: int) -> str:
    if release < (1, 0):
        return f"(Leader:{leader},ISR:1,2,LeaderEpoch:{epoch},ControllerEpoch:1)"
    return _state(release, "LeaderAndIsr", epoch, leader)


def _state(release: Release, api: str, epoch: int, leader: int) -> str:
    """Return the state of a partition in a request."""
    ids = "[1, 2]" if release < (0, 11) or release >= (2, 4) else "1,2"
    name, named = "PartitionState", ""
    if release >= (2, 4):
        name, named = f"{api}PartitionState", "topicName='t', partitionIndex=0, "
    return (
        f"{name}({named}controllerEpoch=1, leader={leader}, leaderEpoch={epoch}, isr={ids}, "
        f"{_zk_version(release)}={epoch}, replicas={ids})"
    )


def _starts(release: Release, epoch: int, leader: int, role: str) -> str:
    """Return the line that says that a replica applied a leader epoch."""
    begin = f"starts at leader epoch {epoch} from offset 0 with"
    before = f"Previous leader epoch was {epoch - 1}."
    if release < (3, 3):
        if role == "leader":
            text = f"Leader t-0 {begin} high watermark 0 ISR [1,2] addingReplicas [] removingReplicas []."
        else:
            text = f"Follower t-0 {begin} high watermark 0."
    elif role == "leader":
        text = (
            f"Leader t-0 with topic id Some({TOPIC_ID}) {begin} partition epoch {epoch}, high watermark 0, ISR "
            "[1,2], adding replicas [] and removing replicas [] ."
        )
    else:
        text = (
            f"Follower t-0 {begin} partition epoch {epoch} and high watermark 0. Current leader is {leader}."
        )
    return f"{text} {before}"
