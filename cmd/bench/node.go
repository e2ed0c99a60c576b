package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"time"
)

// nodeCmd is a process of agentd whose model yields a stamped chunk at equal
// intervals, for as long as the process lives.
type nodeCmd struct {
	DatabaseURL string        `required:""`
	Every       time.Duration `required:""`
	CPUProfile  string
	Prose       bool // a text behind each stamp
	Observers   bool // all of the builtin ones see it
}

// Run serves until a signal comes.
func (cmd nodeCmd) Run(ctx context.Context, streams *std) (err error) {
	log := slog.New(slog.NewTextHandler(streams.err, nil))
	cfg := stackConfig{url: cmd.DatabaseURL, model: pacedModel{every: cmd.Every, prose: cmd.Prose}, hooks: referenceHooks(), log: log}
	if cmd.Observers {
		if cfg.observers, err = allObservers(); err != nil {
			return err
		}
	}
	s, err := startStack(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: s.handler(ctx, log), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("serving", "url", "http://"+listener.Addr().String())
	if err := cmd.profile(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	_ = server.Close() // the listener's error comes from Serve
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// profile writes where the CPU goes until ctx ends, if it is to.
func (cmd nodeCmd) profile(ctx context.Context) error {
	if cmd.CPUProfile == "" {
		return nil
	}
	f, err := os.Create(cmd.CPUProfile)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	<-ctx.Done()
	pprof.StopCPUProfile()
	return f.Close()
}
