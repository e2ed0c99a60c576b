package storetest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-2ca4966b/agentd/proctest"
)

const stopLimit = 10 * time.Second

// Check is something that [Main] asks of a package after its tests have passed.
type Check func(seen seen) error

// seen sums over the databases that were verified.
type seen struct{ databases, toolCalls int64 }

// RequireToolCalls fails a package that had no database to verify, or none
// with a tool call: its checks would pass on nothing. A run of a part of the
// tests is not asked.
func RequireToolCalls(s seen) error {
	switch {
	case s.databases == 0:
		return fmt.Errorf("no test of this package had a database to verify")
	case s.toolCalls == 0:
		return fmt.Errorf("none of the %d databases of this package saw a tool call", s.databases)
	}
	return nil
}

// Main runs the tests of a package, stops the Postgres that they used, looks
// for goroutines that were left behind, and exits.
func Main(m *testing.M, checks ...Check) {
	os.Exit(run(m, os.Stderr, checks)) //nolint:revive // it is the main of a test binary
}

func run(m interface{ Run() int }, stderr io.Writer, checks []Check) int {
	unwatch := watchParent(stderr)
	code := m.Run()
	seen := shared.seen()
	if err := shared.stop(); err != nil {
		code = complain(stderr, code, "stop Postgres: %v", err)
	}
	unwatch()
	code = finish(code, stderr, seen, checks)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			code = complain(stderr, code, "%v", err)
		}
	}
	return code
}

// finish asks the checks, if the tests have passed and were all there.
func finish(code int, stderr io.Writer, seen seen, checks []Check) int {
	if code != 0 || partial() {
		return code
	}
	for _, check := range checks {
		if err := check(seen); err != nil {
			code = complain(stderr, code, "%v", err)
		}
	}
	return code
}

func complain(stderr io.Writer, code int, format string, args ...any) int {
	fmt.Fprintf(stderr, "storetest: "+format+"\n", args...)
	return max(code, 1)
}

// partial says that not all tests were asked for.
func partial() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return testing.Short()
}

// watchParent ends this process, and first its Postgres, when the process that
// started it is gone, or when it is told to end.
func watchParent(stderr io.Writer) (unwatch func()) {
	return proctest.WatchParent(func(why string) {
		complain(stderr, 1, "%s", why)
		_ = shared.abandon() // there is nobody to tell
		os.Exit(1)           //nolint:revive // nobody is left to return to
	})
}

func withLimit(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}
