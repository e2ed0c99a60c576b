package storetest

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

func TestPortsAreGivenOnceAndAreFree(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		port := Port(t)
		if seen[port] || port < firstPort || port >= lastPort {
			t.Errorf("port %d", port)
		}
		seen[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Error(err)
			continue
		}
		_ = l.Close()
	}
}

func TestNoPortIsLeft(t *testing.T) {
	t.Parallel()
	// All others are somebody's.
	r := &recorder{name: "none"}
	refused := func() (refused bool) {
		defer func() { refused = recover() != nil }()
		portOf(r, func() int { return firstPort - 1 }, func(int) bool { return false })
		return false
	}
	if !refused() {
		t.Error("a port that somebody has is given")
	}
}

func TestADirectoryOfAServerIsHeldAndGoes(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{bouncerPrefix, serverPrefix} {
		r := &recorder{name: "made"}
		dir := madeDir(r, prefix)
		long := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
		sweep()
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("swept while its owner lives: %v", err)
		}
		r.end()
		if _, err := os.Stat(dir); err == nil || len(r.errors) > 0 {
			t.Errorf("it is left: %q", r.errors)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
		sweep() // as if its owner had been killed
		if _, err := os.Stat(dir); err == nil {
			t.Error("a killed one's is left")
		}
	}
}
