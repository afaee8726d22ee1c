// One broker of kfake, which keeps its records in the folder that is named: prints "ready PORT", and ends with its
// standard input.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	_, port, err := net.SplitHostPort(cluster.ListenAddrs()[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready", port)
	io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}
