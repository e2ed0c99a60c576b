package pgembed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// Server is a running Postgres. It is made by Start only and is safe for
// concurrent use. Whoever called Start must call Stop, also after Done was
// closed: until then the data directory stays locked.
type Server struct {
	layout    layout
	bin       binaries
	port      int
	password  string
	throwaway bool

	proc     *process
	lock     *dirLock
	log      *logFile
	stopping atomic.Bool
	exit     func() error // exitReason, once
	release  sync.Once
	freed    error // of release
}

// URL connects over TCP on the loopback address, with the password in it: do
// not log it. It has no query part, so that it can be pasted into any shell
// unquoted. The database must exist; "postgres" always does, and is what ""
// means. The role is a superuser.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(superuser, s.password),
		Host:   net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:   "/" + databaseOr(database),
	}
	return u.String()
}

// SocketURL connects over the unix socket: no password, less work per query,
// but only for the user that Postgres runs as, and for root.
func (s *Server) SocketURL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(superuser),
		Path:     "/" + databaseOr(database),
		RawQuery: url.Values{"host": {s.layout.sockets}, "port": {strconv.Itoa(s.port)}}.Encode(),
	}
	// With no host, String writes neither "//" nor the user.
	return u.Scheme + "://" + u.User.String() + "@" + u.EscapedPath() + "?" + u.RawQuery
}

func databaseOr(name string) string {
	if name == "" {
		return "postgres"
	}
	return name
}

// DataDir is the absolute path of the data directory, links resolved.
func (s *Server) DataDir() string { return s.layout.data }

// LogFile is where Postgres's own output goes. It is emptied at a start that
// finds it longer than 4 MiB, and grows freely in between.
func (s *Server) LogFile() string { return s.layout.log() }

// BinDir is the directory of the binaries in use; psql is often in it.
func (s *Server) BinDir() string { return s.bin.dir }

// Port is the TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// PID is the postmaster's.
func (s *Server) PID() int { return s.proc.pid }

// Done is closed when the postmaster has exited, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// Err is nil while the server runs and after Stop; it says why, with the end of
// the log, when the postmaster exited by itself.
func (s *Server) Err() error {
	select {
	case <-s.proc.done:
	default:
		return nil
	}
	return s.exit()
}

// exitReason may only be called once the postmaster is gone, and for the first
// time before the log is closed.
func (s *Server) exitReason() error {
	if s.stopping.Load() {
		return nil
	}
	return s.log.explain(fmt.Errorf("postgres with pid %d exited unexpectedly (%s)", s.proc.pid, s.proc.cmd.ProcessState))
}

// Stop ends Postgres and returns when it is gone. It ends sessions at once,
// rolls back what was open and writes a checkpoint; when ctx ends first, or
// had ended before, it does without the checkpoint, returns an error that
// wraps ctx's, and the next start replays the log: no commit is lost either
// way. A throwaway server writes no checkpoint and its data is deleted. Stop
// may be called again, and by several goroutines; a nil Server is stopped.
func (s *Server) Stop(ctx context.Context) error {
	if s == nil {
		return nil
	}
	var err error
	select {
	case <-s.proc.done:
	default:
		s.stopping.Store(true)
		err = s.shutdown(ctx)
	}
	s.release.Do(func() { s.freed = s.free() })
	return errors.Join(err, s.freed)
}

func (s *Server) shutdown(ctx context.Context) error {
	if s.throwaway {
		s.proc.stop(context.WithoutCancel(ctx), syscall.SIGQUIT)
		return nil
	}
	if !s.proc.stop(ctx, syscall.SIGINT) {
		return fmt.Errorf("stop postgres without a checkpoint: %w", ctx.Err())
	}
	return nil
}

// free gives back what Start took. The postmaster, if any, is gone. The lock
// goes last: until then nobody else touches these files.
func (s *Server) free() error {
	var errs []error
	if s.proc != nil {
		_ = s.exit() // keeps the end of the log
	}
	switch {
	case s.throwaway:
		errs = append(errs, s.layout.discard())
	case s.layout.sockets != "":
		// Not another's sockets: with the lock held, nothing else uses it.
		errs = append(errs, os.RemoveAll(s.layout.sockets))
	}
	if s.log != nil {
		errs = append(errs, s.log.file.Close())
	}
	if s.lock != nil {
		// Without a postmaster of ours, what the last owner recorded stays true.
		if s.proc != nil {
			errs = append(errs, s.lock.record(0))
		}
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}
