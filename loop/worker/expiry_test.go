package worker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestASweepEndsTheWaitForPeople: a run that nobody answers goes on by itself
// once the time is over by the database's clock, and not before.
func TestASweepEndsTheWaitForPeople(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var entered atomic.Int64
	g := newGate()
	close(g.open)
	p := setup(t, db, callsTool("count"), counted(&entered, g))
	agent := p.Engine.Agents["demo"]
	agent.Permissions, agent.ApprovalTimeout = []loop.Permission{{Tools: "*", Mode: loop.PermissionAsk}}, 24*time.Hour
	p.Engine.Agents["demo"] = agent
	p.work(t)
	j := p.Start(t, p.Session(t), "hello")
	p.await(t, j, func(r loop.Run) bool { return r.Status == loop.RunWaiting })
	spent(t, db)
	if list, err := p.leases.Expired(t.Context(), 10); err != nil || len(list) != 0 {
		t.Errorf("expired %v, %v; want nothing yet", list, err)
	}
	if n := p.count(t, j.SessionID, event.TypeApprovalDecided); n != 0 {
		t.Errorf("%d answers before the time is over", n)
	}
	db.ShiftClock(t, 24*time.Hour)
	r := p.await(t, j, ended)
	call := r.Turns[0].Calls[0]
	if r.Status != loop.RunCompleted || call.Decision != event.DecisionExpired || call.DecidedBy != event.System("approval_timeout") ||
		call.Reason != hooks.ReasonExpired || entered.Load() != 0 {
		t.Errorf("the run is %s, the tool was entered %d times, the call is %+v", r.Status, entered.Load(), call)
	}
}
