package main

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// say starts a run with a policy.
func say(t *testing.T, s *server, session, text, policy string) *agentdv1.StartRunResponse {
	t.Helper()
	res, err := agentdv1connect.NewRunServiceClient(freshClient(), s.url).
		StartRun(t.Context(), connect.NewRequest(&agentdv1.StartRunRequest{SessionId: session, Text: text, Policy: policy}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg
}

// TestKillWhereARunEndsAndTheNextBegins: the process dies while the append is
// under way that ends one run and begins the next one, which is then lost, or
// committed after its death. The next run begins once.
func TestKillWhereARunEndsAndTheNextBegins(t *testing.T) {
	t.Parallel()
	for policy, c := range map[string]struct {
		ends event.Type
		want string // the conversation
	}{
		"enqueue":   {event.TypeRunCompleted, `^pause r0 Soon\. Paused r0\. say r1 Said r1\. say r2 Said r2\.$`},
		"interrupt": {event.TypeRunCancelled, `^pause r0 Soon\. say r2 Said r2\. say r1 Said r1\.$`},
		"rollback":  {event.TypeRunCancelled, `^say r2 Said r2\. say r1 Said r1\.$`},
	} {
		for _, lose := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s lost=%t", policy, lose), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				f.spawn(t)
				f.spawn(t)
				f.ready(t)
				at := f.alive[0]
				session := newSession(t, at)
				first, _ := startRun(t, at, session, "pause r0")
				awaitRow(t, f.db, `SELECT 'x' FROM agentd.events WHERE type = 'assistant.delta'`)
				second := say(t, at, session, "say r1", "enqueue")
				held := holdCommit(t, f.db, c.ends, 0)
				third := say(t, at, session, "say r2", policy)
				if policy == "enqueue" {
					if err := os.WriteFile(f.gate, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				pid := held.await(t)
				_, victim := f.holder(t, first)
				f.kill(t, victim)
				held.end(t, pid, lose)
				f.awaitEnd(t, first)
				for _, run := range []string{second.GetRunId(), third.GetRunId()} {
					if status := f.awaitEnd(t, run); status != "completed" {
						t.Errorf("run %s is %s", run, status)
					}
					checkRun(t, ofRun(checkSession(t, f, session), run))
				}
				said := scalar[string](t, f.db, `
					SELECT string_agg(trim(parts #>> '{0,text}'), ' ' ORDER BY position) FROM agentd.messages
					WHERE session_id = $1 AND replaced_seq IS NULL`, session)
				if !regexp.MustCompile(c.want).MatchString(said) {
					t.Errorf("the conversation is %q, want %s", said, c.want)
				}
				f.verify(t)
			})
		}
	}
}
