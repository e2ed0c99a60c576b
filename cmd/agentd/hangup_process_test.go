package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestTheEndOfItsTerminalStopsAServer in order, where the same signal from
// anybody else has the hooks loaded again.
func TestTheEndOfItsTerminalStopsAServer(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if signal.Ignored(syscall.SIGHUP) {
		// As under nohup, which a process inherits: one with a handler does not.
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		t.Cleanup(func() { signal.Stop(hangups) })
	}
	p := &process{done: make(chan struct{}), cmd: command(options{
		dir: t.TempDir(), env: []string{"AGENTD_DATABASE_URL=" + db.URL, "AGENTD_LISTEN=127.0.0.1:0"},
	}, "serve")}
	p.cmd.Stderr = &p.err
	tty, err := pty.Start(p.cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tty.Close(); err == nil {
			t.Error("the terminal was never closed")
		}
	})
	p.reap(t, "agentd serve")
	p.await(t, &p.err, `(msg=serving)`)
	p.signal(t, syscall.SIGHUP)
	p.await(t, &p.err, `(there is nothing to load again)`)
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d, said %s", code, p.err.String())
	}
	p.await(t, &p.err, `(stopping: the terminal is gone)`)
}
