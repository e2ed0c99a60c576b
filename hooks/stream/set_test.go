package stream_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

func TestNewSetNamesWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	with := func(change func(*stream.Registration)) stream.Registration {
		r := saying("good", nil)
		change(&r)
		return r
	}
	id := func(id string) stream.Registration { return saying(id, nil) }
	long := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		regs  []stream.Registration
		index int
		field string
	}{
		"empty id":                {[]stream.Registration{id("")}, 1, "ID"},
		"id of 65":                {[]stream.Registration{id(long + "a")}, 1, "ID"},
		"upper case":              {[]stream.Registration{id("Redact")}, 1, "ID"},
		"leading dot":             {[]stream.Registration{id(".a")}, 1, "ID"},
		"trailing dash":           {[]stream.Registration{id("a-")}, 1, "ID"},
		"new line":                {[]stream.Registration{id("a\n")}, 1, "ID"},
		"rule without its plugin": {[]stream.Registration{id("policy:a")}, 1, "ID"},
		"rule of another plugin":  {[]stream.Registration{with(func(r *stream.Registration) { r.ID, r.Plugin = "other:a", "policy" })}, 1, "ID"},
		"plugin without a rule":   {[]stream.Registration{with(func(r *stream.Registration) { r.ID, r.Plugin = "policy", "policy" })}, 1, "ID"},
		"rule of no valid name":   {[]stream.Registration{with(func(r *stream.Registration) { r.ID, r.Plugin = "policy:a:b", "policy" })}, 1, "ID"},
		"plugin with a colon":     {[]stream.Registration{with(func(r *stream.Registration) { r.ID, r.Plugin = "a:b:c", "a:b" })}, 1, "ID"},
		"agents behind":           {[]stream.Registration{with(func(r *stream.Registration) { r.Only = &hooks.Scope{And: &hooks.Scope{Agents: []string{"a", "[c"}}} })}, 1, "Only.And.Agents[1]"},
		"digest":                  {[]stream.Registration{with(func(r *stream.Registration) { r.Digest = "\x00" })}, 1, "Digest"},
		"twice":                   {[]stream.Registration{id("a"), id("b"), id("a")}, 3, "ID"},
		"no New":                  {[]stream.Registration{{ID: "a"}}, 1, "New"},
		"class":                   {[]stream.Registration{id("a"), with(func(r *stream.Registration) { r.Class = "side" })}, 2, "Class"},
		"on stop":                 {[]stream.Registration{with(func(r *stream.Registration) { r.OnStop = "end" })}, 1, "OnStop"},
		"on failure":              {[]stream.Registration{with(func(r *stream.Registration) { r.OnFailure = "open" })}, 1, "OnFailure"},
		"tenants": {[]stream.Registration{with(func(r *stream.Registration) {
			r.Only = &hooks.Scope{Tenants: []string{"a", "[b"}, Agents: []string{"[c"}}
		})}, 1, "Only.Tenants[1]"},
		"agents": {[]stream.Registration{with(func(r *stream.Registration) {
			r.Only = &hooks.Scope{Tenants: []string{"a"}, Agents: []string{"[c"}}
		})}, 1, "Only.Agents[0]"},
		"version": {[]stream.Registration{with(func(r *stream.Registration) { r.Version = "\xff" })}, 1, "Version"},
		"config":  {[]stream.Registration{with(func(r *stream.Registration) { r.Config = "\x00" })}, 1, "Config"},
	} {
		_, err := stream.NewSet(c.regs...)
		var bad *stream.RegistrationError
		if !errors.As(err, &bad) || bad.Index != c.index || bad.Field != c.field || bad.ID != c.regs[c.index-1].ID || bad.Problem == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := stream.NewSet(id("a"), id(long), id("0.b_c-9")); err != nil {
		t.Error(err)
	}
	_, err := stream.NewSet(id("-"), id("a"), stream.Registration{ID: "b"})
	if err == nil || err.Error() != `observer 1 ("-"): ID: must have 1 to 64 lower-case letters, digits, dots, dashes and underscores, with a letter or a digit at both ends`+
		"\n"+`observer 3 ("b"): New: must be set` {
		t.Errorf("two that are wrong: %v", err)
	}
}

func TestHookSetListsObserversUnderADigestThatTheyChange(t *testing.T) {
	t.Parallel()
	var none *stream.Set
	base := hooks.Hooks{}.Set()
	if base.With(none.Hooks()...).Digest != base.Digest || base.With(set(t).Hooks()...).Digest != base.Digest {
		t.Error("without observers the digest is another")
	}
	r := saying("redact", nil)
	r.Version, r.Config, r.Redacting, r.OnStop = "1", `{"sets": ["keys"]}`, true, stream.StopRetry
	r.Only = &hooks.Scope{Agents: []string{"support"}, Tools: []string{"x"}}
	plain := saying("plain", nil)
	plain.Config, plain.AttemptTime, plain.Class = "as it is", -1, stream.ClassAny
	listed := set(t, r, plain).Hooks()
	want := hooks.Registration{
		Gate: hooks.GateOnChunk, ID: "redact", Version: "1", Kind: hooks.KindObserver, Phase: hooks.PhaseMutate,
		Config:    `{"class":"main","on_stop":"retry","chunk_time":2000000,"hold_bytes":65536,"hold_time":2000000000,"config":{"sets":["keys"]}}`,
		OnFailure: "stop", TimeLimit: 250 * time.Millisecond, ReplyLimit: 4096, Redacting: true,
	}
	got := listed[0]
	if only := got.Only; only == nil || !slices.Equal(only.Agents, []string{"support"}) || only.Tools != nil {
		t.Errorf("scope %+v", only)
	}
	got.Only = nil
	if got != want {
		t.Errorf("listed as\n%+v; want\n%+v", got, want)
	}
	if c := listed[1]; c.OnFailure != "detach" || c.TimeLimit != 0 || !strings.Contains(c.Config, `"class":"*"`) || !strings.HasSuffix(c.Config, `"config":"as it is"}`) {
		t.Errorf("listed as %+v", c)
	}
	var places []string
	for _, r := range listed {
		places = append(places, string(r.Gate)+" "+r.ID)
	}
	if !slices.Equal(places, []string{"OnChunk redact", "OnChunk plain", "OnEnd redact", "OnEnd plain"}) {
		t.Errorf("listed %q", places)
	}
	first := base.With(listed...).Digest
	if again := base.With(set(t, r, plain).Hooks()...).Digest; again != first || first == base.Digest {
		t.Errorf("digests %q and %q", first, again)
	}
	if other := base.With(set(t, plain, r).Hooks()...).Digest; other == first {
		t.Error("another order has the same digest")
	}
}

func TestBeginMakesThoseThatAreForTheCall(t *testing.T) {
	t.Parallel()
	var made []string
	of := func(id string, class stream.Class, only *hooks.Scope) stream.Registration {
		return stream.Registration{ID: id, Class: class, Only: only, New: func(c stream.Call) stream.Observer {
			made = append(made, id+" "+c.Model)
			return observer{}
		}}
	}
	s := set(t, of("main", "", nil), of("all", stream.ClassAny, nil), of("title", stream.ClassTitle, nil),
		of("acme", "", &hooks.Scope{Tenants: []string{"acme*"}, Tools: []string{"none"}}), of("sales", "", &hooks.Scope{Agents: []string{"sales"}}))
	for _, c := range []struct {
		call stream.Call
		want string
	}{
		{stream.Call{Class: stream.ClassMain, Model: "m", TenantID: "acme-eu", Agent: "support"}, "main m,all m,acme m"},
		{stream.Call{Model: "m", TenantID: "other", Agent: "sales"}, "main m,all m,sales m"},
		{stream.Call{Class: stream.ClassTitle, Model: "m", TenantID: "acme", Agent: "sales"}, "all m,title m"},
		{stream.Call{Class: stream.ClassCompaction, Model: "m"}, "all m"},
	} {
		made = nil
		reports := s.Begin(c.call).End(stream.EndFailed)
		if got := strings.Join(made, ","); got != c.want {
			t.Errorf("%+v: made %q; want %q", c.call, got, c.want)
		}
		for i, r := range reports {
			if r.Index != i+1 || r.ChainLength != len(made) {
				t.Errorf("%+v: %d of %d", c.call, r.Index, r.ChainLength)
			}
		}
	}
}

func TestBeginOfNobodyIsNilAndAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts for the whole process
	var none *stream.Set
	if none.WithClock(still) != nil || none.Hooks() != nil {
		t.Error("no set became one")
	}
	scoped := saying("a", nil)
	scoped.Only = &hooks.Scope{Agents: []string{"sales", "x*"}}
	title := saying("b", nil)
	title.Class = stream.ClassTitle
	c := stream.Call{Class: stream.ClassMain, TenantID: "acme", Agent: "support"}
	for name, s := range map[string]*stream.Set{"nil": none, "empty": set(t), "of others": set(t, scoped, title)} {
		if n := testing.AllocsPerRun(100, func() {
			if s.Begin(c) != nil {
				t.Error(name, "observes")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
