package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// paced says as many words as it is asked for, one for each value from more.
func paced(n int, more <-chan struct{}) loop.Model {
	return looptest.Model(func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for i := range n {
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
			if !yield(looptest.Text("w"+strconv.Itoa(i)+" "), nil) {
				return
			}
		}
		yield(looptest.Finish(stream.FinishStop), nil)
	})
}

// TestAClientSeesARunOnceThroughCutsARestartAndADeafServer: the connections of
// a client are cut at any byte while a run writes, the API is replaced, and one
// connection is never answered.
func TestAClientSeesARunOnceThroughCutsARestartAndADeafServer(t *testing.T) {
	t.Parallel()
	const words, restartAt, deafAt = 300, 100, 200
	db := storetest.New(t)
	more := make(chan struct{}, words)
	works := newStack(t, db, playing(paced(words, more)))
	serves := newStack(t, db)
	f := newFront(t, serves.url)
	c := dial(t, f.url, client.WithSilence(time.Second))
	ctx := patient(t)
	made, err := c.CreateSession(ctx, &agentdv1.CreateSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.StartRun(ctx, &agentdv1.StartRunRequest{SessionId: made.GetSessionId(), Text: "go"})
	if err != nil {
		t.Fatal(err)
	}
	work := works.advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: made.GetSessionId(), RunID: run.GetRunId(), Ticket: 1})
	// The first frame of a connection may be all that it brings, or nothing.
	f.set(func(f *front) { f.cut = func() int64 { return 300 + rand.Int64N(4000) } })
	f.cutAll()

	var seen []fact
	for e, err := range c.WatchRun(ctx, run.GetRunId(), run.GetAfter()) {
		if err != nil {
			t.Fatalf("behind %d events: %v", len(seen), err)
		}
		seen = append(seen, toldByConnect(e))
		switch len(seen) {
		case restartAt:
			serves = serves.again(t)
			f.lead(serves.url)
		case deafAt:
			f.set(func(f *front) { f.deaf = true })
			f.cutAll()
		}
		select {
		case more <- struct{}{}:
		default: // it has all that it wants
		}
	}
	work.wait(t)
	sameStory(t, "what the client saw", seen, stored(t, db, made.GetSessionId())[run.GetAfter():])
	connections := 0
	f.set(func(f *front) { connections = f.count })
	if connections < 10 || len(seen) <= deafAt {
		t.Errorf("%d events over %d connections: next to nothing was cut", len(seen), connections)
	}
}
