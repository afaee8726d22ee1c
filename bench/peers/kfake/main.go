// kfake as a program: kfake BROKERS [FOLDER], which keeps its records in the folder that is named, or in memory.
// Prints "ready PORT ..." and ends with its standard input. It takes these lines there and answers each with "ok":
//
//	fail TOPIC ERROR    the next Produce of this topic gets this error, which is named as in Kafka
//	delay TOPIC MS      the next Produce is answered so many milliseconds later
//	remove NODE         a broker leaves the cluster
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	brokers, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	options := []kfake.Opt{
		kfake.NumBrokers(brokers),
		kfake.AllowAutoTopicCreation(),
		kfake.DefaultNumPartitions(1),
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "200"}),
	}
	if len(os.Args) > 2 {
		options = append(options, kfake.DataDir(os.Args[2]))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print("ready")
	for _, address := range cluster.ListenAddrs() {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(" ", port)
	}
	fmt.Println()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := obey(cluster, lines.Text()); err != nil {
			log.Fatal(err)
		}
		fmt.Println("ok")
	}
	cluster.Close()
}

func obey(cluster *kfake.Cluster, line string) error {
	words := strings.Fields(line)
	switch words[0] {
	case "fail":
		for code := int16(1); ; code++ {
			failure := kerr.TypedErrorForCode(code)
			if failure == nil {
				return fmt.Errorf("no error %q", words[2])
			}
			if failure.Message == words[2] {
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: words[1], Err: failure})
				return nil
			}
		}
	case "delay":
		milliseconds, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		cluster.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.DropControl()
			cluster.SleepControl(func() { time.Sleep(time.Duration(milliseconds) * time.Millisecond) })
			return nil, nil, false
		})
		return nil
	case "remove":
		node, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return cluster.RemoveNode(int32(node))
	}
	return fmt.Errorf("no command %q", words[0])
}
