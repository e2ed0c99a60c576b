package storetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// For TestNothingIsLeft this binary starts itself as a parent, which stands for
// go test; the parent starts it again as a child, which has a database and
// waits for its end.
const roleVariable = "STORETEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "parent":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleVariable+"=child")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		_ = child.Run() // it does not end well
	case "child":
		os.Exit(run(tests(waitForTheEnd), os.Stderr, nil))
	default:
		Main(m)
	}
}

// tests are what a package's tests do.
type tests func() int

func (f tests) Run() int { return f() }

func waitForTheEnd() int {
	db := New(&recorder{name: "waits"})
	fmt.Fprintf(os.Stdout, "ready %d %d %s\n", os.Getpid(), shared.server.PID(), shared.server.DataDir())
	// A busy backend has to go too.
	_, err := db.Pool.Exec(context.Background(), `SELECT pg_sleep(600)`)
	fmt.Fprintln(os.Stdout, err)
	return 1
}
