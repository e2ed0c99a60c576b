package store

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	listenTimeout  = 5 * time.Second // to connect and to begin to listen
	firstRelisten  = 50 * time.Millisecond
	lastRelisten   = 5 * time.Second
	pingListenerIn = 10 * time.Second
)

// listener hears what other processes have committed, on a connection of its
// own. When that is lost it makes another one, and has the hub look for what
// was said in between.
type listener struct {
	config *pgx.ConnConfig
	self   string
	hub    *hub
	logger *slog.Logger
	// quiet is how long nothing may be said before the listener asks whether
	// the connection is still there.
	quiet time.Duration
	// patience is how long the answer to that may take.
	patience time.Duration
	// deaf says that the loss of the connection was told; run owns it.
	deaf bool
}

func newListener(config *pgx.ConnConfig, self string, h *hub, logger *slog.Logger) *listener {
	return &listener{config: config, self: self, hub: h, logger: logger, quiet: pingListenerIn, patience: listenTimeout}
}

func (l *listener) run(ctx context.Context) {
	pause := firstRelisten
	for {
		listening, err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if listening {
			pause = firstRelisten
		}
		if !l.deaf {
			l.logger.WarnContext(ctx, "not listening for notifications: polling until the connection is back", "error", err)
		}
		l.deaf = true
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lastRelisten)
	}
}

// listen returns when the connection is lost; listening says that it was there.
func (l *listener) listen(ctx context.Context) (listening bool, err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, conn.Close(ctx))
	}()
	l.hub.lookNow()
	if l.deaf {
		l.logger.InfoContext(ctx, "listening for notifications again")
		l.deaf = false
	}
	for {
		wait, cancel := context.WithTimeout(ctx, l.quiet)
		n, err := conn.WaitForNotification(wait)
		timedOut := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			l.heard(n.Payload)
		case ctx.Err() != nil || !timedOut:
			return true, err
		default:
			// Nothing was said for long: is anybody there?
			if err := l.ping(ctx, conn); err != nil {
				return true, err
			}
		}
	}
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `LISTEN `+eventsChannel); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

func (l *listener) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	return conn.Ping(ctx)
}

// heard takes in a payload. Anybody who may connect can send one, so what does
// not make sense is passed over.
func (l *listener) heard(payload string) {
	from, list, _ := strings.Cut(payload, " ")
	if from == l.self {
		return
	}
	l.hub.stirs.stir()
	for pair := range strings.FieldsSeq(list) {
		if pair == everything {
			l.hub.lookNow()
			continue
		}
		id, head, _ := strings.Cut(pair, ":")
		if seq, err := strconv.ParseInt(head, 10, 64); err == nil {
			l.hub.announced(id, seq)
		}
	}
}
