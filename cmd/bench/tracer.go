package main

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// appends counts the groups that the committer sends: agentd's own commits. It
// costs next to nothing.
type appends struct{ groups atomic.Int64 }

var (
	_ pgx.QueryTracer = (*appends)(nil)
	_ pgx.BatchTracer = (*appends)(nil)
	_ pgx.QueryTracer = (*tracer)(nil)
	_ pgx.BatchTracer = (*tracer)(nil)
)

// TraceBatchStart implements pgx.BatchTracer.
func (a *appends) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "INSERT INTO agentd.events") {
			a.groups.Add(1)
			break
		}
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*appends) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*appends) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TraceQueryStart implements pgx.QueryTracer.
func (*appends) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*appends) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracer counts everything that goes over the connections of a pool.
type tracer struct {
	appends
	mu                        sync.Mutex
	queries, batches, batched int
	sent                      map[string]int
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queries++
	t.count(data.SQL)
	return ctx
}

// TraceBatchStart implements pgx.BatchTracer.
func (t *tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.batches++
	t.batched += data.Batch.Len()
	for _, q := range data.Batch.QueuedQueries {
		t.count(q.SQL)
	}
	return t.appends.TraceBatchStart(ctx, conn, data)
}

func (t *tracer) count(sql string) {
	if t.sent == nil {
		t.sent = map[string]int{}
	}
	t.sent[shortened(sql)]++
}

// shortened fits into a line.
func shortened(sql string) string {
	sql = strings.Join(strings.Fields(sql), " ")
	if len(sql) > 150 {
		sql = sql[:150] + "…"
	}
	return sql
}
