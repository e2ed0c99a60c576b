package sim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
)

// actor is one goroutine of a process with what it started: a worker that
// advances one run, or one command.
type actor struct {
	name    string
	process *process
	// worker is "" for a command.
	worker string
	job    loop.Job
	// ctx ends when the actor is stopped; it names it to models, tools and hooks.
	ctx  context.Context //nolint:containedctx // an actor is what a goroutine is, and is stopped from another
	stop context.CancelFunc

	ids    int
	random io.Reader
	skew   *atomic.Int64
	// known is the last seq that it was told of.
	known int64
	// held says that it had its run when it was last told of anything.
	held bool
	// wake is what the log tells of its session, behind an unbuffered channel: it
	// is heard only by who listens. pending has the seq of what was not heard.
	wake    chan int64
	pending int64
	// retrying says that a call of the log has failed, and that it has made no
	// other since.
	retrying atomic.Bool
	// later are decisions that a mutation keeps for the next append.
	later []loop.LedgerRow
	over  atomic.Bool
}

type actorKey struct{}

// actorOf finds who asks a model, a tool or a hook.
func actorOf(ctx context.Context) *actor {
	a, _ := ctx.Value(actorKey{}).(*actor)
	return a
}

// newActor makes one with a context of its own.
func (w *world) newActor(name string, p *process, skew *atomic.Int64) *actor {
	seed := sha256.Sum256([]byte(name))
	a := &actor{name: name, process: p, random: rand.NewChaCha8(seed), skew: skew}
	ctx, stop := context.WithCancel(context.Background())
	a.ctx, a.stop = context.WithValue(ctx, actorKey{}, a), stop
	return a
}

// newID counts for each actor by itself, so that ids do not depend on who was
// faster.
func (a *actor) newID() string {
	a.ids++
	return fmt.Sprintf("%s-%d", a.name, a.ids)
}

// now is the clock of the actor's machine.
func (a *actor) now() time.Time { return time.Now().Add(time.Duration(a.skew.Load())) }
