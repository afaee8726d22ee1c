package kafka.server

import java.io.IOException
import java.net.URL
import java.time.Duration
import java.util.concurrent.ConcurrentHashMap
import scala.io.Source
import scala.jdk.CollectionConverters._
import com.yammer.metrics.core.{Gauge => YammerGauge, Histogram => YammerHistogram, Metric => YammerMetric, MetricName => YammerName, MetricsRegistry}
import org.apache.kafka.common.MetricName
import org.apache.kafka.common.metrics.{Gauge, KafkaMetric, MetricConfig, Metrics}
import org.apache.kafka.common.utils.Time
import org.apache.kafka.server.metrics.KafkaYammerMetrics

/** A line of a broker's metrics for Prometheus. */
case class Sample(name: String, labels: Map[String, String], value: Double)

/** What was read at one time. */
class Reading(val samples: Seq[Sample]) {
  private var converted: Option[Map[MetricName, KafkaMetric]] = None

  /** As Kafka's metrics. The threads that share the reading share them, too. */
  def metrics(convert: Seq[Sample] => Map[MetricName, KafkaMetric]): Map[MetricName, KafkaMetric] = synchronized {
    if (converted.isEmpty) converted = Some(convert(samples))
    converted.get
  }
}

/** What the broker process serves on its metrics port; no samples while it does not run. */
class Samples(port: () => Option[Int]) {
  // Tests read a value after each record until it changes: so that the broker has time for the records, a thread
  // that has read often within a second gets older values.
  private val OftenKeepFor = Duration.ofMillis(250).toNanos
  private val Often = 3
  private val Second = Duration.ofSeconds(1).toNanos
  private val Limit = Duration.ofSeconds(30).toMillis.toInt
  private val reading = new SharedReading(new Reading(Nil))(_ => new Reading(port().map(fetch).getOrElse(Nil)))
  private class Reads { var since = 0L; var count = 0 }
  private val reads = ThreadLocal.withInitial[Reads](() => new Reads)

  /** Nothing older than the call, but for threads that read often; threads that wait for each other share. */
  def now(): Reading = notBefore(System.nanoTime - (if (readsOften()) OftenKeepFor else 0))

  /** Nothing older than a time of `System.nanoTime`. */
  def notBefore(oldest: Long): Reading = reading.notBefore(oldest)

  private def readsOften(): Boolean = {
    val own = reads.get
    if (System.nanoTime - own.since > Second) {
      own.since = System.nanoTime
      own.count = 0
    }
    own.count += 1
    own.count > Often
  }

  // A broker has thousands of samples, and they are read after each request of sixty clients: only what is wanted. The
  // families are those of the first answer, also where they have no samples yet.
  @volatile private var wanted = ""

  private def fetch(port: Int): Seq[Sample] = try {
    if (wanted.isEmpty) wanted = lines(port, "").flatMap(Samples.wantedFamily).map(name => s"name[]=$name").mkString("?", "&", "")
    lines(port, wanted).filterNot(_.startsWith("#")).map(Samples.parsed)
  } catch {
    case _: IOException => Nil // It is ending.
  }

  private def lines(port: Int, query: String): List[String] = {
    // No client with threads of its own: some tests count threads.
    val connection = new URL(s"http://127.0.0.1:$port/metrics$query").openConnection
    connection.setRequestProperty("Connection", "close")
    connection.setConnectTimeout(Limit)
    connection.setReadTimeout(Limit)
    val source = Source.fromInputStream(connection.getInputStream, "UTF-8")
    try source.getLines().toList finally source.close()
  }
}

object Samples {
  private val Line = """([^{ ]+)(?:\{(.*)\})? (\S+)""".r
  private val Label = """([^=,]+)="((?:[^"\\]|\\.)*)"""".r
  private val Escaped = """\\(.)""".r

  private val Family = s"# TYPE (${BrokerMetrics.Prefix.replace("(", "(?:")}.*|${BrokerMetrics.Others.mkString("|")}) .*".r

  private def wantedFamily(line: String): Option[String] = line match {
    case Family(name) => Some(if (name.endsWith("throttletimems")) name + "_sum" else name)
    case _ => None
  }

  private def parsed(line: String): Sample = line match {
    case Line(name, labels, value) =>
      val parts = Label.findAllMatchIn(Option(labels).getOrElse("")).map(one => one.group(1) -> unescaped(one.group(2)))
      Sample(name, parts.toMap, value match { case "+Inf" => Double.PositiveInfinity; case "-Inf" => Double.NegativeInfinity; case _ => value.toDouble })
  }

  private def unescaped(text: String): String =
    Escaped.replaceAllIn(text, one => scala.util.matching.Regex.quoteReplacement(if (one.group(1) == "n") "\n" else one.group(1)))
}

/**
 * The metrics of a broker process under the names of Kafka's own `Metrics`: quotas, and authentication of peers.
 *
 * `mutationQuota`: what holds for a user and a client id; tests read it in the metric of the tokens that are left.
 * `idle`: metrics of clients that tests have given sensors, for as long as the broker has none of them.
 */
class BrokerMetrics(
  samples: Samples,
  mutationQuota: (String, String) => MetricConfig,
  idle: () => collection.Map[MetricName, KafkaMetric]
) extends Metrics {
  import BrokerMetrics.Groups

  private val Name = s"${BrokerMetrics.Prefix}(.*)".r
  private val Labels = Map("client_id" -> "client-id", "networkprocessor" -> "networkProcessor")
  private val RatesOfQuotas = Set("byte-rate", "request-time", "mutation-rate")

  override def metrics(): java.util.Map[MetricName, KafkaMetric] = {
    val asked = System.nanoTime
    new java.util.HashMap(metricsOf(samples.now())) {
      // A thread that reads often has got older values: what it does not find may have come since then.
      override def get(name: Any): KafkaMetric = Option(super.get(name)).getOrElse(metricsOf(samples.notBefore(asked)).get(name))
    }
  }

  private def metricsOf(reading: Reading): java.util.Map[MetricName, KafkaMetric] = (idle().toMap ++ reading.metrics(convert)).asJava

  private def convert(read: Seq[Sample]): Map[MetricName, KafkaMetric] = {
    val found = read.collect { case Sample(Name(group, name), labels, value) =>
      nameOf(name, Groups(group), labels.map { case (label, text) => Labels.getOrElse(label, label) -> text }) -> value
    }.toMap
    // A client that never waited has a throttle time, too: it is no number.
    val withoutWait = found.keys.filter(name => RatesOfQuotas(name.name)).map(name => nameOf("throttle-time", name.group, name.tags.asScala.toMap))
      .filterNot(found.contains).map(_ -> Double.NaN)
    (found ++ withoutWait).map { case (name, value) =>
      val read: Gauge[java.lang.Double] = (_, _) => Double.box(value)
      val settings = if (name.name == "tokens") mutationQuota(name.tags.get("user"), name.tags.get("client-id")) else new MetricConfig
      name -> new KafkaMetric(this, name, read, settings, Time.SYSTEM)
    }
  }

  override def metric(name: MetricName): KafkaMetric = metrics().get(name)

  private def nameOf(name: String, group: String, tags: Map[String, String]): MetricName =
    metricName(name.replace('_', '-').replace("-count-total", "-count"), group, "", tags.asJava)
}

/** The metrics of all broker processes in the registry of Kafka's JVM: each is there once, as tests look for it by name. */
object BrokerMetrics {
  val Groups = Map(
    "socket_server_metrics" -> "socket-server-metrics", "produce" -> "Produce", "fetch" -> "Fetch", "request" -> "Request",
    "controllermutation" -> "ControllerMutation", "leaderreplication" -> "LeaderReplication",
    "followerreplication" -> "FollowerReplication")
  val Prefix = s"kafka_server_(${Groups.keys.mkString("|")})_"
  /** What else is asked for. */
  val Others = Seq(
    "kafka_network_acceptor_connections", "kafka_network_socketserver_expiredconnectionskilledcount_total",
    "kafka_network_requestmetrics_throttletimems", "ctrlchan_broker_delegation_tokens")

  private val brokers = ConcurrentHashMap.newKeySet[Samples]

  def add(samples: Samples): Unit = {
    brokers.add(samples)
    registry.newGauge(named("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount", ""), new YammerGauge[Double] {
      override def value: Double = sum("kafka_network_socketserver_expiredconnectionskilledcount_total", Map.empty)
    })
    for ((request, own) <- Seq("Produce" -> "Produce", "FetchConsumer" -> "Fetch")) {
      val times = Inside.of[YammerHistogram] {
        // Tests ask whether any request was throttled.
        case ("max", _) => Double.box(sum("kafka_network_requestmetrics_throttletimems_sum", Map("request" -> own)))
        // The JVM's JMX reporter looks at each new metric.
        case ("processWith", _) => null
      }
      addTo(registry, named("kafka.network", "RequestMetrics", "ThrottleTimeMs", s",request=$request"), times)
    }
  }

  def remove(samples: Samples): Unit = brokers.remove(samples)

  private def registry: MetricsRegistry = KafkaYammerMetrics.defaultRegistry

  private def named(group: String, kind: String, name: String, tags: String): YammerName =
    new YammerName(group, kind, name, null, s"$group:type=$kind,name=$name$tags")

  private def addTo(registry: MetricsRegistry, name: YammerName, metric: YammerMetric): Unit = {
    val method = classOf[MetricsRegistry].getDeclaredMethod("getOrAdd", classOf[YammerName], classOf[YammerMetric])
    method.setAccessible(true)
    method.invoke(registry, name, metric)
  }

  private def sum(name: String, labels: Map[String, String]): Double =
    brokers.asScala.toSeq.flatMap(_.now().samples)
      .filter(one => one.name == name && labels.forall { case (label, text) => one.labels.get(label).contains(text) })
      .map(_.value).sum
}
