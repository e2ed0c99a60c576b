package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// testRules are the stream rules of a plugin that is this binary; nil are none.
func testRules(does string) []plugin.StreamRule {
	halts := func(id, onStop string) plugin.StreamRule {
		return plugin.StreamRule{ID: id, Halt: &plugin.Halt{Pattern: "stop-" + id, Reason: "Nobody says " + id + ".", OnStop: onStop}}
	}
	switch does {
	case "rules":
		return []plugin.StreamRule{
			{ID: "tickets", Redact: &plugin.Redact{Patterns: []string{`\bACME-[0-9]{6}\b`}, Sets: []string{"email"}, Replacement: "[ticket]"}},
			{ID: "thoughts", Lanes: []string{"reasoning"}, Redact: &plugin.Redact{Patterns: []string{"order"}}},
			{ID: "mine", Agents: []string{"de*"}, Tenants: []string{looptest.Tenant}, Redact: &plugin.Redact{Patterns: []string{`\[n\]`}, Replacement: "[number]"}},
			{ID: "of-others", Agents: []string{"other-*"}, Redact: &plugin.Redact{Patterns: []string{"ticket"}}},
			{ID: "elsewhere", Tenants: []string{"other-*"}, Halt: &plugin.Halt{Pattern: "order"}},
		}
	case "halts":
		return []plugin.StreamRule{halts("plain", ""), halts("failing", "fail"), halts("again", "retry"), halts("next", "fallback")}
	case "broken":
		return []plugin.StreamRule{{ID: "odd", Redact: &plugin.Redact{Sets: []string{"nonsense"}}}}
	}
	return nil
}

const secretTicket = "ACME-123456"

var saysTicket = openaitest.Script{
	Reasoning: "An order, a ticket. ", Text: []string{"Your order: ticket AC", "ME-12", "3456", " of a@exam", "ple.org, forty-two."},
}.Answer()

// TestRulesOfAPluginActOnAnswers: what they took out is nowhere, wherever it was split;
// they stand behind the observers of the config, hold for whom they are about, and the
// ledger says whose they are.
func TestRulesOfAPluginActOnAnswers(t *testing.T) {
	t.Parallel()
	model := openaitest.New(t, saysTicket, openaitest.Text("So it is."))
	p := newPlugged(t, "observers:\n  - redact: {matching: [forty-two], with: '[n]'}\n", func(d pluginDirs) { d.put(t, "rules", "7", "rules") }, providedBy(t, model, openai.Config{}))
	id := p.Session(t)
	live := p.listen(t, id, "", fromStart)
	first := p.Start(t, id, "what is it?")
	if run := p.Advance(t, first); run.Status != loop.RunCompleted {
		t.Fatalf("the run is %s, %s", run.Status, run.Error)
	}
	const want, thought = "Your order: ticket [ticket] of [ticket], [number].", "An [redacted], a ticket. "
	log := stored(t, p.db, id)
	seen := live.facts(t, len(log))
	sameStory(t, "live", seen, log)
	if got := textShown(t, seen); got != want {
		t.Errorf("live: %q, want %q", got, want)
	}
	if got := p.shown(t, id); got != want {
		t.Errorf("replay: %q, want %q", got, want)
	}
	thoughts := ""
	for _, d := range decoded[event.AssistantDelta](t, seen) {
		if d.Lane == stream.LaneReasoning {
			thoughts += d.Text
		}
	}
	if thoughts != thought {
		t.Errorf("reasoning: %q, want %q", thoughts, thought)
	}
	history, err := collect(p.dial(t).Messages(t.Context(), &agentdv1.ListMessagesRequest{SessionId: id}))
	if err != nil || assistantText(history) != want {
		t.Errorf("history: %q, %v, want %q", assistantText(history), err, want)
	}
	p.Advance(t, p.Start(t, id, "and then?"))
	next := string(model.Requests()[1].Body)
	if !strings.Contains(next, want) {
		t.Errorf("the next request is %s", next)
	}
	for where, text := range map[string]string{"log": factsText(log), "next request": next, "log of the process": p.logged.String()} {
		if strings.Contains(text, secretTicket) || strings.Contains(text, "example.org") || strings.Contains(text, "forty-two") {
			t.Errorf("what was taken out is in the %s", where)
		}
	}

	about := p.only(t)
	const own = "hook_kind = 'observer' AND hook_id LIKE 'rules:%'"
	for query, want := range map[string]string{
		`SELECT string_agg(concat_ws(' ', gate, hook_id, hook_version, action, fields_changed), ', ' ORDER BY ledger_seq) FROM agentd.decisions WHERE run_id = '` + first.RunID + `'`: "OnEnd redact 1 transform {text}, " +
			"OnEnd rules:tickets 7 transform {text}, OnEnd rules:thoughts 7 transform {reasoning}, OnEnd rules:mine 7 transform {text}",
		`SELECT string_agg(DISTINCT hook_version || ' ' || hook_digest, ', ') FROM agentd.hook_decisions WHERE ` + own: "7 " + about.Digest,
		`SELECT string_agg(DISTINCT hook_version || ' ' || hook_digest, ', ') FROM agentd.hooks WHERE ` + own:          "7 " + about.Digest,
		`SELECT count(*) || ' ' || count(DISTINCT gate) FROM agentd.hooks WHERE ` + own:                                "10 2",
		`SELECT string_agg(DISTINCT hook_set, ', ') FROM agentd.runs`:                                                  p.into.Now().Asker.HookSet,
	} {
		if got := scalar[string](t, p.db, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	p.explained(t, first.RunID, "rules:tickets@7: transform")
	if want := []string{"rules:tickets", "rules:thoughts", "rules:mine", "rules:of-others", "rules:elsewhere"}; !slices.Equal(about.Rules, want) || len(about.Gates) != 0 {
		t.Errorf("it says of the plugin %+v", about)
	}
	var printed strings.Builder
	if err := p.plugins.report().print(&printed); err != nil || !strings.Contains(printed.String(), "rules:tickets,rules:thoughts,") {
		t.Errorf("printed %s, %v", &printed, err)
	}
}

// TestARuleThatHaltsHasFollowWhatItSays: the answer ends before the pattern, and the
// run goes on as the rule wants.
func TestARuleThatHaltsHasFollowWhatItSays(t *testing.T) {
	t.Parallel()
	model := openaitest.New(t)
	p := newPlugged(t, "", func(d pluginDirs) { d.put(t, "rules", "1", "halts") }, providedBy(t, model, openai.Config{}))
	agent := p.Engine.Agents["demo"]
	agent.Fallbacks = []loop.Fallback{{Model: agent.Model, ModelName: "second"}}
	p.Engine.Agents["demo"] = agent
	for _, c := range []struct {
		rule   string
		status loop.RunStatus
		shown  string
		stop   string
		notice bool
	}{
		{"plain", loop.RunCompleted, "Well, ", "rules:plain end_turn run.completed", false},
		{"failing", loop.RunFailed, "Well, ", "rules:failing fail run.failed", false},
		{"again", loop.RunCompleted, "Well, Fine.", "rules:again retry turn.started test-model", true},
		{"next", loop.RunCompleted, "Well, Fine.", "rules:next fallback turn.started second", true},
	} {
		before := len(model.Requests())
		model.Answer(openaitest.Text("Well, ", "stop-"+c.rule+", and more"))
		if c.notice {
			model.Answer(openaitest.Text("Fine."))
		}
		j, run := p.says(t)
		if got := p.shown(t, j.SessionID); run.Status != c.status || got != c.shown {
			t.Errorf("%s: the run is %s and shows %q", c.rule, run.Status, got)
		}
		if got := scalar[string](t, p.db, `SELECT concat_ws(' ', observer, policy, followed_by, next_model) FROM agentd.stopped WHERE session_id = $1`, j.SessionID); got != c.stop {
			t.Errorf("%s: stopped: %s, want %s", c.rule, got, c.stop)
		}
		reason := "Nobody says " + c.rule + "."
		row := scalar[string](t, p.db, `SELECT concat_ws(' ', hook_id, hook_version, action, reason_code, hook_digest) FROM agentd.hook_decisions WHERE gate = 'OnChunk' AND session_id = $1`, j.SessionID)
		if want := "rules:" + c.rule + " 1 stop observer.stop " + p.only(t).Digest; row != want {
			t.Errorf("%s: the row is %q, want %q", c.rule, row, want)
		}
		requests := model.Requests()[before:]
		if told := strings.Contains(string(requests[len(requests)-1].Body), reason); told != c.notice || strings.Contains(string(requests[len(requests)-1].Body), "stop-") {
			t.Errorf("%s: the model is told %s", c.rule, requests[len(requests)-1].Body)
		}
		p.explained(t, j.RunID, reason)
	}
}

// TestRulesAreInForceWithTheirGeneration: also while the process is dead and does not
// come back, and when what is loaded again is broken; not any more when it is gone.
func TestRulesAreInForceWithTheirGeneration(t *testing.T) {
	t.Parallel()
	model := openaitest.New(t)
	model.Respond(func(openaitest.Request) openaitest.Answer { return openaitest.Text("It is AC", "ME-123", "456.") })
	gate := filepath.Join(t.TempDir(), "closed")
	p := newPlugged(t, "", func(d pluginDirs) {
		d.put(t, "rules", "1", "rules")
		d.first(t, "rules", "[ -e '"+gate+"' ] && exit 1")
	}, providedBy(t, model, openai.Config{}))
	expect := func(when, want string) {
		t.Helper()
		j, run := p.says(t)
		if got := p.shown(t, j.SessionID); run.Status != loop.RunCompleted || got != want {
			t.Errorf("%s: the run is %s and shows %q, want %q", when, run.Status, got, want)
		}
	}
	expect("while it is up", "It is [ticket].")

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.only(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.await(t, pluginhost.StateDown)
	expect("when it is dead", "It is [ticket].")

	p.dirs.put(t, "rules", "2", "broken")
	err := p.reload.loadPlugins(t.Context())
	for _, want := range []string{"plugin rules: ", `bootstrap: stream rule "odd": sets[0]: "nonsense" is none of personal, secrets, `} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a broken rule: %v, want an error with %q", err, want)
		}
	}
	if v := p.only(t).Version; v != "1" {
		t.Errorf("version %s is in force", v)
	}
	expect("when a broken one was to replace it", "It is [ticket].")

	if err := os.RemoveAll(filepath.Join(p.dirs.plugins, "rules")); err != nil {
		t.Fatal(err)
	}
	if err := p.reload.loadPlugins(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("when there is none", "It is ACME-123456.")
	if got := scalar[string](t, p.db, `SELECT string_agg(hook_id || ' ' || change, ', ' ORDER BY hook_id) FROM agentd.hook_changes WHERE gate = 'OnEnd' AND cause = 'plugin'`); !strings.Contains(got, "rules:tickets removed") {
		t.Errorf("changed: %s", got)
	}
}

// TestNoModelIsAskedWhileTheRulesOfAPluginAreNotKnown: one that never came up closes
// the gates before each call of a model, also in runs that had begun before. Once it is
// up its rules hold.
func TestNoModelIsAskedWhileTheRulesOfAPluginAreNotKnown(t *testing.T) {
	t.Parallel()
	model := openaitest.New(t, openaitest.Calls(openaitest.Call{Name: "send", Arguments: `{}`}))
	gate := filepath.Join(t.TempDir(), "open")
	p := newPlugged(t, "", func(d pluginDirs) {
		d.put(t, "rules", "1", "rules")
		d.first(t, "rules", "[ -e '"+gate+"' ] || exit 1")
	}, providedBy(t, model, openai.Config{}, looptest.Says("send", "sent")))
	p.askingFor("send")

	// Two runs from before there was the plugin: one has not begun, one waits.
	p.Engine.Switch, p.Commands.Switch = nil, nil
	fresh, waiting := p.Start(t, p.Session(t), "go"), p.Start(t, p.Session(t), "go")
	if run := p.Advance(t, waiting); run.Status != loop.RunWaiting {
		t.Fatalf("the run is %s, %s", run.Status, run.Error)
	}
	p.Engine.Switch, p.Commands.Switch = p.into, p.into
	p.answer(t, waiting, `{}`, true)
	waiting.Ticket = 2
	for name, j := range map[string]loop.Job{"fresh": fresh, "waiting": waiting} {
		if run := p.Advance(t, j); run.Status != loop.RunFailed {
			t.Errorf("%s: the run is %s", name, run.Status)
		}
		if got := p.shown(t, j.SessionID); got != "" {
			t.Errorf("%s: it shows %q", name, got)
		}
	}
	if _, err := p.Commands.StartRun(t.Context(), loop.StartRun{TenantID: looptest.Tenant, SessionID: p.Session(t), Text: "go", Actor: looptest.Tester}); err == nil {
		t.Error("a run was started")
	}
	if n := len(model.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.reload.loadPlugins(t.Context()); err != nil {
		t.Fatal(err)
	}
	model.Answer(saysTicket)
	j, _ := p.says(t)
	if got := p.shown(t, j.SessionID); strings.Contains(got, secretTicket) || !strings.Contains(got, "[ticket]") {
		t.Errorf("it shows %q", got)
	}
}

// TestWhatTheConfigSaysOfAPluginHoldsForItsRules: whom it is about, and that nothing
// comes of it.
func TestWhatTheConfigSaysOfAPluginHoldsForItsRules(t *testing.T) {
	t.Parallel()
	model := openaitest.New(t)
	model.Respond(func(openaitest.Request) openaitest.Answer { return openaitest.Text("It is AC", "ME-123", "456, [n].") })
	p := newPlugged(t, "plugins:\n  rules: {agents: nobody-*}\n", func(d pluginDirs) { d.put(t, "rules", "1", "rules") }, providedBy(t, model, openai.Config{}))
	for _, c := range []struct{ says, want string }{
		{"agents: nobody-*", "It is ACME-123456, [n]."},
		{"tenants: " + looptest.Tenant, "It is [ticket], [number]."},
		{"shadow: true", "It is ACME-123456, [n]."},
		{"on_failure: open", "It is [ticket], [number]."},
	} {
		if err := os.WriteFile(p.reload.config.path, []byte("plugins:\n  rules: {"+c.says+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.reload.loadNow(t.Context())
		j, _ := p.says(t)
		if got := p.shown(t, j.SessionID); got != c.want {
			t.Errorf("%s: it shows %q, want %q", c.says, got, c.want)
		}
		if n := len(p.only(t).Rules); (n == 0) != strings.HasPrefix(c.says, "shadow") {
			t.Errorf("%s: %d rules are in force", c.says, n)
		}
	}
}

// TestAFirstPluginThatIsBrokenIsNotLoaded where there was none: nothing changes.
func TestAFirstPluginThatIsBrokenIsNotLoaded(t *testing.T) {
	t.Parallel()
	dirs := newPluginDirs(t)
	p := newPlugins(dirs.flags(), &pluginRuns{}, nil, nil, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := p.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.load(t.Context(), nil, true); err != nil {
		t.Fatal(err)
	}
	dirs.put(t, "rules", "1", "broken")
	if err := p.load(t.Context(), nil, false); err == nil || !strings.Contains(err.Error(), `stream rule "odd"`) {
		t.Errorf("it is loaded: %v", err)
	}
	held := p.hold(nil)
	if set := held.hooks.Set(); len(set.Hooks)+len(held.observers) > 0 || len(p.report().Plugins) > 0 {
		t.Errorf("in force: %+v", set)
	}
	held.release()
	dirs.put(t, "rules", "2", "halts")
	if err := p.load(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	held = p.hold(nil)
	if len(held.observers) != 4 {
		t.Errorf("in force: %+v", held.observers)
	}
	held.release()
}

// TestObserversThatCannotBeAskedTogetherAreNotLoaded, and those before still are.
func TestObserversThatCannotBeAskedTogetherAreNotLoaded(t *testing.T) {
	t.Parallel()
	bad := heldPlugins{observers: []stream.Registration{{ID: "rules:a", Plugin: "rules"}}}
	_, _, _, err := (&configured{}).with(bad)
	if err == nil || !strings.Contains(fmt.Sprint(err), "New") {
		t.Errorf("they are joined: %v", err)
	}
}
