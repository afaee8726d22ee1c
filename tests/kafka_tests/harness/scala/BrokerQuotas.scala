package kafka.server

import scala.collection.Map
import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag
import org.apache.kafka.common.internals.KafkaFutureImpl
import org.apache.kafka.common.metrics.{Metrics, Quota}
import org.apache.kafka.common.quota.{ClientQuotaEntity, ClientQuotaFilter}
import org.apache.kafka.common.requests.{DescribeClientQuotasRequest, DescribeClientQuotasResponse}
import org.apache.kafka.common.utils.{Sanitizer, Time}
import org.apache.kafka.server.config.ZooKeeperInternals
import org.mockito.Mockito
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

/** Kafka's own quota managers, with the quotas that the broker answers to DescribeClientQuotas: they say which one holds for whom. */
class BrokerQuotas(config: KafkaConfig, ask: DescribeClientQuotasRequest => DescribeClientQuotasResponse) {
  private type Bounds = Map[ClientQuotaEntity, Map[String, Double]]

  private val metrics = new Metrics
  private val managers = QuotaFactory.instantiate(config, metrics, Time.SYSTEM, "ctrlchan-")
  private val ofKeys = Map(
    "producer_byte_rate" -> managers.produce, "consumer_byte_rate" -> managers.fetch, "request_percentage" -> managers.request,
    "controller_mutation_rate" -> managers.controllerMutation)
  private var known: Bounds = Map.empty

  /** Managers that ask the broker before each answer: tests keep them. */
  val asked: QuotaFactory.QuotaManagers = managers.copy(
    fetch = asking(managers.fetch), produce = asking(managers.produce), request = asking(managers.request),
    controllerMutation = asking(managers.controllerMutation))

  private def asking[T](manager: T)(implicit tag: ClassTag[T]): T = {
    val kind = tag.runtimeClass.asInstanceOf[Class[T]]
    Mockito.mock(kind, new Answer[Any] {
      override def answer(call: InvocationOnMock): Any = {
        refresh()
        call.getMethod.invoke(manager, call.getArguments: _*)
      }
    })
  }

  private def refresh(): Unit = synchronized {
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
    known = found
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
