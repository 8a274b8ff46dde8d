// Program pause is the first process of a pod's sandbox: it holds the pod's namespaces until the kubelet ends it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
