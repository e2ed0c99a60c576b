package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

const (
	partPlugins = "plugins"
	oneCall     = "one call"
	runLatency  = "latency"
	callsMade   = "calls"
	vsNoPlugin  = "÷ without plugins"
	vsGo        = "÷ Go function"

	pluginsNone = "none"
	pluginsGo   = "a Go function at every gate"
	pluginsAll  = "asked at every gate"
	pluginsNot  = "subscribed to nothing"
	pluginsElse = "asked about others"
)

// measurePlugins measures what plugins cost: a call, a run, and those who have
// nothing to do with them.
func (b *bench) measurePlugins(ctx context.Context) error {
	if err := b.measureCalls(ctx); err != nil {
		return err
	}
	if err := b.measureUnasked(ctx); err != nil {
		return err
	}
	if err := b.measurePlugged(ctx); err != nil {
		return err
	}
	return b.measureBroken(ctx)
}

// measureCalls measures one question at each gate, alone and as a gate's hook.
func (b *bench) measureCalls(ctx context.Context) (err error) {
	p, err := plugIn(ctx, b.dir, pluginAll)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	for _, g := range gateCases {
		if err := b.addCalls(ctx, g, p); err != nil {
			return fmt.Errorf("%s: %w", g.gate, err)
		}
	}
	return nil
}

// addCalls asks in turns: over the socket alone, and through the whole chain.
func (b *bench) addCalls(ctx context.Context, g gateCase, p *plugged) error {
	process, err := p.plugin().Process()
	if err != nil {
		return err
	}
	client, asker := pluginv1.NewPluginServiceClient(process.Conn()), &hooks.Asker{HookSet: p.hooks.Set().Digest}
	ask := func() error { return g.ask(ctx, asker, p.hooks) }
	call := func() error {
		a, err := client.Evaluate(ctx, g.question())
		if err == nil && a.GetVerdict().GetAction() != pluginv1.Action_ACTION_CONTINUE {
			err = fmt.Errorf("the plugin does not let it pass: %v", a)
		}
		return err
	}
	var calls, asks []time.Duration
	for from := time.Now(); len(calls) < 2 || time.Since(from) < b.time/4; {
		for _, one := range []struct {
			do    func() error
			times *[]time.Duration
		}{{call, &calls}, {ask, &asks}} {
			began := time.Now()
			if err := one.do(); err != nil {
				return err
			}
			*one.times = append(*one.times, time.Since(began))
		}
	}
	// The first of a gate are not like the others.
	b.addTimes(partPlugins, string(g.gate), oneCall, calls[1:], 50, 99)
	b.addTimes(partPlugins, string(g.gate), asking, asks[1:], 50, 99)
	n, err := mallocs(b.asks, ask)
	if err == nil {
		b.add(partPlugins, string(g.gate), allocs, "", n)
	}
	return err
}

// mallocs is how many allocations one of n takes. What the process does beside it
// only adds to that, so the least of some attempts is taken.
func mallocs(n int, do func() error) (least float64, err error) {
	for i := range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			if err := do(); err != nil {
				return 0, err
			}
		}
		runtime.ReadMemStats(&after)
		if each := float64(after.Mallocs-before.Mallocs) / float64(n); i == 0 || each < least {
			least = each
		}
	}
	return least, nil
}

// measureUnasked measures what asking costs where a plugin is loaded and not asked.
func (b *bench) measureUnasked(ctx context.Context) error {
	for _, one := range []struct{ id, item string }{{pluginNothing, pluginsNot}, {pluginOthers, pluginsElse}} {
		if err := b.addUnasked(ctx, one.id, one.item); err != nil {
			return fmt.Errorf("%s: %w", one.item, err)
		}
	}
	return nil
}

func (b *bench) addUnasked(ctx context.Context, id, item string) (err error) {
	p, err := plugIn(ctx, b.dir, id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	most, asker := 0.0, &hooks.Asker{}
	for _, g := range gateCases {
		without, err := mallocs(b.asks, func() error { return g.ask(ctx, asker, hooks.Hooks{}) })
		if err != nil {
			return err
		}
		with, err := mallocs(b.asks, func() error { return g.ask(ctx, asker, p.hooks) })
		if err != nil {
			return err
		}
		most = max(most, with-without)
	}
	b.add(partPlugins, item, addedAllocs, "", most)
	b.add(partPlugins, item, callsMade, "", float64(p.plugin().Asked()))
	return nil
}

// pluginRuns is a kind of hooks under which runs are compared.
type pluginRuns struct {
	item string
	// id is the plugin, "" for none.
	id string
	// asked says that the plugin is to be asked.
	asked bool
	// hooks are there where there is no plugin.
	hooks hooks.Hooks
}

// measurePlugged compares reference runs, each kind twice and in an order that is
// the same backwards: what drifts falls on all.
func (b *bench) measurePlugged(ctx context.Context) error {
	defer func(s sizes) { b.sizes = s }(b.sizes)
	b.time, b.warm = b.time/2, b.warm/2
	var everywhere []hooks.Gate
	for _, g := range gateCases {
		everywhere = append(everywhere, g.gate)
	}
	none, all := pluginRuns{item: pluginsNone}, pluginRuns{item: pluginsAll, id: pluginAll, asked: true}
	functions := pluginRuns{item: pluginsGo, hooks: plainHooks(everywhere, func() {})}
	nothing, others := pluginRuns{item: pluginsNot, id: pluginNothing}, pluginRuns{item: pluginsElse, id: pluginOthers}
	if err := b.comparePlugged(ctx, b.gatesAt, none, nothing, others, functions, all); err != nil {
		return err
	}
	return b.comparePlugged(ctx, 1, none, functions, all)
}

// comparePlugged has the first for what the others are compared with.
func (b *bench) comparePlugged(ctx context.Context, c int, kinds ...pluginRuns) error {
	rates, times := make([]float64, len(kinds)), make([][]time.Duration, len(kinds))
	for turn := range 2 * len(kinds) {
		i := min(turn, 2*len(kinds)-1-turn)
		done, err := b.playPlugged(ctx, c, kinds[i])
		if err != nil {
			return fmt.Errorf("%s: %w", kinds[i].item, err)
		}
		rates[i], times[i] = rates[i]+done.rate/2, append(times[i], done.times...)
	}
	name := func(i int) string { return kinds[i].item + " " + at(c) }
	for i, k := range kinds {
		b.add(partPlugins, name(i), rate, perSecond, rates[i])
		b.addTimes(partPlugins, name(i), runLatency, times[i], 50, 99)
		if i == 0 {
			continue
		}
		b.addRatio(partPlugins, name(i), vsNoPlugin, rates[i], rates[0])
		if k.item == pluginsAll { // behind the functions
			b.addRatio(partPlugins, name(i), vsGo, rates[i], rates[i-1])
		}
	}
	return nil
}

func (b *bench) playPlugged(ctx context.Context, c int, k pluginRuns) (_ load, err error) {
	h := k.hooks
	var p *plugged
	if k.id != "" {
		if p, err = plugIn(ctx, b.dir, k.id); err != nil {
			return load{}, err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
		h = p.hooks
	}
	_, url, ids, err := b.seeded(ctx, b.pg, c)
	if err != nil {
		return load{}, err
	}
	done, err := playRuns(ctx, stackConfig{url: url, model: instantModel{}, hooks: h}, ids, c, b.warm, b.time)
	if err == nil && p != nil && (p.plugin().Asked() > 0) != k.asked {
		err = fmt.Errorf("the plugin was asked %d times in %d runs", p.plugin().Asked(), done.total)
	}
	return done, err
}
