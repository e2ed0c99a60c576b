package pgembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	retryFor   = 15 * time.Second
	retryEvery = 250 * time.Millisecond
)

// Start finds a Postgres, makes the data directory if there is none, stops what
// a killed owner left running on it, starts a postmaster and returns when it
// accepts connections. Replaying the log after a crash can take minutes, so
// only ctx limits the wait; after Start has returned, ctx means nothing. On an
// error nothing is left running, and what was begun is done again by the next
// Start.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return start(ctx, cfg, thisHost())
}

func start(ctx context.Context, cfg Config, h host) (_ *Server, err error) {
	logger := cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	settings, err := cfg.settings()
	if err != nil {
		return nil, err
	}
	acct, err := chooseAccount()
	if err != nil {
		return nil, err
	}
	if cfg.Throwaway {
		sweepScratch(ctx, acct, logger)
	}
	l, err := newLayout(cfg, acct, logger)
	if err != nil {
		return nil, err
	}
	s := &Server{layout: l}
	s.exit = sync.OnceValue(s.exitReason)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.abandon())
		}
	}()
	if err = s.claim(cfg.Throwaway); err != nil {
		return nil, err
	}
	acct = acct.adopt(l.data)
	major, err := clusterMajor(l.data)
	if err != nil {
		return nil, err
	}
	if s.bin, err = h.find(ctx, cfg, acct, l, major, logger); err != nil {
		return nil, err
	}
	if err = clearOrphan(ctx, l.data, s.lock.previous, logger); err != nil {
		return nil, err
	}
	c := cluster{layout: l, account: acct, bin: s.bin, log: s.log, throwaway: cfg.Throwaway}
	if s.password, err = c.prepare(ctx); err != nil {
		return nil, err
	}
	if s.layout.sockets, err = l.makeSockets(acct); err != nil {
		return nil, err
	}
	death := syscall.SIGQUIT
	if h.outlive {
		death = 0
	}
	if err = s.launch(ctx, acct, death, cfg.Port, settings); err != nil {
		return nil, err
	}
	logger.Info("Postgres accepts connections", "version", s.bin.major, "bin_dir", s.bin.dir, "data_dir", l.data, "port", s.port, "pid", s.proc.pid)
	return s, nil
}

// claim takes the lock and opens the log.
func (s *Server) claim(throwaway bool) (err error) {
	if s.lock, err = acquireLock(s.layout); err != nil {
		return err
	}
	if throwaway {
		if entries, err := os.ReadDir(s.layout.data); err == nil && len(entries) > 0 {
			return fmt.Errorf("data directory %s is not empty, and a throwaway server would delete it at Stop", s.layout.data)
		}
		s.throwaway = true
	}
	s.log, err = openLog(s.layout.log())
	return err
}

// abandon gives back what a failed Start took.
func (s *Server) abandon() error {
	if s.layout.scratch != "" {
		s.throwaway = true // made by us, however early we failed
	}
	return s.free()
}

// launch starts the postmaster, again when what stands in its way goes by itself.
func (s *Server) launch(ctx context.Context, acct account, death syscall.Signal, port int, settings map[string]string) error {
	deadline := time.NewTimer(retryFor)
	defer deadline.Stop()
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		err := s.attempt(ctx, acct, death, port, settings)
		if err == nil || !s.worthRetrying(port) || ctx.Err() != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("gave up after %s: %w", retryFor, err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// worthRetrying reads the reason in the log of the attempt.
func (s *Server) worthRetrying(port int) bool {
	tail := s.log.tail()
	for _, passing := range []string{
		// The backends of a killed postmaster are still ending.
		"pre-existing shared memory block",
		"already exists", // lock file "postmaster.pid" already exists
	} {
		if strings.Contains(tail, passing) {
			return true
		}
	}
	// Somebody took the free port first; the next attempt takes another.
	return port == 0 && strings.Contains(tail, "Address already in use")
}

// attempt runs one postmaster until it is ready, or until it is gone.
func (s *Server) attempt(ctx context.Context, acct account, death syscall.Signal, port int, settings map[string]string) (err error) {
	if port == 0 {
		if port, err = freePort(); err != nil {
			return err
		}
	}
	s.log.mark()
	args := serverArgs(s.layout.data, s.layout.sockets, port, settings)
	p, err := startProcess(command(acct, s.log, death, s.bin.postgres(), args...))
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := errors.Join(s.lock.record(p.pid), p.awaitReady(ctx, s.layout.data)); err != nil {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), immediateLimit)
		defer cancel()
		p.stop(gone, syscall.SIGQUIT)
		return s.log.explain(fmt.Errorf("start postgres: %w", err))
	}
	s.proc, s.port = p, port
	return nil
}

// awaitReady polls the status that the postmaster writes into postmaster.pid
// when it begins to accept connections: unlike a connection attempt, this
// needs no password and leaves nothing in the log.
func (p *process) awaitReady(ctx context.Context, dataDir string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if f, ok := readPIDFile(dataDir); ok && f.pid == p.pid && f.status == "ready" {
				return nil
			}
		case <-p.done:
			return fmt.Errorf("it exited (%s)", p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil || !ok {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return addr.Port, nil
}
