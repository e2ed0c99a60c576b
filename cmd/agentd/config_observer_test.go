package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// unmoved is an observer that says nothing.
type unmoved struct{}

func (unmoved) OnChunk(stream.Chunk) stream.Verdict { return stream.Continue() }
func (unmoved) OnEnd(stream.Summary)                {}

func unmovedAs(id string) stream.Registration {
	return stream.Registration{ID: id, New: func(stream.Call) stream.Observer { return unmoved{} }}
}

const oneDialect = "observers:\n  - normalize_tool_dialect: {tools: look}\n"

func TestObserversOfAFileAreListedWithTheirPolicies(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{
		"agentd.yaml": `
observers:
  - normalize_tool_dialect:
  - normalize_tool_dialect: {tools: [a, "b*"]}
    id: some-tools
    calls: "*"
    agents: demo
    tenants: [x, y]
    on_stop: retry
    on_failure: stop
  - halt_on_pattern:
    on_stop: fallback
  - halt_on_pattern: {patterns: x+y, lanes: [reasoning, tool_arguments], window: 16384, reason: No x.}
    id: no-x
  - metrics: {channel: numbers}
    calls: compaction
`,
		"both.yaml": "hooks: [{deny_tools: {tools: x}}]\n" + oneDialect,
	})
	code, out, said := runAgentd(t, options{dir: dir}, "hooks", "list")
	const want = `
no hook is registered: nothing is asked at any gate (docs/config.md shows how to add one)

# OBSERVER CALLS ON STOP ON FAILURE REDACTS ONLY DEFINED
1 normalize-tool-dialect@1 main end_turn detach no - agentd.yaml:3
2 some-tools@1 * retry stop no agents=demo tenants=x,y agentd.yaml:4
3 halt-on-pattern@1 main fallback detach no - agentd.yaml:11
4 no-x@1 main end_turn detach no - agentd.yaml:13
5 metrics@1 compaction end_turn detach no - agentd.yaml:15
`
	if got := "\n" + spaced(out); code != 0 || said != "" || got != want {
		t.Errorf("exit code %d, said %q, printed%s", code, said, got)
	}
	code, out, said = runAgentd(t, options{dir: dir}, "hooks", "list", "--config", "both.yaml")
	if code != 0 || said != "" || !strings.Contains(spaced(out), "BeforeToolCall 1 validate deny-tools") || !strings.Contains(spaced(out), "\n\n# OBSERVER ") {
		t.Errorf("exit code %d, said %q, printed\n%s", code, said, out)
	}
	code, out, said = runAgentd(t, options{dir: dir}, "hooks", "list", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || said != "" || len(lines) != 10 {
		t.Fatalf("exit code %d, said %q, printed\n%s", code, said, out)
	}
	for i, want := range map[int]string{
		0: `"position":1,"gate":"OnChunk","id":"normalize-tool-dialect"`, 1: `"position":2,"gate":"OnChunk","id":"some-tools"`, 4: `"position":5,"gate":"OnChunk","id":"metrics"`,
		5: `"position":1,"gate":"OnEnd"`, 9: `"position":5,"gate":"OnEnd","id":"metrics"`,
	} {
		if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], `"kind":"observer"`) || !strings.Contains(lines[i], `"defined":"agentd.yaml:`) {
			t.Errorf("line %d: %s", i, lines[i])
		}
	}
	if !strings.Contains(lines[1], `\"class\":\"*\",\"on_stop\":\"retry\"`) || !strings.Contains(lines[1], `\"tools\":[\"a\",\"b*\"]`) {
		t.Errorf("what is stored: %s", lines[1])
	}
	if !strings.Contains(lines[3], `\"patterns\":[\"x+y\"],\"lanes\":[\"reasoning\",\"tool_arguments\"],\"window\":16384,\"reason\":\"No x.\"`) || !strings.Contains(lines[4], `\"channel\":\"numbers\"`) {
		t.Errorf("what is stored: %s\n%s", lines[3], lines[4])
	}
}

// spaced is a table with single spaces.
func spaced(table string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}

func TestWhatIsWrongWithObserversIsToldWithItsPlaces(t *testing.T) {
	t.Parallel()
	const text = `observers:
  - normalize_dialect: {}
  - normalize_tool_dialect: {tool: a}
  - normalize_tool_dialect: {tools: [a, "a["]}
  - normalize_tool_dialect: []
  - {normalize_tool_dialect: {}, hold: 3}
  - {id: x}
  - normalize_tool_dialect
  - normalize_tool_dialect: {}
    calls: all
    on_stop: maybe
    on_failure: open
    agents: []
    tenants: "a["
  - normalize_tool_dialect:
    id: [x]
`
	const want = `agentd.yaml:2:5: an observer has no key "normalize_dialect"; expected one of …
agentd.yaml:2:5: the observer has no kind; expected one of …
agentd.yaml:3:30: normalize_tool_dialect has no key "tool"; expected one of …
agentd.yaml:4:41: tools[1]: "a[" is no glob, such as memory_*
agentd.yaml:5:29: expected normalize_tool_dialect as a mapping, not a list
agentd.yaml:6:34: an observer has no key "hold"; expected one of …
agentd.yaml:7:5: the observer has no kind; expected one of …
agentd.yaml:8:5: expected an observer as a mapping, not "normalize_tool_dialect"
agentd.yaml:10:12: calls is "all"; expected one of …
agentd.yaml:11:14: on_stop is "maybe"; expected one of …
agentd.yaml:12:17: on_failure is "open"; expected one of …
agentd.yaml:13:13: agents has 0 globs; expected 1 to 100
agentd.yaml:14:14: tenants: "a[" is no glob, such as memory_*
agentd.yaml:16:9: expected id as a text, not a list
`
	dir := configFiles(t, map[string]string{"agentd.yaml": text})
	for _, args := range [][]string{{"hooks", "list"}, {"hooks", "test"}, {"serve"}} {
		code, out, said := runAgentd(t, options{dir: dir}, args...)
		if got := withoutLists(said); code != exitUsage || out != "" || got != "agentd: "+want {
			t.Errorf("%v: exit code %d, printed %q, said\n%s", args, code, out, said)
		}
	}
}

func TestObserversThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 501 {
		fmt.Fprintf(&many, "\n  - {normalize_tool_dialect: , id: n%d}", i)
	}
	for text, want := range map[string]string{
		"observers: {normalize_tool_dialect: {}}":                                        "c.yaml:1:12: expected observers as a list, not a mapping",
		"observers:" + many.String():                                                     "there are more than 500 observers",
		"observers: [{normalize_tool_dialect: {}, id: A}]":                               `c.yaml:1:46: the id "A" of the observer must have 1 to 64 lower-case`,
		"observers: [{normalize_tool_dialect: {}, id: -a}]":                              `c.yaml:1:46: the id "-a" of the observer must have`,
		"observers: [{normalize_tool_dialect: {}, id: " + strings.Repeat("a", 65) + "}]": `must have 1 to 64`,
		"observers: [{normalize_tool_dialect: {}}, {normalize_tool_dialect: {}}]":        `c.yaml:1:43: the id "normalize-tool-dialect" of the observer is also that of another observer`,
		"observers: [{normalize_tool_dialect: {}, id: a, id: b}]":                        "stands twice",
		"observers: [{normalize_tool_dialect: {}, calls: *}]":                            "c.yaml:1:50: not YAML that is read here",
		"observers: [{normalize_tool_dialect: &x {}}]":                                   "anchors and aliases",
		"observers: [{normalize_tool_dialect: !!map {}}]":                                "tags such as",
		"observers: [{normalize_tool_dialect: {tools: [a]}, calls: [main]}]":             "calls is a list",
		"observers: ~":   "expected observers as a list, not nothing",
		"observers: [~]": "expected an observer as a mapping, not nothing",
		"observers: [{normalize_tool_dialect: {tools: {}}}]":                                "expected tools as a text, not a mapping",
		"observers: [{normalize_tool_dialect: {tools: " + strings.Repeat("x", 2000) + "}}]": "tools[0]: must be a glob of 1 to 1024 bytes",
		"observers: [{halt_on_pattern: {patterns: [a, \"b(\"]}}]":                           "c.yaml:1:46: patterns[1]: ",
		"observers: [{halt_on_pattern: {patterns: \"\"}}]":                                  "c.yaml:1:42: expected patterns; it is empty",
		"observers: [{halt_on_pattern: {lanes: [text, speech]}}]":                           "c.yaml:1:46: lanes[1]: \"speech\" is none of text, reasoning and tool_arguments",
		"observers: [{halt_on_pattern: {window: 0}}]":                                       "c.yaml:1:40: window is 0; expected a number from 1",
		"observers: [{halt_on_pattern: {window: 16385}}]":                                   "c.yaml:1:40: window: must be 1 to 16384 bytes",
		"observers: [{halt_on_pattern: {patterns: '((a{100}){100}){100}'}}]":                "c.yaml:1:42: patterns[0]: ",
		"observers: [{redact: {patterns: secrets}, on_failure: detach}]":                    "c.yaml:1:55: redact takes secrets out, so the answer is stopped when it fails; expected stop",
		"observers: [{redact: }]":                                                           "c.yaml:1:22: patterns: names nothing to look for",
		"observers: [{redact: {matching: 'a*'}}]":                                           "c.yaml:1:33: matching[0]: ",
		"observers: [{redact: {patterns: email, hold_bytes: 0}}]":                           "c.yaml:1:52: hold_bytes is 0",
		"observers: [{metrics: {channel: Numbers}}]":                                        "c.yaml:1:33: channel: must have 1 to 64",
		"observers: [{metrics: {}, halt_on_pattern: {}}]":                                   "the observer is ",
	} {
		path := filepath.Join(configFiles(t, map[string]string{"c.yaml": text}), "c.yaml")
		c, err := hookConfig{path: path}.read()
		if err == nil || !strings.Contains(err.Error(), want) || c.observers != nil || len(c.observed) > 0 {
			t.Errorf("%.80s: %v\nwant %s", text, err, want)
		}
	}
	_, err := hookConfig{observers: []stream.Registration{unmovedAs("a"), unmovedAs("a")}}.read()
	if err == nil || err.Error() != `extraObservers: the id "a" of the observer is also that of another observer` {
		t.Errorf("of the program's own: %v", err)
	}
}

// TestWhatIsTakenOutIsNamedTheSameEverywhere: one config is good for messages and
// outputs of tools, and for answers.
func TestWhatIsTakenOutIsNamedTheSameEverywhere(t *testing.T) {
	t.Parallel()
	const secret = "k-0123456789"
	for _, name := range append(pattern.Names(), pattern.Sets()...) {
		both := "redact: {patterns: [" + name + "], matching: ['k-[0-9]+'], with: '#'}"
		path := filepath.Join(configFiles(t, map[string]string{"c.yaml": "hooks: [{" + both + "}]\nobservers: [{" + both + "}]\n"}), "c.yaml")
		c, err := hookConfig{path: path}.read()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, c.hooks.BeforeInput, hooks.Position{}, hooks.BeforeInput{Text: "the " + secret + "."}, nil)
		if err != nil || v.Value.Text != "the #." {
			t.Errorf("%s: a message becomes %q, %v", name, v.Value.Text, err)
		}
		a := c.observers.Begin(stream.Call{Class: stream.ClassMain})
		out := a.Push(stream.Chunk{Lane: stream.LaneText, BlockID: "0", Text: "the " + secret + ". "})
		if out.Stop != nil || !strings.HasPrefix(out.Chunks[0].Text, "the #.") {
			t.Errorf("%s: an answer becomes %+v", name, out)
		}
	}
	for _, list := range []string{"hooks", "observers"} {
		path := filepath.Join(configFiles(t, map[string]string{"c.yaml": list + ": [{redact: {patterns: [emial]}}]\n"}), "c.yaml")
		if _, err := (hookConfig{path: path}).read(); err == nil || !strings.Contains(err.Error(), `patterns[0]: "emial" is none of `) {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestAnObserverInTheWrongPlaceIsListedWithAWarning(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{
		"agentd.yaml": "observers:\n  - metrics:\n  - redact: {patterns: secrets}\n    on_stop: fail\n  - normalize_tool_dialect:\n",
		"good.yaml":   "observers:\n  - normalize_tool_dialect:\n  - redact: {patterns: secrets}\n  - metrics:\n",
	})
	code, out, said := runAgentd(t, options{dir: dir}, "hooks", "list")
	const want = `warning: agentd.yaml:2: the observer metrics stands before redact (agentd.yaml:3) and tells of what that takes out: put it behind
warning: agentd.yaml:5: the observer normalize-tool-dialect stands behind redact (agentd.yaml:3), which does not see the calls that it makes of a text: put it before
`
	if code != 0 || said != want || !strings.Contains(spaced(out), "\n2 redact@1 main fail stop yes - agentd.yaml:3\n") {
		t.Errorf("exit code %d, said\n%s\nprinted\n%s", code, said, out)
	}
	if code, _, said := runAgentd(t, options{dir: dir}, "hooks", "list", "--config", "good.yaml"); code != 0 || said != "" {
		t.Errorf("in order: exit code %d, said %s", code, said)
	}
}

func TestObserversOfTheProgramStandBehindThoseOfTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(configFiles(t, map[string]string{"c.yaml": oneDialect}), "c.yaml")
	c, err := hookConfig{path: path, observers: []stream.Registration{unmovedAs("mine")}}.read()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range c.set().Hooks {
		got = append(got, string(h.Gate)+" "+h.ID)
	}
	if want := "OnChunk normalize-tool-dialect, OnChunk mine, OnEnd normalize-tool-dialect, OnEnd mine"; strings.Join(got, ", ") != want {
		t.Errorf("the set has %q", got)
	}
	if list := c.listedObservers(); list[1].Defined != "extraObservers" || list[0].Defined != path+":2" {
		t.Errorf("listed: %+v", list)
	}
	one, err := hookConfig{path: path}.read()
	if err != nil || one.set().Digest == c.set().Digest || one.set().Digest == (hooks.Hooks{}).Set().Digest {
		t.Errorf("an observer more or less has the digest %s, %v", one.set().Digest, err)
	}
}

func TestObserversThatStandInTheWrongPlaceAreToldOf(t *testing.T) {
	t.Parallel()
	entry := func(id string, order redactOrder, redacting bool) observerEntry {
		r := unmovedAs(id)
		r.Redacting = redacting
		return observerEntry{Registration: r, place: "f:" + id, order: order}
	}
	calls, redact, counts, other := entry("calls", beforeRedact, false), entry("redact", anywhere, true), entry("counts", behindRedact, false), entry("other", anywhere, false)
	if all := misplaced([]observerEntry{calls, other, redact, other, counts}); all != nil {
		t.Errorf("in order: %q", all)
	}
	if all := misplaced([]observerEntry{counts, other, calls}); all != nil {
		t.Errorf("with nothing to take out: %q", all)
	}
	all := misplaced([]observerEntry{counts, redact, calls})
	if len(all) != 2 || !strings.HasPrefix(all[0], "f:counts: the observer counts stands before redact (f:redact)") || !strings.HasPrefix(all[1], "f:calls: the observer calls stands behind redact (f:redact)") {
		t.Errorf("in the wrong order: %q", all)
	}
}

func TestObserversAreLoadedWithTheHooksOfTheirSet(t *testing.T) {
	t.Parallel()
	r := newReloading(t)
	call := stream.Call{Class: stream.ClassMain, Attempt: 1, Agent: "demo"}
	if now := r.into.Now(); now.Observers.Begin(call) != nil {
		t.Error("somebody observes before a file says so")
	}
	first := r.into.Now().Asker.HookSet
	r.write("agentd.yaml", twoFiles+oneDialect)
	r.looks(2)
	second := r.into.Now()
	if second.Observers.Begin(call) == nil || second.Asker.HookSet == first || r.sets.digests[1] != second.Asker.HookSet {
		t.Errorf("loaded with %s, stored %v", second.Asker.HookSet, r.sets.digests)
	}
	if set := r.sets.loads[1].Set; len(set.Hooks) != 3 || set.Hooks[1].Kind != hooks.KindObserver || set.Digest != second.Asker.HookSet {
		t.Errorf("stored: %+v", set)
	}
	if n := r.said("observers=1"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
	// A change that only an observer has is one, at a signal as well; a bad one
	// changes nothing.
	r.write("agentd.yaml", twoFiles+oneDialect+"    on_stop: fail\n")
	r.loadNow(t.Context())
	third := r.into.Now()
	if third.Asker.HookSet == second.Asker.HookSet || third.Observers == second.Observers || r.sets.loads[2].Cause != "signal" || r.sets.loads[2].Previous != second.Asker.HookSet {
		t.Errorf("changed: %+v", r.sets.loads)
	}
	r.write("agentd.yaml", twoFiles+oneDialect+"    on_stop: never\n")
	r.looks(2)
	if now := r.into.Now(); now.Observers != third.Observers || now.Asker != third.Asker || r.said("on_stop is") != 1 {
		t.Error("a bad change is loaded")
	}
	r.write("agentd.yaml", twoFiles)
	r.looks(2)
	if now := r.into.Now(); now.Observers.Begin(call) != nil || now.Asker.HookSet != first {
		t.Errorf("without them again: %s", now.Asker.HookSet)
	}
	// That it stands in an odd place is told with each load.
	odd := unmovedAs("secrets")
	odd.Redacting = true
	r.write("agentd.yaml", oneDialect)
	r.config.observers = nil
	c, err := r.config.read()
	if err == nil {
		c.observed = append([]observerEntry{{Registration: odd, place: "here"}}, c.observed...)
		err = r.load(context.WithoutCancel(t.Context()), c, "signal")
	}
	if err != nil || r.said("may not be meant") != 1 {
		t.Errorf("%v; the log does not have it", err)
	}
}
