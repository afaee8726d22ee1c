// The Go client sarama at a version of the protocol. PRODUCER: sarama produce BOOTSTRAP TOPIC VERSION COUNT CODEC…
// sends COUNT records with each codec to partition 0. CONSUMER: sarama consume BOOTSTRAP TOPIC VERSION COUNT GROUP
// reads COUNT records of partition 0, from where the group has committed, prints offset, key and value of each,
// and commits.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const patience = 60 * time.Second

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func settings(version string) *sarama.Config {
	config := sarama.NewConfig()
	parsed, err := sarama.ParseKafkaVersion(version)
	check(err)
	config.Version = parsed
	config.ClientID = "sarama-" + version
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.MaxMessages = 50
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func produce(addresses []string, topic, version string, count int, names []string) {
	for _, name := range names {
		config := settings(version)
		config.Producer.Compression = codecs[name]
		producer, err := sarama.NewSyncProducer(addresses, config)
		check(err)
		messages := make([]*sarama.ProducerMessage, count)
		for number := range messages {
			messages[number] = &sarama.ProducerMessage{
				Topic: topic,
				Key:   sarama.StringEncoder(strconv.Itoa(number)),
				Value: sarama.StringEncoder(fmt.Sprintf("%s %s %d", version, name, number)),
			}
		}
		check(producer.SendMessages(messages))
		check(producer.Close())
	}
}

func consume(addresses []string, topic, version string, count int, group string) {
	client, err := sarama.NewClient(addresses, settings(version))
	check(err)
	offsets, err := sarama.NewOffsetManagerFromClient(group, client)
	check(err)
	committed, err := offsets.ManagePartition(topic, 0)
	check(err)
	begin, _ := committed.NextOffset()
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, begin)
	check(err)
	deadline := time.After(patience)
	for left := count; left > 0; left-- {
		select {
		case message := <-partition.Messages():
			key := "null"
			if message.Key != nil {
				key = string(message.Key)
			}
			fmt.Printf("%d\t%s\t%s\n", message.Offset, key, message.Value)
			committed.MarkOffset(message.Offset+1, "")
		case <-deadline:
			check(fmt.Errorf("%d records are missing", left))
		}
	}
	check(partition.Close())
	offsets.Commit()
	select {
	case err := <-committed.Errors():
		check(err)
	default:
	}
	check(offsets.Close())
	check(client.Close())
}

func main() {
	mode, addresses := os.Args[1], strings.Split(os.Args[2], ",")
	topic, version := os.Args[3], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	if mode == "produce" {
		produce(addresses, topic, version, count, os.Args[6:])
	} else {
		consume(addresses, topic, version, count, os.Args[6])
	}
}
