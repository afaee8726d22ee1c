package kafka.server

import java.net.InetAddress
import java.util.Properties
import scala.collection.Map
import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.config.ConfigResource
import org.apache.kafka.common.internals.KafkaFutureImpl
import org.apache.kafka.common.metrics.{Metrics, Quota}
import org.apache.kafka.common.quota.{ClientQuotaEntity, ClientQuotaFilter}
import org.apache.kafka.common.requests.{DescribeClientQuotasRequest, DescribeClientQuotasResponse}
import org.apache.kafka.common.utils.{Sanitizer, Time}
import org.apache.kafka.server.config.{QuotaConfigs, ZooKeeperInternals}
import org.mockito.Mockito
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

/**
 * Kafka's own quota managers, with the quotas that the broker answers to DescribeClientQuotas: they say which one holds for whom.
 *
 * `settings`: what the broker answers to DescribeConfigs of a resource. The quotas of replication are read there.
 */
class BrokerQuotas(
  config: KafkaConfig,
  ask: DescribeClientQuotasRequest => DescribeClientQuotasResponse,
  settings: (ConfigResource.Type, String) => Properties
) {
  private type Bounds = Map[ClientQuotaEntity, Map[String, Double]]

  /** Of Kafka's managers: clients whose sensors tests have asked for are here, without values. */
  val metrics = new Metrics
  private val managers = QuotaFactory.instantiate(config, metrics, Time.SYSTEM, "ctrlchan-")
  private val ofKeys = Map(
    "producer_byte_rate" -> managers.produce, "consumer_byte_rate" -> managers.fetch, "request_percentage" -> managers.request,
    "controller_mutation_rate" -> managers.controllerMutation)
  private val known = new SharedReading[Bounds](Map.empty)(read)

  /** Managers that ask the broker before each answer: tests keep them. */
  val asked: QuotaFactory.QuotaManagers = managers.copy(
    fetch = asking(managers.fetch), produce = asking(managers.produce), request = asking(managers.request),
    controllerMutation = asking(managers.controllerMutation),
    leader = ofReplication(
      QuotaConfigs.LEADER_REPLICATION_THROTTLED_RATE_CONFIG, QuotaConfigs.LEADER_REPLICATION_THROTTLED_REPLICAS_CONFIG),
    follower = ofReplication(
      QuotaConfigs.FOLLOWER_REPLICATION_THROTTLED_RATE_CONFIG, QuotaConfigs.FOLLOWER_REPLICATION_THROTTLED_REPLICAS_CONFIG),
    alterLogDirs = ofReplication(QuotaConfigs.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND_CONFIG, ""))

  /** How many connections in a second an address may make. */
  def connectionRateFor(address: InetAddress): Int = {
    val rates = refresh().collect { case (entity, bounds) if entity.entries.containsKey(ClientQuotaEntity.IP) =>
      entity.entries.get(ClientQuotaEntity.IP) -> bounds(QuotaConfigs.IP_CONNECTION_RATE_OVERRIDE_CONFIG).toInt
    }
    rates.getOrElse(address.getHostAddress, rates.getOrElse(null, Int.MaxValue))
  }

  private def ofReplication(rate: String, replicas: String): ReplicationQuotaManager = Inside.of[ReplicationQuotaManager] {
    case ("upperBound", _) =>
      val answered = settings(ConfigResource.Type.BROKER, config.brokerId.toString).getProperty(rate)
      Long.box(Option(answered).map(_.toLong).getOrElse(QuotaConfigs.QUOTA_BYTES_PER_SECOND_DEFAULT))
    case ("isThrottled", Seq(partition: TopicPartition)) =>
      val throttled = settings(ConfigResource.Type.TOPIC, partition.topic).getProperty(replicas, "").split(",").map(_.trim)
      Boolean.box(throttled.contains("*") || throttled.contains(s"${partition.partition}:${config.brokerId}"))
  }

  private def asking[T](manager: T)(implicit tag: ClassTag[T]): T = {
    val kind = tag.runtimeClass.asInstanceOf[Class[T]]
    Mockito.mock(kind, new Answer[Any] {
      override def answer(call: InvocationOnMock): Any = {
        refresh()
        call.getMethod.invoke(manager, call.getArguments: _*)
      }
    })
  }

  /** Nothing older than the call counts. */
  private def refresh(): Bounds = known.notBefore(System.nanoTime)

  private def read(known: Bounds): Bounds = {
    val answer = ask(new DescribeClientQuotasRequest.Builder(ClientQuotaFilter.all).build())
    val future = new KafkaFutureImpl[java.util.Map[ClientQuotaEntity, java.util.Map[String, java.lang.Double]]]
    answer.complete(future)
    val found: Bounds = future.get.asScala.map { case (entity, bounds) => entity -> bounds.asScala.view.mapValues(_.doubleValue).toMap }
    for (entity <- found.keySet ++ known.keySet if !entity.entries.containsKey(ClientQuotaEntity.IP); (key, manager) <- ofKeys) {
      val bound = found.get(entity).flatMap(_.get(key))
      if (known.get(entity).flatMap(_.get(key)) != bound)
        manager.updateQuota(
          part(entity, ClientQuotaEntity.USER).map(sanitized), part(entity, ClientQuotaEntity.CLIENT_ID),
          part(entity, ClientQuotaEntity.CLIENT_ID).map(sanitized), bound.map(Quota.upperBound))
    }
    found
  }

  def close(): Unit = {
    managers.shutdown()
    metrics.close()
  }

  private def part(entity: ClientQuotaEntity, kind: String): Option[String] =
    if (entity.entries.containsKey(kind)) Some(Option(entity.entries.get(kind)).getOrElse(ZooKeeperInternals.DEFAULT_STRING)) else None

  private def sanitized(name: String): String =
    if (name == ZooKeeperInternals.DEFAULT_STRING) name else Sanitizer.sanitize(name)
}
