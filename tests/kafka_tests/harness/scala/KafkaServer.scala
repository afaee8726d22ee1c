package kafka.server

import ctrlchan.{ForkedProcess, Principals}
import java.io.{File, FileInputStream, FileOutputStream, IOException}
import java.net.{InetAddress, ServerSocket}
import java.time.Duration
import java.util.{Collections, Properties}
import java.util.concurrent.{CompletableFuture, TimeUnit}
import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag
import com.fasterxml.jackson.databind.ObjectMapper
import kafka.api.SaslPlainSslEndToEndAuthorizationTest
import kafka.cluster.{EndPoint, Partition}
import kafka.controller.{ControllerContext, KafkaController}
import kafka.coordinator.transaction.TransactionCoordinator
import kafka.log.{LogManager, UnifiedLog}
import kafka.network.{ConnectionQuotas, SocketServer}
import kafka.utils.JaasTestUtils
import kafka.server.metadata.ZkMetadataCache
import kafka.zk.{AdminZkClient, KafkaZkClient}
import org.apache.kafka.common.{TopicPartition, Uuid}
import org.apache.kafka.common.acl.{AclBinding, AclBindingFilter}
import org.apache.kafka.common.config.ConfigResource
import org.apache.kafka.common.config.types.Password
import org.apache.kafka.common.errors.ApiException
import org.apache.kafka.common.message.{CreateAclsRequestData, DeleteAclsRequestData, DescribeConfigsRequestData, DescribeProducersRequestData}
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource
import org.apache.kafka.common.message.ProduceRequestData
import org.apache.kafka.common.message.ProduceRequestData.{PartitionProduceData, TopicProduceData, TopicProduceDataCollection}
import org.apache.kafka.common.message.ListOffsetsRequestData.{ListOffsetsPartition, ListOffsetsTopic}
import org.apache.kafka.common.message.UpdateMetadataRequestData._
import org.apache.kafka.common.metrics.{MetricConfig, Metrics}
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.protocol.Errors
import org.apache.kafka.common.record.MemoryRecords
import org.apache.kafka.common.requests._
import org.apache.kafka.common.security.JaasUtils
import org.apache.kafka.common.security.auth.SecurityProtocol
import org.apache.kafka.common.security.authenticator.CredentialCache
import org.apache.kafka.common.security.scram.ScramCredential
import org.apache.kafka.common.security.scram.internals.ScramCredentialUtils
import org.apache.kafka.common.security.token.delegation.TokenInformation
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache
import org.apache.kafka.common.utils.{Sanitizer, Time}
import org.apache.kafka.coordinator.group.GroupCoordinator
import org.apache.kafka.metadata.BrokerState
import org.apache.kafka.security.CredentialProvider
import org.apache.kafka.server.authorizer.{AclCreateResult, AclDeleteResult, Authorizer}
import org.apache.kafka.server.common.MetadataVersion
import org.apache.kafka.server.config.{ConfigType, ZooKeeperInternals}
import org.apache.kafka.server.metrics.KafkaYammerMetrics
import org.apache.kafka.storage.internals.log.{LogAppendInfo, LogConfig, LogSegment, ProducerStateEntry, ProducerStateManager}
import org.apache.zookeeper.client.ZKClientConfig
import org.mockito.Mockito
import org.mockito.invocation.InvocationOnMock
import org.mockito.stubbing.Answer

object KafkaServer {
  /** Of each broker with security, for requests of this class. */
  private val OwnListener = "HARNESS"
  /** What stands in place of authorizers that tests have written. */
  private val AuthorizersOfTests = Map(
    // Some of its methods let changes of ACLs wait; the others need no class of their own.
    "kafka.api.SslAdminIntegrationTest$TestableAclAuthorizer" -> "kafka.security.authorizer.AclAuthorizer",
    "kafka.server.AlterCredentialsTest$TestAuthorizer" -> "tests.kafka_tests.authorizers.AlterCredentials",
    "kafka.server.DescribeCredentialsTest$TestAuthorizer" -> "tests.kafka_tests.authorizers.DescribeCredentials",
    "kafka.server.RequestQuotaTest$ZkTestAuthorizer" -> "tests.kafka_tests.authorizers.RequestQuota")
  /** What stands in place of callback handlers of tests: the users of PLAIN whose passwords they check. */
  private val UsersOfTests = Map(
    "kafka.api.SaslPlainSslEndToEndAuthorizationTest$TestServerCallbackHandler" ->
      plainLogin(JaasTestUtils.KafkaPlainAdmin, SaslPlainSslEndToEndAuthorizationTest.Credentials.allUsers))
  /** Of the JVM of a Kafka broker; keys of ours. */
  private val SystemProperties = Seq(
    "java.security.auth.login.config", "zookeeper.sasl.client", "zookeeper.sasl.clientconfig")

  private def plainLogin(own: String, passwords: Map[String, String]): String = {
    val users = passwords.map { case (name, password) => s"""user_$name="$password"""" }
    s"org.apache.kafka.common.security.plain.PlainLoginModule required username=\"$own\" " +
      s"password=\"${passwords(own)}\" ${users.mkString(" ")};"
  }

  val MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS: Long = 120000

  def zkClientConfigFromKafkaConfig(config: KafkaConfig, forceZkSslClientEnable: Boolean = false): ZKClientConfig =
    new ZKClientConfig
}

/**
 * A `ctrlchan broker --config FILE` in place of Kafka's broker: this class stands before Kafka's on the class path.
 *
 * `startup` writes the test's configuration to FILE. As in Kafka each broker takes part in elections of the
 * controller. What tests read of a broker's inside is answered from what the broker answers to
 * clients, or from its files; the rest throws UnsupportedOperationException("inside of a broker: ...").
 */
class KafkaServer(
  val config: KafkaConfig,
  time: Time = Time.SYSTEM,
  threadNamePrefix: Option[String] = None,
  enableForwarding: Boolean = false
) extends KafkaBroker with Server {
  import KafkaServer.{AuthorizersOfTests, OwnListener, SystemProperties, UsersOfTests}

  private val file = File.createTempFile("broker", ".properties")
  private var process: Option[ForkedProcess] = None
  private var ports: Map[String, Int] = Map.empty
  private var metricsPort = 0
  private val samples = new Samples(() => if (process.isEmpty) None else Some(metricsPort))
  private var openQuotas: Option[BrokerQuotas] = None
  private var configs: Option[ZkConfigManager] = None
  var dynamicConfigHandlers: collection.Map[String, ConfigHandler] = Map.empty
  private lazy val cache = new ZkMetadataCache(
    config.brokerId, config.interBrokerProtocolVersion, BrokerFeatures.createDefault(false))

  private var openZkClient: Option[KafkaZkClient] = None

  /** Open from its first use until the shutdown. */
  def zkClient: KafkaZkClient = synchronized {
    if (openZkClient.isEmpty)
      openZkClient = Some(KafkaZkClient(
        config.zkConnect, JaasUtils.isZkSaslEnabled, 15000, 10000, 10, Time.SYSTEM, "ctrlchan", new ZKClientConfig,
        enableEntityConfigControllerCheck = false))
    openZkClient.get
  }

  // -- begin and end

  override def startup(): Unit = {
    val properties = settings()
    val out = new FileOutputStream(file)
    try properties.store(out, null) finally out.close()
    metricsPort = freePort()
    val command = List("-v", "broker", "--config", file.getPath, "--json", "--metrics-port", metricsPort.toString)
    val started = ForkedProcess.start(command.asJava, file.toPath.resolveSibling(file.getName + ".log"))
    val line = started.firstLine()
    ports = new ObjectMapper().readTree(line).path("listeners").asScala.map(_.asText.split("://")).map { words =>
      words(0) -> words(1).substring(words(1).lastIndexOf(':') + 1).toInt
    }.toMap
    process = Some(started)
    // As Kafka's, the configuration has the generated id from now on.
    if (config.brokerId < 0) config._brokerId = idOf(logDirs.head)
    BrokerMetrics.add(samples)
    followConfigs()
  }

  /** `config` follows what ZooKeeper has, as Kafka's does; the process follows it by itself. */
  private def followConfigs(): Unit = {
    config.dynamicConfig.initialize(Some(zkClient), clientMetricsReceiverPluginOpt = None)
    val handler: ConfigHandler = new ConfigHandler {
      override def processConfigChanges(broker: String, settings: Properties): Unit =
        if (broker == ZooKeeperInternals.DEFAULT_STRING) config.dynamicConfig.updateDefaultConfig(settings)
        else if (broker == config.brokerId.toString) config.dynamicConfig.updateBrokerConfig(config.brokerId, settings)
    }
    val ignored: ConfigHandler = (_, _) => ()
    val others = Seq(ConfigType.TOPIC, ConfigType.CLIENT, ConfigType.USER, ConfigType.IP).map(_ -> ignored)
    dynamicConfigHandlers = others.toMap + (ConfigType.BROKER -> handler)
    val followed = new ZkConfigManager(zkClient, dynamicConfigHandlers)
    followed.startup()
    configs = Some(followed)
  }

  private def idOf(logDir: File): Int = {
    val written = new Properties
    val in = new FileInputStream(new File(logDir, "meta.properties"))
    try written.load(in) finally in.close()
    written.getProperty("broker.id").toInt
  }

  private def freePort(): Int = {
    val socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress)
    try socket.getLocalPort finally socket.close()
  }

  override def shutdown(timeout: Duration): Unit = synchronized {
    process.foreach { running =>
      process = None
      configs.foreach(_.shutdown())
      configs = None
      config.dynamicConfig.clear()
      running.stop(timeout)
      openZkClient.foreach(_.close())
      openZkClient = None
      openQuotas.foreach(_.close())
      openQuotas = None
      BrokerMetrics.remove(samples)
    }
  }

  override def awaitShutdown(): Unit = ()
  override def isShutdown(): Boolean = process.isEmpty
  def brokerState: BrokerState = if (process.isEmpty) BrokerState.NOT_RUNNING else BrokerState.RUNNING

  /** A broker that starts again has the ports that it had: clients of the test know them. */
  private def settings(): Properties = {
    val properties = new Properties
    config.originals.forEach {
      case (_, null) => ()
      case (name, password: Password) => properties.put(name, password.value)
      case (name, list: java.util.List[_]) => properties.put(name, list.asScala.mkString(","))
      case (name, kind: Class[_]) => properties.put(name, kind.getName)
      case (name, value) => properties.put(name, value.toString)
    }
    properties.put("broker.id", config.getInt("broker.id").toString)
    properties.put("log.dirs", logDirs.mkString(","))
    // The tests' own default is what Kafka 3.9 tries for 4.0.
    if (config.interBrokerProtocolVersion.isAtLeast(MetadataVersion.IBP_4_0_IV0))
      properties.remove("inter.broker.protocol.version")
    // Streams has tests whose clock stands in 1970, where their records are. Retention by the clock of this process
    // would delete them half a minute after the start.
    if (time.milliseconds < System.currentTimeMillis - TimeUnit.DAYS.toMillis(1))
      properties.put("log.initial.task.delay.ms", TimeUnit.DAYS.toMillis(1).toString)
    if (isSecured) addOwnListener(properties)
    if (ports.nonEmpty) properties.put("listeners", ports.map { case (name, port) => s"$name://localhost:$port" }.mkString(","))
    askTestsForPrincipals(properties)
    replaceCallbackHandlers(properties)
    AuthorizersOfTests.get(properties.getProperty("authorizer.class.name", "")).foreach(properties.put("authorizer.class.name", _))
    SystemProperties.foreach(name => Option(System.getProperty(name)).foreach(properties.put(name, _)))
    properties
  }

  /** Where requests of this class would have to authenticate themselves, or would be refused. */
  private val isSecured: Boolean =
    config.interBrokerSecurityProtocol != SecurityProtocol.PLAINTEXT || hasAuthorizer

  private def hasAuthorizer: Boolean = config.originals.getOrDefault("authorizer.class.name", "").toString.nonEmpty

  /** A principal builder of Java is a class of the test: the broker asks this JVM. */
  private def askTestsForPrincipals(properties: Properties): Unit =
    properties.stringPropertyNames.asScala.filter(_.endsWith("principal.builder.class")).foreach { name =>
      val builder = properties.getProperty(name)
      if (!builder.startsWith("tests.kafka_tests.")) {
        properties.put(name, "tests.kafka_tests.principals.OfTest")
        properties.put(name.stripSuffix("principal.builder.class") + "ctrlchan.tests.principal.builder.class", builder)
        properties.put("ctrlchan.tests.principals", Principals.path)
      }
    }

  private def replaceCallbackHandlers(properties: Properties): Unit = {
    val end = "sasl.server.callback.handler.class"
    for (name <- properties.stringPropertyNames.asScala if name.endsWith(end); users <- UsersOfTests.get(properties.getProperty(name))) {
      properties.put(name.stripSuffix(end) + "sasl.jaas.config", users)
      properties.remove(name)
      properties.remove("sasl.client.callback.handler.class")
    }
  }

  /** A listener without security for the requests of this class; its peers are a super user. */
  private def addOwnListener(properties: Properties): Unit = {
    val protocols = config.effectiveListenerSecurityProtocolMap.map { case (name, protocol) => s"${name.value}:$protocol" }
    properties.put("listener.security.protocol.map", (protocols.toSeq :+ s"$OwnListener:PLAINTEXT").mkString(","))
    for (name <- Seq("listeners", "advertised.listeners"); listeners <- Option(properties.getProperty(name)))
      properties.put(name, s"$listeners,$OwnListener://localhost:0")
    if (hasAuthorizer) {
      properties.put(s"listener.name.${OwnListener.toLowerCase}.principal.builder.class", "tests.kafka_tests.principals.Harness")
      val superUsers = Option(properties.getProperty("super.users")).filter(_.nonEmpty).toSeq :+ "User:harness"
      properties.put("super.users", superUsers.mkString(";"))
    }
  }

  /** Some tests have relative ones: relative to the folder of the test's JVM. */
  private def logDirs: collection.Seq[File] = config.logDirs.map(new File(_).getAbsoluteFile)

  // -- its addresses

  def boundPort(listenerName: ListenerName): Int = ports(listenerName.value)

  def advertisedListeners: scala.collection.Seq[EndPoint] = ports.filter(_._1 != OwnListener).map { case (name, port) =>
    val listener = new ListenerName(name)
    val protocol = config.effectiveListenerSecurityProtocolMap.getOrElse(listener, SecurityProtocol.PLAINTEXT)
    new EndPoint("localhost", port, listener, protocol)
  }.toSeq

  lazy val socketServer: SocketServer = Inside.of[SocketServer] {
    case ("boundPort", Seq(name: ListenerName)) => Int.box(boundPort(name))
    // All peers of a test have the same address.
    case ("connectionCount", _) => Int.box(sampled("kafka_network_acceptor_connections").toInt)
    case ("connectionQuotas", _) => connectionQuotas
  }

  private lazy val connectionQuotas: ConnectionQuotas = Inside.of[ConnectionQuotas] {
    case ("connectionRateForIp", Seq(address: InetAddress)) => Int.box(brokerQuotas.connectionRateFor(address))
  }

  def clusterId: String = zkClient.getClusterId.get

  // -- what it knows of the cluster

  /** Kafka's own cache, with what the broker answers to Metadata now. */
  def metadataCache: ZkMetadataCache = synchronized {
    if (process.nonEmpty) try {
      val request = MetadataRequest.Builder.allTopics().build(12)
      val answer = ask[MetadataResponse](request).data
      val topics = answer.topics.asScala.filter(_.errorCode == 0)
      val present = topics.flatMap(topic => topic.partitions.asScala.map { partition =>
        new UpdateMetadataPartitionState().setTopicName(topic.name).setPartitionIndex(partition.partitionIndex)
          .setControllerEpoch(1).setLeader(partition.leaderId).setLeaderEpoch(partition.leaderEpoch)
          .setIsr(partition.isrNodes).setZkVersion(1).setReplicas(partition.replicaNodes)
          .setOfflineReplicas(partition.offlineReplicas)
      })
      val names = topics.map(_.name).toSet
      val deleted = cache.getAllTopics().diff(names).toSeq.flatMap { name =>
        (0 until cache.numPartitions(name).getOrElse(0)).map { partition =>
          new UpdateMetadataPartitionState().setTopicName(name).setPartitionIndex(partition)
            .setLeader(-2).setLeaderEpoch(0).setControllerEpoch(1)
        }
      }
      val listener = config.interBrokerListenerName.value
      val protocol = config.interBrokerSecurityProtocol.id
      val brokers = answer.brokers.asScala.map { broker =>
        val endpoint = new UpdateMetadataEndpoint().setHost(broker.host).setPort(broker.port).setListener(listener)
          .setSecurityProtocol(protocol)
        new UpdateMetadataBroker().setId(broker.nodeId).setRack(broker.rack)
          .setEndpoints(Collections.singletonList(endpoint))
      }
      val ids = topics.map(topic => topic.name -> topic.topicId).toMap.asJava
      cache.updateMetadata(0, new UpdateMetadataRequest.Builder(
        8, answer.controllerId, 1, 1, (present ++ deleted).toList.asJava, brokers.toList.asJava, ids).build())
    } catch {
      case _: IOException => () // It is ending: the cache stays as it was.
    }
    cache
  }

  private def ask[T <: AbstractResponse](request: AbstractRequest)(implicit tag: ClassTag[T]): T =
    IntegrationTestUtils.connectAndReceive[T](
      request, socketServer, if (isSecured) new ListenerName(OwnListener) else config.interBrokerListenerName)

  lazy val dataPlaneRequestProcessor: KafkaApis = Inside.of[KafkaApis] {
    case ("metadataCache", _) => metadataCache
    case ("brokerId", _) => Int.box(config.brokerId)
    case ("clusterId", _) => clusterId
    case ("authorizer", _) => authorizer
    case ("quotas", _) => quotaManagers
  }

  lazy val replicaManager: ReplicaManager = Inside.of[ReplicaManager] {
    case ("logManager", _) => logManager
    case ("localLog" | "getLog", Seq(partition: TopicPartition)) => logOf(partition)
    case ("localLogOrException", Seq(partition: TopicPartition)) => logOf(partition).get
    case ("onlinePartition" | "getPartition", Seq(partition: TopicPartition)) =>
      metadataCache.getPartitionInfo(partition.topic, partition.partition)
        .filter(_.replicas.contains(config.brokerId)).map(partitionOf(partition, _))
  }

  private def partitionOf(topicPartition: TopicPartition, state: UpdateMetadataPartitionState): Partition =
    Inside.of[Partition] {
      case ("leaderLogIfLocal", _) => if (state.leader == config.brokerId) logOf(topicPartition) else None
      case ("isLeader", _) => Boolean.box(state.leader == config.brokerId)
      case ("getLeaderEpoch", _) => Int.box(state.leaderEpoch)
      case ("leaderReplicaIdOpt", _) => Some(state.leader)
      case ("inSyncReplicaIds", _) => state.isr.asScala.map(_.toInt).toSet
    }

  lazy val kafkaController: KafkaController = Inside.of[KafkaController] {
    case ("isActive", _) => Boolean.box(zkClient.getControllerId.contains(config.brokerId))
    case ("controllerContext", _) =>
      val context = new ControllerContext
      val topics = zkClient.getAllTopicsInCluster()
      context.setAllTopics(topics)
      zkClient.getTopicIdsForTopics(topics).foreach { case (topic, id) => context.addTopicId(topic, id) }
      context
  }

  // -- its logs

  lazy val logManager: LogManager = Inside.of[LogManager] {
    case ("getLog", Seq(partition: TopicPartition, _*)) => logOf(partition)
    case ("getOrCreateLog", Seq(partition: TopicPartition, _*)) => logOf(partition).get
    case ("logsByTopic", Seq(topic: String)) =>
      // Tests take the first one for partition 0.
      logDirs.flatMap(_.list()).filter(_.matches(java.util.regex.Pattern.quote(topic) + "-[0-9]+"))
        .map(name => name.substring(name.lastIndexOf('-') + 1).toInt).sorted
        .flatMap(partition => logOf(new TopicPartition(topic, partition)))
    case ("liveLogDirs", _) => logDirs
  }

  private def logOf(partition: TopicPartition): Option[UnifiedLog] =
    logDirs.map(new File(_, partition.toString)).find(_.isDirectory).map { folder =>
      Inside.of[UnifiedLog] {
        case ("dir", _) => folder
        case ("topicPartition", _) => partition
        case ("config", _) => logConfigOf(partition.topic)
        case ("logStartOffset", _) => Long.box(offsetOf(partition, ListOffsetsRequest.EARLIEST_TIMESTAMP, ListOffsetsRequest.DEBUGGING_REPLICA_ID))
        case ("logEndOffset", _) => Long.box(offsetOf(partition, ListOffsetsRequest.LATEST_TIMESTAMP, ListOffsetsRequest.DEBUGGING_REPLICA_ID))
        case ("highWatermark", _) => Long.box(highWatermarkOf(partition))
        case ("numberOfSegments", _) => Int.box(folder.list().count(_.endsWith(".log")))
        case ("logSegments", _) => segmentsIn(folder)
        case ("appendAsLeader", Seq(records: MemoryRecords, _*)) => produce(partition, records)
        // It is up to date when a Produce is answered.
        case ("updateHighWatermark", _) => Long.box(highWatermarkOf(partition))
        case ("producerStateManager", _) => Inside.of[ProducerStateManager] {
          case ("activeProducers", _) => activeProducers(partition)
        }
      }
    }

  /** The settings of a topic as the broker answers them. */
  private def logConfigOf(topic: String): LogConfig = {
    val settings = settingsOf(ConfigResource.Type.TOPIC, topic)
    // Described, but without effect, as in Kafka from inter.broker.protocol.version 3.0 on.
    settings.remove("message.format.version")
    new LogConfig(settings)
  }

  private def settingsOf(kind: ConfigResource.Type, name: String): Properties = {
    val resource = new DescribeConfigsResource().setResourceType(kind.id).setResourceName(name)
    val request = new DescribeConfigsRequest.Builder(new DescribeConfigsRequestData().setResources(Collections.singletonList(resource)))
    val settings = new Properties
    ask[DescribeConfigsResponse](request.build()).data.results.get(0).configs.forEach { one =>
      if (one.value != null) settings.put(one.name, one.value)
    }
    settings
  }

  private def segmentsIn(folder: File): java.util.List[LogSegment] =
    folder.list().filter(_.endsWith(".log")).sorted.map { name =>
      LogSegment.open(folder, name.stripSuffix(".log").toLong, new LogConfig(new Properties), Time.SYSTEM, true, 0, false, "")
    }.toList.asJava

  /** Followers answer a consumer's Fetch, too. */
  private def highWatermarkOf(partition: TopicPartition): Long = {
    val end = offsetOf(partition, ListOffsetsRequest.LATEST_TIMESTAMP, ListOffsetsRequest.DEBUGGING_REPLICA_ID)
    val wanted = new FetchRequest.PartitionData(Uuid.ZERO_UUID, end, -1, 1, java.util.Optional.empty())
    val request = FetchRequest.Builder.forConsumer(12, 0, 0, Collections.singletonMap(partition, wanted)).build()
    ask[FetchResponse](request).responseData(Collections.emptyMap(), 12).get(partition).highWatermark
  }

  /** Followers answer a debugging replica, too; its latest offset is the log end offset. */
  private def offsetOf(partition: TopicPartition, timestamp: Long, replica: Int): Long = {
    val wanted = new ListOffsetsPartition().setPartitionIndex(partition.partition).setTimestamp(timestamp)
    val topic = new ListOffsetsTopic().setName(partition.topic).setPartitions(Collections.singletonList(wanted))
    val request = ListOffsetsRequest.Builder.forReplica(7, replica).setTargetTimes(Collections.singletonList(topic)).build(7)
    ask[ListOffsetsResponse](request).topics.get(0).partitions.get(0).offset
  }

  private def produce(partition: TopicPartition, records: MemoryRecords): LogAppendInfo = {
    val data = new PartitionProduceData().setIndex(partition.partition).setRecords(records)
    val topic = new TopicProduceData().setName(partition.topic).setPartitionData(Collections.singletonList(data))
    val topics = new TopicProduceDataCollection(Collections.singletonList(topic).iterator)
    val request = ProduceRequest.forCurrentMagic(
      new ProduceRequestData().setAcks(-1).setTimeoutMs(10000).setTopicData(topics)).build()
    val answers = ask[ProduceResponse](request).data.responses.asScala.flatMap(_.partitionResponses.asScala)
    answers.foreach(answer => Errors.forCode(answer.errorCode).maybeThrow())
    LogAppendInfo.UNKNOWN_LOG_APPEND_INFO
  }

  private def activeProducers(partition: TopicPartition): java.util.Map[java.lang.Long, ProducerStateEntry] = {
    val topic = new DescribeProducersRequestData.TopicRequest().setName(partition.topic)
      .setPartitionIndexes(Collections.singletonList(partition.partition))
    val request = new DescribeProducersRequest.Builder(
      new DescribeProducersRequestData().setTopics(Collections.singletonList(topic))).build()
    val answers = ask[DescribeProducersResponse](request).data.topics.asScala.flatMap(_.partitions.asScala)
    answers.flatMap(_.activeProducers.asScala).map { producer =>
      val first = if (producer.currentTxnStartOffset < 0) java.util.OptionalLong.empty else java.util.OptionalLong.of(producer.currentTxnStartOffset)
      Long.box(producer.producerId) -> new ProducerStateEntry(
        producer.producerId, producer.producerEpoch.toShort, producer.coordinatorEpoch, producer.lastTimestamp, first, java.util.Optional.empty())
    }.toMap.asJava
  }

  // -- its security

  /** The ACLs as the broker answers them. */
  lazy val authorizer: Option[Authorizer] = if (!hasAuthorizer) None else Some(Inside.of[Authorizer] {
    case ("acls", Seq(filter: AclBindingFilter)) =>
      val answer = ask[DescribeAclsResponse](new DescribeAclsRequest.Builder(filter).build())
      answer.error.exception match { case null => (); case refused => throw refused }
      DescribeAclsResponse.aclBindings(answer.acls)
    case ("createAcls", Seq(_, bindings: java.util.List[AclBinding @unchecked])) =>
      val creations = bindings.asScala.map(CreateAclsRequest.aclCreation).asJava
      val request = new CreateAclsRequest.Builder(new CreateAclsRequestData().setCreations(creations)).build()
      ask[CreateAclsResponse](request).results.asScala.map { result =>
        CompletableFuture.completedStage(problemOf(result.errorCode, result.errorMessage).map(new AclCreateResult(_)).getOrElse(AclCreateResult.SUCCESS))
      }.asJava
    case ("deleteAcls", Seq(_, filters: java.util.List[AclBindingFilter @unchecked])) =>
      val wanted = filters.asScala.map(DeleteAclsRequest.deleteAclsFilter).asJava
      val request = new DeleteAclsRequest.Builder(new DeleteAclsRequestData().setFilters(wanted)).build()
      ask[DeleteAclsResponse](request).filterResults.asScala.map { result =>
        problemOf(result.errorCode, result.errorMessage).foreach(throw _)
        val deleted = result.matchingAcls.asScala.map(one => new AclDeleteResult.AclBindingDeleteResult(DeleteAclsResponse.aclBinding(one)))
        CompletableFuture.completedStage(new AclDeleteResult(deleted.asJava))
      }.asJava
  })

  private def problemOf(code: Short, message: String): Option[ApiException] = Option(Errors.forCode(code).exception(message))

  /** SCRAM users are those in ZooKeeper. */
  lazy val credentialProvider: CredentialProvider = {
    val credentials = Inside.of[CredentialCache] {
      case ("cache", Seq(mechanism: String, _)) => Inside.of[CredentialCache.Cache[ScramCredential]] {
        case ("get", Seq(user: String)) =>
          val configs = new AdminZkClient(zkClient).fetchEntityConfig("users", Sanitizer.sanitize(user))
          Option(configs.getProperty(mechanism)).map(ScramCredentialUtils.credentialFromString).orNull
      }
    }
    val provider = Inside.of[CredentialProvider](PartialFunction.empty)
    // Tests read a field.
    val field = classOf[CredentialProvider].getDeclaredField("credentialCache")
    field.setAccessible(true)
    field.set(provider, credentials)
    provider
  }

  // -- its coordinators: only the settings of the topics

  lazy val groupCoordinator: GroupCoordinator = Inside.of[GroupCoordinator] {
    case ("groupMetadataTopicConfigs", _) =>
      val configs = new Properties
      configs.put("cleanup.policy", "compact")
      configs.put("compression.type", "producer")
      configs.put("segment.bytes", config.groupCoordinatorConfig.offsetsTopicSegmentBytes.toString)
      configs
  }

  lazy val transactionCoordinator: TransactionCoordinator = Inside.of[TransactionCoordinator](PartialFunction.empty)

  // -- its quotas and metrics

  def quotaManagers: QuotaFactory.QuotaManagers = brokerQuotas.asked

  private def brokerQuotas: BrokerQuotas = synchronized {
    if (openQuotas.isEmpty) openQuotas = Some(new BrokerQuotas(config, ask[DescribeClientQuotasResponse](_), settingsOf))
    openQuotas.get
  }

  lazy val metrics: Metrics = new BrokerMetrics(
    samples, mutationQuota, () => openQuotas.map(_.metrics.metrics.asScala).getOrElse(Map.empty))

  private def mutationQuota(user: String, clientId: String): MetricConfig =
    new MetricConfig().quota(quotaManagers.controllerMutation.quota(user, clientId))
      .samples(config.numControllerQuotaSamples).timeWindow(config.controllerQuotaWindowSizeSeconds.longValue, TimeUnit.SECONDS)

  /** Tests ask how many tokens there are. */
  lazy val tokenCache: DelegationTokenCache = Inside.of[DelegationTokenCache] {
    case ("tokens", _) => Collections.nCopies[TokenInformation](sampled("ctrlchan_broker_delegation_tokens").toInt, null)
  }

  private def sampled(name: String): Double = samples.now().samples.find(_.name == name).map(_.value).getOrElse(0)

  // -- what no test gets

  val kafkaYammerMetrics: KafkaYammerMetrics = KafkaYammerMetrics.INSTANCE
  def remoteLogManagerOpt = None
  def dataPlaneRequestHandlerPool = Inside.no("dataPlaneRequestHandlerPool")
  def kafkaScheduler = Inside.no("kafkaScheduler")
  def brokerTopicStats = Inside.no("brokerTopicStats")
  def clientToControllerChannelManager = Inside.no("clientToControllerChannelManager")
}

/** Objects of Kafka's classes that answer some methods. */
object Inside {
  def no(what: String): Nothing = throw new UnsupportedOperationException("inside of a broker: " + what)

  /** An object whose methods `answers` gives, by name and arguments; all others throw. */
  def of[T](answers: PartialFunction[(String, Seq[Any]), Any])(implicit tag: ClassTag[T]): T = {
    val kind = tag.runtimeClass.asInstanceOf[Class[T]]
    Mockito.mock(kind, new Answer[Any] {
      override def answer(call: InvocationOnMock): Any = {
        val name = call.getMethod.getName
        if (name == "toString") s"a foreign ${kind.getSimpleName}"
        // The call that it is an argument of is answered or throws.
        else if (name.contains("$default$")) Mockito.RETURNS_DEFAULTS.answer(call)
        else answers.applyOrElse((name, call.getArguments.toSeq), (_: (String, Seq[Any])) => no(s"${kind.getSimpleName}.$name"))
      }
    })
  }
}
