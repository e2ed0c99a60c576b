package storetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports that [Port] gives. Systems give those above to whoever asks for any, and
// to the near end of every connection.
const (
	firstPort = 10_000
	lastPort  = 32_000
)

var given sync.Map // ports of this process

// Port returns a port of loopback for a server that has to be told where to
// listen, or that comes back where it was. While nobody listens there, no
// connection that the system makes takes it, unlike one that a listener on port
// 0 has had; and Port gives none twice.
func Port(t testing.TB) int {
	t.Helper()
	return portOf(t, func() int { return firstPort + rand.IntN(lastPort-firstPort) }, isFree) //nolint:gosec // it is no secret
}

func portOf(t testing.TB, draw func() int, free func(port int) bool) int {
	t.Helper()
	for range 100 {
		port := draw()
		if _, taken := given.LoadOrStore(port, true); !taken && free(port) {
			return port
		}
	}
	t.Fatal("storetest: no port is free")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
