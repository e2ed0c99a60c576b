package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	readHeaderTimeout = 10 * time.Second
	// Streams lift these two for themselves.
	readTimeout  = 30 * time.Second
	writeTimeout = 60 * time.Second

	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	pingTimeout    = time.Second
)

// newServer speaks HTTP/1.1 and, for gRPC, HTTP/2 in cleartext on one port.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: handler, Protocols: protocols,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// readiness says whether a load balancer should send requests here. A process
// whose worker is drained is about to be stopped: it still answers, and no
// longer says that it wants more.
func readiness(ready *atomic.Bool, draining *atomic.Pointer[func() bool], pool *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			http.Error(w, "not serving", http.StatusServiceUnavailable)
			return
		}
		if drained := draining.Load(); drained != nil && (*drained)() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), pingTimeout)
		defer cancel()
		if !answers(ctx, pool) {
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// answers reports whether the database does. After its restart each connection
// that the pool still holds fails once.
func answers(ctx context.Context, pool *pgxpool.Pool) bool {
	for range pool.Config().MaxConns + 1 {
		if pool.Ping(ctx) == nil {
			return true
		}
	}
	return false
}
