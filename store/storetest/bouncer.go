package storetest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The modes of a [NewBouncer].
const (
	BouncerTransaction = "transaction"
	BouncerSession     = "session"
)

// bouncerScript ends PgBouncer when the test does, however it does: then the
// other end of its stdin is closed.
const bouncerScript = `"$0" "$1" & pid=$!; cat >/dev/null; kill -INT $pid; wait $pid`

// NewBouncer starts a PgBouncer before the database of a URL and returns the
// URL that goes through it. It ends with the test, which is skipped where no
// PgBouncer is installed.
func NewBouncer(t testing.TB, databaseURL, mode string) string {
	t.Helper()
	path, err := findBouncer()
	if err != nil {
		t.Skip("SKIPPED: PgBouncer is not installed, so nothing was tried behind it (`make setup` installs it on Debian, as root)")
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	port, dir := Port(t), madeDir(t, bouncerPrefix)
	config := filepath.Join(dir, "pgbouncer.ini")
	password, _ := u.User.Password()
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 30
max_client_conn = 200
`, u.Hostname(), u.Port(), u.User.Username(), password, port, mode)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", bouncerScript, path, config) //nolint:noctx // it ends with its stdin
	if err := unprivileged(cmd, dir, config); err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // it was told to end, and says so
		_ = log.Close()
	})
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := answers(u.String()); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("storetest: PgBouncer: %v\n%s", err, said)
	}
	return u.String()
}

// findBouncer also looks where Debian puts it, which is no user's PATH.
func findBouncer() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	const debian = "/usr/sbin/pgbouncer"
	_, err := os.Stat(debian)
	return debian, err
}

// unprivileged makes root's command another user's, who owns the paths:
// PgBouncer refuses to be root's.
func unprivileged(cmd *exec.Cmd, paths ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := user.Lookup("nobody")
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := os.Chown(p, int(uid), int(gid)); err != nil {
			return err
		}
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}

// answers returns when the database of a URL can be asked.
func answers(databaseURL string) error {
	ctx, cancel := withLimit(startLimit)
	defer cancel()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			return conn.Close(context.WithoutCancel(ctx))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
