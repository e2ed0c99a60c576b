package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

var discardLog = log.New(io.Discard, "", 0)

// failing is a guard that gives no usable answer.
type failing struct {
	outcome hooks.Outcome
	// hooks are it, failing closed unless open.
	hooks func(t *testing.T, open bool) hooks.Hooks
	// stumbles are the arguments at which it fails, "" for any.
	stumbles string
}

// brief is the time limit of guards that do not answer.
const brief = 20 * time.Millisecond

func failOpen(open bool) []hooks.Option {
	if open {
		return []hooks.Option{hooks.OnFailureOpen()}
	}
	return nil
}

func goFailing(limit time.Duration, f hooks.BeforeToolCallFunc) func(*testing.T, bool) hooks.Hooks {
	return func(_ *testing.T, open bool) hooks.Hooks {
		return hooks.Hooks{BeforeToolCall: hooks.Named("guard", "1", f, append(failOpen(open), hooks.TimeLimit(limit))...)}
	}
}

func goAnswering(r hooks.BeforeToolCallResult) func(*testing.T, bool) hooks.Hooks {
	return goFailing(unhurried, func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) { return r, nil })
}

// ruleFailing is a rule that would let the call through if it held.
func ruleFailing(keys string) func(*testing.T, bool) hooks.Hooks {
	return func(t *testing.T, open bool) hooks.Hooks {
		t.Helper()
		policy := map[bool]string{false: "closed", true: "open"}[open]
		return configured1(t, "rules: [{id: guard, gate: BeforeToolCall, on_failure: "+policy+", "+keys+"}]\n")
	}
}

func webhookFailing(limit time.Duration, h http.HandlerFunc) func(*testing.T, bool) hooks.Hooks {
	return func(t *testing.T, open bool) hooks.Hooks {
		t.Helper()
		return webhookAt(t, "guard", serving(t, h), append(failOpen(open), hooks.TimeLimit(limit))...)
	}
}

func webhookSaying(answer string) func(*testing.T, bool) hooks.Hooks {
	return webhookFailing(unhurried, func(w http.ResponseWriter, r *http.Request) {
		drain(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(answer, "ID", r.Header.Get("Webhook-Id")))
	})
}

// webhookBreaking is an endpoint that takes the question and dies with so much of
// an answer.
func webhookBreaking(part string) func(*testing.T, bool) hooks.Hooks {
	return webhookFailing(unhurried, func(w http.ResponseWriter, r *http.Request) {
		drain(r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, part)
		_ = conn.Close()
	})
}

// webhookNowhere is an endpoint where nobody listens.
func webhookNowhere(t *testing.T, open bool) hooks.Hooks {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return webhookAt(t, "guard", url, append(failOpen(open), hooks.TimeLimit(unhurried))...)
}

// failures are the ways in which each kind of guard can fail.
func failures() map[hooks.Kind]map[string]failing {
	newer := `{"zone": "x"`
	return map[hooks.Kind]map[string]failing{
		hooks.KindGo: {
			"an error": {outcome: hooks.OutcomeError, hooks: goFailing(unhurried, func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, errors.New("no")
			})},
			"a panic": {outcome: hooks.OutcomePanic, hooks: goFailing(unhurried, func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) { panic("no") })},
			"no answer in time": {outcome: hooks.OutcomeTimeout, hooks: goFailing(brief, func(ctx context.Context, _ hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				<-ctx.Done()
				return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
			})},
			"nothing":              {outcome: hooks.OutcomeMalformed, hooks: goAnswering(hooks.BeforeToolCallResult{})},
			"an unknown word":      {outcome: hooks.OutcomeMalformed, hooks: goAnswering(hooks.BeforeToolCallResult{Action: "allow"})},
			"a word of another":    {outcome: hooks.OutcomeIllegalAction, hooks: goAnswering(hooks.BeforeToolCallResult{Action: hooks.ActionWithhold})},
			"what is no arguments": {outcome: hooks.OutcomeUnappliable, hooks: goAnswering(hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &newer})},
			"a yes and a change":   {outcome: hooks.OutcomeMalformed, hooks: goAnswering(hooks.BeforeToolCallResult{Action: hooks.ActionContinue, Arguments: &newer})},
		},
		hooks.KindRule: {
			"a missing key":        {outcome: hooks.OutcomeError, hooks: ruleFailing(`when: 'call.arguments.amount > 5', block: x`)},
			"a text for a number":  {outcome: hooks.OutcomeError, hooks: ruleFailing(`when: 'call.arguments.zone > 5', block: x`)},
			"a key twice":          {outcome: hooks.OutcomeError, hooks: ruleFailing(`when: 'call.arguments.a == 1', block: x`), stumbles: `{"zone": "CET", "a": 2, "a": 1}`},
			"a key in other case":  {outcome: hooks.OutcomeError, hooks: ruleFailing(`when: 'has(call.arguments.cased)', block: x`), stumbles: `{"zone": "CET", "Cased": 1}`},
			"a division by zero":   {outcome: hooks.OutcomeError, hooks: ruleFailing(`when: '1 / (turn - turn) == 1', block: x`)},
			"no place to look":     {outcome: hooks.OutcomeError, hooks: ruleFailing(`when: 'call.arguments.list[7] == 1', block: x`), stumbles: `{"list": [1]}`},
			"no answer in time":    {outcome: hooks.OutcomeTimeout, hooks: ruleFailing(`timeout: 1ms, when: 'call.arguments.list.all(x, call.arguments.list.all(y, x == y || x != y))', block: x`), stumbles: `{"list": [` + strings.Repeat("1,", 600) + `1]}`},
			"a change that is not": {outcome: hooks.OutcomeError, hooks: ruleFailing(`transform: {arguments: {zone: '{{ call.arguments.nowhere }}'}}`)},
		},
		hooks.KindWebhook: {
			"an error": {outcome: hooks.OutcomeError, hooks: webhookFailing(unhurried, func(w http.ResponseWriter, r *http.Request) {
				drain(r.Body)
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, `{"action":"continue"}`)
			})},
			"a panic": {outcome: hooks.OutcomeError, hooks: webhookFailing(unhurried, func(_ http.ResponseWriter, r *http.Request) {
				drain(r.Body)
				panic("no")
			})},
			"no answer in time": {outcome: hooks.OutcomeTimeout, hooks: webhookFailing(brief, func(_ http.ResponseWriter, r *http.Request) {
				drain(r.Body)
				<-r.Context().Done()
			})},
			"nothing":              {outcome: hooks.OutcomeMalformed, hooks: webhookSaying("")},
			"rubbish":              {outcome: hooks.OutcomeMalformed, hooks: webhookSaying("<html>continue</html>")},
			"half an answer":       {outcome: hooks.OutcomeMalformed, hooks: webhookSaying(`{"id":"ID","action":"continue"`)},
			"an unknown word":      {outcome: hooks.OutcomeMalformed, hooks: webhookSaying(`{"id":"ID","action":"allow"}`)},
			"a word of another":    {outcome: hooks.OutcomeIllegalAction, hooks: webhookSaying(`{"id":"ID","action":"withhold"}`)},
			"two words":            {outcome: hooks.OutcomeMalformed, hooks: webhookSaying(`{"id":"ID","action":"block","action":"continue"}`)},
			"another's answer":     {outcome: hooks.OutcomeMalformed, hooks: webhookSaying(`{"id":"other","action":"continue"}`)},
			"no such path":         {outcome: hooks.OutcomeError, hooks: webhookFailing(unhurried, http.NotFound)},
			"a way elsewhere":      {outcome: hooks.OutcomeError, hooks: webhookFailing(unhurried, http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect).ServeHTTP)},
			"a death":              {outcome: hooks.OutcomeError, hooks: webhookBreaking("")},
			"a death in the head":  {outcome: hooks.OutcomeError, hooks: webhookBreaking("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")},
			"a death in the body":  {outcome: hooks.OutcomeError, hooks: webhookBreaking("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{\"id\":")},
			"nobody there":         {outcome: hooks.OutcomeUnavailable, hooks: webhookNowhere},
			"what is no arguments": {outcome: hooks.OutcomeUnappliable, hooks: webhookSaying(`{"id":"ID","action":"transform","arguments":"{"}`)},
		},
	}
}

// TestAGuardThatFailsInAnyWayOpensNothing, whatever it is written in: the tool does
// not run, the row says how the guard failed, and the model that the call was
// blocked since the check failed. Only where the host says so of the one guard is
// the call let through, and that is told wherever gates that were open are.
func TestAGuardThatFailsInAnyWayOpensNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db)
	var failedOpen []string
	for kind, ways := range failures() {
		for way, f := range ways {
			name := fmt.Sprintf("%s: %s", kind, way)
			call := [2]string{"charge", cmp.Or(f.stumbles, `{"zone": "CET"}`)}
			p := s.newPoliced(t, f.hooks(t, false), call)
			if run := p.goes(); run.Status != loop.RunCompleted {
				t.Errorf("%s: the run is %s", name, run.Status)
			}
			p.wantClosed(s, "guard", name, kind, f.outcome)

			p = s.newPoliced(t, f.hooks(t, true), call)
			if run := p.goes(); run.Status != loop.RunCompleted || len(p.all()) != 1 {
				t.Errorf("%s, failing open: the run is %s, and the tool ran with %q", name, run.Status, p.all())
			}
			failedOpen = append(failedOpen, fmt.Sprintf("%s %s %s", p.job.SessionID, kind, f.outcome))
		}
	}
	told := strings.Split(scalar[string](t, db, `
		SELECT string_agg(concat_ws(' ', session_id, hook_kind, outcome), '|') FROM agentd.fail_open WHERE effective AND tool_name = 'charge' AND hook_id = 'guard'`), "|")
	slices.Sort(told)
	slices.Sort(failedOpen)
	if !slices.Equal(told, failedOpen) {
		t.Errorf("agentd.fail_open has\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(failedOpen, "\n"))
	}
}

// wantClosed expects that the one call was blocked, since the guard gave no usable
// answer.
func (p *policed) wantClosed(s *stack, guard, name string, kind hooks.Kind, outcome hooks.Outcome) {
	p.t.Helper()
	if ran := p.all(); len(ran) != 0 {
		p.t.Errorf("%s: the tool ran with %q", name, ran)
	}
	rows := rowsAt(p.t, s.db, p.job.SessionID, "hook_id, hook_kind, action, outcome, failure_policy, failed_open")
	if want := fmt.Sprintf("%s %s block %s closed f", guard, kind, outcome); !slices.Equal(rows, []string{want}) {
		p.t.Errorf("%s: ledger %q; want %q", name, rows, want)
	}
	result := p.toldAt(1)
	if len(result) != 1 || !result[0].IsError || result[0].Reason != hooks.ReasonBlocked ||
		!strings.Contains(result[0].Content, "The check "+guard+" gave no usable answer ("+string(outcome)+")") {
		p.t.Errorf("%s: the model is told %+v", name, result)
	}
	if n := len(decoded[event.ToolStarted](p.t, stored(p.t, s.db, p.job.SessionID))); n != 0 {
		p.t.Errorf("%s: %d calls are said to have started", name, n)
	}
}
