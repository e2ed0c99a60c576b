package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestAnnouncementPayload(t *testing.T) {
	t.Parallel()
	var a announcement
	for i := range 100 {
		a.add(committed{sessionID: fmt.Sprintf("00000000-0000-7000-8000-%012d", i), events: []event.Event{{Seq: int64(i)}, {Seq: int64(i + 1)}}})
	}
	got := a.payload("me")
	if len(got) > payloadLimit || !strings.HasPrefix(got, "me ") || !strings.Contains(got, " 00000000-0000-7000-8000-000000000099:100") {
		t.Errorf("payload of 100 sessions: %d bytes: %.80s…", len(got), got)
	}
	for i := range 10_000 {
		a.add(committed{sessionID: fmt.Sprintf("00000000-0000-7000-8000-%012d", i), events: []event.Event{{Seq: 1}}, jobs: []loop.Job{{}}})
	}
	if got := a.payload("me"); got != "me *" || len(a.heads) > 200 || !a.jobs {
		t.Errorf("payload of 10,000 sessions: %.80s…, %d kept, jobs %t", got, len(a.heads), a.jobs)
	}
}

func TestNotifierThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var log strings.Builder
	n := newNotifier(pool, "me", slog.New(slog.NewTextHandler(&log, nil)))
	n.add([]committed{newFakeLog(0).write(1)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.run(ctx) // sends what is left
	if !strings.Contains(log.String(), "notification not sent") || len(n.pending.heads) > 0 {
		t.Errorf("log %q, %d pending", log.String(), len(n.pending.heads))
	}
}

func TestNotificationsKeepADistanceUnlessThereAreJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier(nil, "me", slog.New(slog.DiscardHandler))
		waits := func(c committed) time.Duration {
			began := time.Now()
			n.add([]committed{c})
			if !n.await(t.Context(), time.After(notifyEvery)) {
				t.Error("nothing is to be sent")
			}
			n.pending = announcement{}
			return time.Since(began)
		}
		events := newFakeLog(0).write(1)
		if got := waits(events); got != notifyEvery {
			t.Errorf("events wait %v after the last notification; want %v", got, notifyEvery)
		}
		events.jobs = []loop.Job{{}}
		if got := waits(events); got != 0 {
			t.Errorf("a job waits %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n.await(ctx, nil) {
			t.Error("it goes on after its end")
		}
	})
}

func TestListenerPassesOverItsOwnWordsAndNonsense(t *testing.T) {
	t.Parallel()
	h := newHub(newFakeLog(0), time.Second, slog.New(slog.DiscardHandler))
	l := newListener(nil, "me", h, slog.New(slog.DiscardHandler))
	signals, stop := h.watch(mine)
	t.Cleanup(stop)
	for _, payload := range []string{"me " + mine + ":5", "me *", "", "you", "you " + mine, "you " + mine + ":x", "you :5", "you " + foreign + ":5"} {
		l.heard(payload)
		if len(signals) > 0 || len(h.look) > 0 {
			t.Errorf("%q made a signal", payload)
		}
	}
	l.heard("you x:1 " + mine + ":5")
	if len(signals) != 1 || h.find(mine).at() != 5 {
		t.Error("an announcement made no signal")
	}
	l.heard("you *")
	if len(h.look) != 1 {
		t.Error("no look at everything")
	}
}
