package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/webhook"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// callPolicy is what somebody wants to hold of tool calls, whatever it is written
// in.
type callPolicy struct {
	id    string
	phase hooks.Phase
	// says is the policy as a program has it, of its own process or behind HTTP.
	says func(hooks.BeforeToolCall) hooks.BeforeToolCallResult
	// rule is the same as a rule: all of its keys but id, gate and phase.
	rule string
	// after is how long it thinks, nil for no time; a rule does not.
	after func() time.Duration
}

// answer is what it says, once it has thought.
func (p callPolicy) answer(in hooks.BeforeToolCall) hooks.BeforeToolCallResult {
	if p.after != nil {
		time.Sleep(p.after()) //nolint:forbidigo // it plays one that takes its time: nothing in the test waits for it
	}
	return p.says(in)
}

// policyKinds are what a policy can be written in. Each test that says something
// of policies says it of all of them.
var policyKinds = []struct {
	kind hooks.Kind
	make func(t *testing.T, p callPolicy) hooks.Hooks
}{
	{hooks.KindGo, goPolicy},
	{hooks.KindRule, rulePolicy},
	{hooks.KindWebhook, webhookPolicy},
}

// unhurried is for policies that have to answer on a machine that is busy.
const unhurried = hooks.DefaultTimeLimit * 15

func goPolicy(_ *testing.T, p callPolicy) hooks.Hooks {
	f := func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		return p.answer(in), nil
	}
	return hooks.Hooks{BeforeToolCall: hooks.Named(p.id, "1", f, hooks.InPhase(p.phase), hooks.TimeLimit(unhurried))}
}

// rulePolicy goes through a config file.
func rulePolicy(t *testing.T, p callPolicy) hooks.Hooks {
	t.Helper()
	return configured1(t, "rules:\n  - {id: "+p.id+", gate: BeforeToolCall, phase: "+string(p.phase)+", timeout: 30s, "+p.rule+"}\n")
}

// configured1 are the hooks of a config file.
func configured1(t *testing.T, text string) hooks.Hooks {
	t.Helper()
	c, err := hookConfig{path: filepath.Join(configFiles(t, map[string]string{"agentd.yaml": text}), "agentd.yaml")}.read()
	if err != nil {
		t.Fatal(err)
	}
	return c.hooks
}

func webhookPolicy(t *testing.T, p callPolicy) hooks.Hooks {
	t.Helper()
	return webhookAt(t, p.id, receive(t, func(in hooks.BeforeToolCall) any {
		return webhookAnswer(p.answer(in))
	}), hooks.InPhase(p.phase), hooks.TimeLimit(unhurried))
}

// webhookAnswer is what a receiver answers, without the id.
func webhookAnswer(r hooks.BeforeToolCallResult) map[string]any {
	out := map[string]any{"action": r.Action, "reason": r.Reason}
	if r.Arguments != nil {
		out["arguments"] = *r.Arguments
	}
	return out
}

// policySecret signs the questions of tests.
const policySecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// webhookConfig asks a receiver on this machine about tool calls.
func webhookConfig(t *testing.T, id, url string, opts ...hooks.Option) webhook.Config {
	t.Helper()
	secret, err := webhook.ParseSecret(policySecret)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.Config{
		ID: id, URL: url, Gates: []hooks.Gate{hooks.GateBeforeToolCall}, Secrets: []webhook.Secret{secret},
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Options: opts,
	}
}

func webhookAt(t *testing.T, id, url string, opts ...hooks.Option) hooks.Hooks {
	t.Helper()
	w, err := webhook.New(webhookConfig(t, id, url, opts...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w.Hooks()
}

// receive is a receiver that answers questions with what decide makes of their
// input, and their id.
func receive[In any](t *testing.T, decide func(In) any) (url string) {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID    string `json:"id"`
			Input In     `json:"input"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Errorf("the question: %v", err)
		}
		answer, _ := json.Marshal(decide(q.Input))
		said := map[string]any{}
		_ = json.Unmarshal(answer, &said) // it was a map
		said["id"] = q.ID
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(said)
	})
}

func serving(t *testing.T, h http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = discardLog // handlers that panic are a part of tests
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// counting is a tool that writes down with what it ran.
type counting struct {
	mu  sync.Mutex
	ran []string
}

func (c *counting) tool(name string) loop.Tool {
	return looptest.Tool{Name: name, Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ran = append(c.ran, string(in.Arguments))
		return loop.ToolOutput{Content: name + " ran"}, nil
	}}
}

func (c *counting) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.ran...)
}

// policed is an agent that calls tools under policies, over the stack's database.
type policed struct {
	*looptest.Bench
	t   *testing.T
	job loop.Job
	mu  sync.Mutex
	// asked are the requests of the model.
	asked []loop.ModelRequest
	counting
}

// newPoliced is one whose model makes the calls of its first answer, each as name
// and arguments, and then says Done.
func (s *stack) newPoliced(t *testing.T, h hooks.Hooks, calls ...[2]string) *policed {
	t.Helper()
	first := []any{}
	names := map[string]bool{}
	for _, c := range calls {
		first = append(first, looptest.ToolCall("p-"+c[0], c[0], c[1]))
		names[c[0]] = true
	}
	plays := looptest.Answers(
		looptest.Answer(append(first, looptest.Finish(stream.FinishToolCalls))...),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop)))
	return s.policing(t, h, plays, names)
}

func (s *stack) policing(t *testing.T, h hooks.Hooks, plays looptest.Model, tools map[string]bool) *policed {
	t.Helper()
	p := &policed{t: t}
	var list []loop.Tool
	for name := range tools {
		list = append(list, p.tool(name))
	}
	p.Bench = looptest.NewBench(s.store, looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		p.mu.Lock()
		p.asked = append(p.asked, req)
		p.mu.Unlock()
		if err := looptest.CheckRequest(req); err != nil {
			t.Errorf("request of turn %d: %v", req.Turn, err)
		}
		plays(ctx, req, yield)
	}), list...)
	p.Use(h)
	if err := s.store.PutHookSet(t.Context(), h.Set()); err != nil {
		t.Fatal(err)
	}
	return p
}

// requests are those of the model so far.
func (p *policed) requests() []loop.ModelRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]loop.ModelRequest{}, p.asked...)
}

// goes takes a new run as far as it goes.
func (p *policed) goes() loop.Run {
	p.t.Helper()
	p.job = p.Start(p.t, p.Session(p.t), "go")
	return p.Advance(p.t, p.job)
}

// toldAt are the results of calls that the model was sent with its nth request.
func (p *policed) toldAt(n int) []hooks.ToolResult {
	p.t.Helper()
	all := p.requests()
	if len(all) <= n {
		p.t.Fatalf("%d requests", len(all))
	}
	var list []hooks.ToolResult
	for _, m := range all[n].Messages {
		for _, part := range m.Parts {
			if part.ToolResult != nil {
				list = append(list, *part.ToolResult)
			}
		}
	}
	return list
}

// rowsAt are the rows of a session at a gate as lines.
func rowsAt(t *testing.T, db *storetest.DB, session, columns string) []string {
	t.Helper()
	text := scalar[string](t, db, `SELECT coalesce(string_agg(concat_ws(' ', `+columns+`), E'\n' ORDER BY ledger_seq), '')
		FROM agentd.decisions LEFT JOIN agentd.hook_payloads USING (decision_id) WHERE session_id = $1`, session)
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
