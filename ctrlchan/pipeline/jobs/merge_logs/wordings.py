"""The messages of Kafka's state-change log, 0.10 to 3.9: event, API, first and last release, text.

Texts have placeholders in braces, which ``messages.py`` explains. ``-`` in the second column: no API, or one
that the text names. First and last release are those whose source writes the message;
``tools/log_wordings.py`` reads them from a checkout of Kafka and corrects them here. A text is that of Kafka
1.0 and later: what came before began with ``Broker 1`` or ``Controller 1 epoch 2`` and a small letter, and
wrote some partitions as ``[orders,0]``.

Sources: ``kafka.controller`` (KafkaController, PartitionStateMachine, ReplicaStateMachine,
ControllerBrokerRequestBatch, RequestSendThread), ``kafka.server.ReplicaManager``, ``kafka.server.MetadataCache``
(later ``ZkMetadataCache``), ``kafka.cluster.Partition``. What only a cluster in KRaft mode writes is left out.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TABLE"]

#: Of those with the same first word frequent ones first.
TABLE: Final = """
# Decisions of the controller.
partition_state        -               0.10.0 3.9    Changed partition {tp} state from {from} to {target} with assigned replicas {replicas}
partition_state        -               1.1    3.9    Changed partition {tp} from {from} to {target} with state {state}
partition_state        -               0.10.0 1.0    Changed partition {tp} from {from} to {target} with leader {leader}
partition_state        -               0.10.0 3.9    Changed partition {tp} state from {from} to {target}
replica_state          -               0.10.0 3.9    Changed state of replica {replica} for partition {tp} from {from} to {target}
partition_state_failed -               1.1    3.9    Failed to change state for partition {tp} from {from} to {target}
partition_state_failed -               0.10.0 1.0    Initiated state change for partition {tp} from {from} to {target} failed
partition_state_failed -               0.10.0 1.0    Encountered error during state change of partition {tp} from New to Online, {error}
partition_state_failed -               0.10.0 1.0    Encountered error while changing partition {tp}'s state from New to Online since {error}
partition_state_failed -               0.10.0 1.0    Encountered error while electing leader for partition {tp} due to: {error}
partition_state_failed -               0.10.0 1.0    Aborted leader election for partition {tp} since {error}
replica_state_failed   -               0.10.0 3.9    Initiated state change of replica {replica} for partition {tp} from {from} to {target} failed
election_begun         -               0.10.0 1.0    Started leader election for partition {tp}
elected                -               0.10.0 1.0    Elected leader {leader} for Offline partition {tp}
isr_shrunk             -               2.6    3.9    Partition {tp} state changed to {state} after removing replica {replica} from the ISR as part of transition to {target}
reassigned             LEADER_AND_ISR  0.10.0 2.3    Sent LeaderAndIsr request {state} with new assigned replica list {replicas} to leader {to} for partition being reassigned {tp}
reassigned             LEADER_AND_ISR  2.4    3.9    Sent LeaderAndIsr request {state} with new replica assignment {assignment} to leader {to} for partition being reassigned {tp}
reassignment_failed    LEADER_AND_ISR  0.10.0 3.9    Failed to send LeaderAndIsr request with new {any} to leader for partition being reassigned {tp}
replicas_offline       -               1.0    3.9    Mark replicas {offline} on broker {replica} as offline
# Requests and responses of the controller.
send_become_leader     LEADER_AND_ISR  0.10.0 3.9    Sending become-leader LeaderAndIsr request {state} to broker {to} for partition {tp}
send_become_follower   LEADER_AND_ISR  0.10.0 3.9    Sending become-follower LeaderAndIsr request {state} to broker {to} for partition {tp}
send_stop_replica      STOP_REPLICA    2.6    3.9    Sending StopReplica request {state} to broker {to} for partition {tp}
send_update_metadata   UPDATE_METADATA 0.10.2 2.5    Sending UpdateMetadata request {state} to brokers {tos} for partition {tp}
send_update_metadata   UPDATE_METADATA 0.10.0 0.10.1 Sending UpdateMetadata request {state} to broker {to} for partition {tp}
request_sent           LEADER_AND_ISR  2.6    3.9    Sending LeaderAndIsr request to broker {to} with {count} become-leader and {any} partitions
request_sent           UPDATE_METADATA 2.6    3.9    Sending UpdateMetadata request to brokers {tos} for {count} partitions
request_sent           STOP_REPLICA    2.6    3.9    Sending StopReplica request for {count} replicas to broker {to}
request_sent           STOP_REPLICA    2.6    3.9    Sending StopReplica request (delete = {delete}) for {count} replicas to broker {to}
# A broker that is no longer registered has no address.
response               -               1.1    3.9    Received response {answer} for request {api} with correlation id {correlation} sent to broker {address}
response               -               0.10.0 1.0    Received response {answer} for a request sent to broker {address}
error_response         UPDATE_METADATA 2.5    3.9    Received error {error} in UpdateMetadata response {answer} from broker {to}
error_response         LEADER_AND_ISR  2.5    3.9    Received error {error} in LeaderAndIsr response {answer} from broker {to}
error_response         LEADER_AND_ISR  1.0    2.4    Received error in LeaderAndIsr response {answer} from broker {to}
error_response         STOP_REPLICA    3.4    3.9    Received error {error} in StopReplica response {answer} from broker {to}
error_response         STOP_REPLICA    3.4    3.9    Received error {error} in StopReplica request for partition {tp} from broker {to}
# A broker receives a request,
request_received       LEADER_AND_ISR  2.6    3.9    Handling LeaderAndIsr request correlationId {correlation} from controller {controller} for {count} partitions
request_received       STOP_REPLICA    2.6    3.9    Handling StopReplica request correlationId {correlation} from controller {controller} for {count} partitions
receive_leader_and_isr LEADER_AND_ISR  2.4    3.9    Received LeaderAndIsr request {state} correlation id {correlation} from controller {controller} epoch {epoch}
receive_leader_and_isr LEADER_AND_ISR  0.10.0 2.3    Received LeaderAndIsr request {state} correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp}
receive_stop_replica   STOP_REPLICA    2.6    3.9    Received StopReplica request {state} correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp}
receive_stop_replica   STOP_REPLICA    0.10.0 2.5    Handling stop replica (delete={delete}) for partition {tp}
# refuses it,
stale_controller       LEADER_AND_ISR  0.10.0 3.9    Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} since its controller epoch {epoch} is old. Latest known controller epoch is {known_epoch}
stale_controller       STOP_REPLICA    2.6    3.9    Ignoring StopReplica request from controller {controller} with correlation id {correlation} since its controller epoch {epoch} is old. Latest known controller epoch is {known_epoch}
stale_controller       STOP_REPLICA    0.10.0 2.5    Received stop replica request from an old controller epoch {epoch}. Latest known controller epoch is {known_epoch}
stale_controller       UPDATE_METADATA 0.10.0 3.9    Received update metadata request with correlation id {correlation} from an old controller {controller} with epoch {epoch}. Latest known controller epoch is {known_epoch}
already_known          LEADER_AND_ISR  2.3    3.9    Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} matches the current leader epoch
already_known          STOP_REPLICA    2.6    3.7    Ignoring StopReplica request (delete={delete}) from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} matches the current leader epoch
stale_leader_epoch     LEADER_AND_ISR  2.3    3.9    Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} is smaller than the current leader epoch {known_epoch}
# Equal leader epochs, too: the event is then already_known.
stale_leader_epoch     LEADER_AND_ISR  0.10.1 2.2    Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} is not higher than the current leader epoch {known_epoch}
stale_leader_epoch     LEADER_AND_ISR  0.10.0 0.10.0 Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} is old. Current leader epoch is {known_epoch}
stale_leader_epoch     STOP_REPLICA    2.6    3.9    Ignoring StopReplica request (delete={delete}) from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} is smaller than the current leader epoch {known_epoch}
refused                LEADER_AND_ISR  0.10.0 3.9    Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} as {error}
refused                STOP_REPLICA    2.6    3.9    Ignoring StopReplica request (delete={delete}) from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} as {error}
refused                STOP_REPLICA    2.7    3.9    Ignoring StopReplica request (delete={delete}) from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} due to {error}
no_replica             STOP_REPLICA    0.10.0 2.5    Ignoring stop replica (delete={delete}) for partition {tp} as replica doesn't exist on broker
refused                STOP_REPLICA    1.0    2.5    Ignoring stop replica (delete={delete}) for partition {tp} due to {error}
refused                LEADER_AND_ISR  3.0    3.9    Topic ID in memory: {word} does not match the topic ID for partition {tp} received: {topic_id}.
refused                LEADER_AND_ISR  2.8    2.8    Topic Id in memory: {word} does not match the topic Id for partition {tp} provided in the request: {topic_id}.
refused                LEADER_AND_ISR  1.0    3.9    Received LeaderAndIsrRequest with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} (last update controller epoch {word}) but {error}
refused                LEADER_AND_ISR  0.10.0 0.11.0 Received LeaderAndIsrRequest with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} but {error}
# or carries it out.
create_partition       LEADER_AND_ISR  3.0    3.9    Creating new partition {tp} with topic id {topic_id}.{any}
create_partition       LEADER_AND_ISR  3.0    3.9    Creating new partition {tp} with topic id {any}
become_leader_begun    LEADER_AND_ISR  0.10.0 3.9    Handling LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} starting the become-leader transition for partition {tp}
become_follower_begun  LEADER_AND_ISR  2.0    3.9    Handling LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} starting the become-follower transition for partition {tp} with leader {leader}
become_follower_begun  LEADER_AND_ISR  0.10.0 1.1    Handling LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} starting the become-follower transition for partition {tp}
became_leader          LEADER_AND_ISR  3.3    3.9    Leader {tp} with topic id {maybe_topic_id} starts at leader epoch {leader_epoch} from offset {word} with partition epoch {partition_epoch}, high watermark {word}, ISR {isr}, {any}
became_leader          LEADER_AND_ISR  2.6    3.2    Leader {tp} starts at leader epoch {leader_epoch} from offset {word} with high watermark {word} ISR {isr} {any}
became_follower        LEADER_AND_ISR  3.3    3.9    Follower {tp} starts at leader epoch {leader_epoch} from offset {word} with partition epoch {partition_epoch} and high watermark {word}. Current leader is {leader}. {any}
became_follower        LEADER_AND_ISR  2.6    3.2    Follower {tp} starts at leader epoch {leader_epoch} from offset {word} with high watermark {word}. Previous {any}
become_leader_done     LEADER_AND_ISR  0.10.0 3.9    Completed LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} for the become-leader transition for partition {tp}
become_follower_done   LEADER_AND_ISR  2.0    3.9    Completed LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} for the become-follower transition for partition {tp} with leader {leader}
become_follower_done   LEADER_AND_ISR  0.10.0 1.1    Completed LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} for the become-follower transition for partition {tp}
still_leader           LEADER_AND_ISR  3.3    3.9    Skipped the become-leader state change for {tp} with topic id {maybe_topic_id} and partition state {state} since it is already the leader with leader epoch {known_epoch}. {any}
still_follower         LEADER_AND_ISR  3.3    3.9    Skipped the become-follower state change for {tp} with topic id {maybe_topic_id} and partition state {state} since it is already a follower with leader epoch {known_epoch}.
still_leader           LEADER_AND_ISR  0.10.0 3.2    Skipped the become-leader state change after marking its partition as leader with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} {any}since it is already the leader for the partition.
still_follower         LEADER_AND_ISR  0.10.0 3.2    Skipped the become-follower state change after marking its partition as follower with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} {any}since the new leader {leader} is the same as the old leader
skipped                LEADER_AND_ISR  3.3    3.9    Skipped the {word} state change for {tp} with topic id {maybe_topic_id} and partition state {state} since {error}
failed                 LEADER_AND_ISR  1.0    3.9    Skipped the {word} state change with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} (last update controller epoch {word}) {error}
skipped                LEADER_AND_ISR  2.0    3.9    Skipped the adding-fetcher step of the become-follower state change with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} with leader {leader} since {error}
skipped                LEADER_AND_ISR  0.10.0 1.1    Skipped the adding-fetcher step of the become-follower state change with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} since {error}
skipped                LEADER_AND_ISR  3.1    3.9    Skipped the update topic ID step of the become-follower state change with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} since {error}
failed                 LEADER_AND_ISR  1.0    3.9    Error while processing LeaderAndIsr request correlationId {correlation} received from controller {controller} epoch {epoch} for partition {tp}
failed                 LEADER_AND_ISR  0.10.0 0.11.0 Error on broker {broker} while processing LeaderAndIsr request correlationId {correlation} received from controller {controller} epoch {epoch} for partition {tp}
request_failed         LEADER_AND_ISR  1.0    3.9    Error while processing LeaderAndIsr request with correlationId {correlation} received from controller {controller} epoch {epoch}{any}
request_failed         LEADER_AND_ISR  0.10.0 0.11.0 Error on broker {broker} while processing LeaderAndIsr request with correlationId {correlation} received from controller {controller} epoch {epoch}
failed                 LEADER_AND_ISR  2.7    3.9    A ZooKeeper client exception has occurred{any} skipping the state change for the partition {tp} with leader epoch: {word}{any}
topic_id_assigned      LEADER_AND_ISR  3.0    3.9    Updating log for {tp} to assign topic ID {topic_id} from LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch}
topic_id_removed       LEADER_AND_ISR  3.1    3.9    Updating PartitionFetchState for {tp} to remove log topic ID {topic_id} since LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} {any}
recovered              LEADER_AND_ISR  3.2    3.9    The topic partition {tp} was marked as RECOVERING. {any}
fetchers_stopped       LEADER_AND_ISR  2.6    3.9    Stopped fetchers as part of LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} as part of the become-leader transition for {count} partitions
fetchers_stopped       LEADER_AND_ISR  2.6    3.9    Stopped fetchers as part of become-follower request from controller {controller} epoch {epoch} with correlation id {correlation} for {count} partitions
fetchers_stopped       LEADER_AND_ISR  0.10.0 1.1    Stopped fetchers as part of {word} request from controller {controller} epoch {epoch} with correlation id {correlation} for partition {tp}
fetchers_stopped       LEADER_AND_ISR  1.0    2.5    Stopped fetchers as part of {word} request from controller {controller} epoch {epoch} with correlation id {correlation} for partition {tp} (last update controller epoch {word})
fetchers_stopped       LEADER_AND_ISR  2.0    2.5    Stopped fetchers as part of {word} request from controller {controller} epoch {epoch} with correlation id {correlation} for partition {tp} with leader {leader}
log_truncated          LEADER_AND_ISR  0.10.0 1.1    Truncated logs and checkpointed recovery boundaries for partition {tp} as part of become-follower request with correlation id {correlation} from controller {controller} epoch {epoch}
log_truncated          LEADER_AND_ISR  2.0    2.5    Truncated logs and checkpointed recovery boundaries for partition {tp} as part of become-follower request with correlation id {correlation} from controller {controller} epoch {epoch} with leader {leader}
fetcher_started        LEADER_AND_ISR  0.10.0 1.1    Started fetcher to new leader as part of become-follower request from controller {controller} epoch {epoch} with correlation id {correlation} for partition {tp}
fetcher_started        LEADER_AND_ISR  2.0    2.5    Started fetcher to new leader as part of become-follower request from controller {controller} epoch {epoch} with correlation id {correlation} for partition {tp} with leader {leader}
request_done           LEADER_AND_ISR  2.7    3.9    Finished LeaderAndIsr request in {word} correlationId {correlation} from controller {controller} for {count} partitions
stop_replica_done      STOP_REPLICA    0.10.0 2.5    Finished handling stop replica (delete={delete}) for partition {tp}
metadata_cached        UPDATE_METADATA 0.10.0 3.9    Cached leader info {state} for partition {tp} in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id {correlation}
metadata_deleted       UPDATE_METADATA 0.10.0 3.9    Deleted partition {tp} from metadata cache in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id {correlation}
request_done           UPDATE_METADATA 2.6    3.9    Add {count} partitions and deleted {word} partitions from metadata cache in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id {correlation}
"""
