package pluginhost

import (
	"cmp"
	"time"
)

// Limits are how long things may take and how often they may fail. A zero field is
// that of [DefaultLimits].
type Limits struct {
	// Start is how long a process may take until it is ready, at most.
	Start time.Duration
	// HealthEvery is how often a process is asked whether it is there, Health how long
	// it may take to answer, and HealthMisses how many answers in a row may be missing
	// before it is ended.
	HealthEvery  time.Duration
	Health       time.Duration
	HealthMisses int
	// Deaths within Window are one too many: then the plugin is down until the next
	// load. A process that does not start is one.
	Deaths int
	Window time.Duration
	// Backoff is how long is waited before the second start, about; it doubles with
	// each death in the window, up to MaxBackoff.
	Backoff    time.Duration
	MaxBackoff time.Duration
	// Hold is how long runs may keep an old generation.
	Hold time.Duration
	// Drain is how long a plugin may take to finish what it is at, Term how long it
	// then has from SIGTERM until it is killed.
	Drain time.Duration
	Term  time.Duration
	// Kill is how long a keeper may take to end what is left, before it is killed too.
	Kill time.Duration
}

// DefaultLimits are those for services.
func DefaultLimits() Limits {
	return Limits{
		Start:       10 * time.Second,
		HealthEvery: 5 * time.Second, Health: 2 * time.Second, HealthMisses: 3,
		Deaths: 5, Window: 2 * time.Minute,
		Backoff: 100 * time.Millisecond, MaxBackoff: 10 * time.Second,
		Hold: 15 * time.Minute, Drain: 5 * time.Second, Term: 6 * time.Second, Kill: 5 * time.Second,
	}
}

// orDefault fills in what is not said.
func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	return Limits{
		Start:       cmp.Or(l.Start, d.Start),
		HealthEvery: cmp.Or(l.HealthEvery, d.HealthEvery), Health: cmp.Or(l.Health, d.Health), HealthMisses: cmp.Or(l.HealthMisses, d.HealthMisses),
		Deaths: cmp.Or(l.Deaths, d.Deaths), Window: cmp.Or(l.Window, d.Window),
		Backoff: cmp.Or(l.Backoff, d.Backoff), MaxBackoff: cmp.Or(l.MaxBackoff, d.MaxBackoff),
		Hold: cmp.Or(l.Hold, d.Hold), Drain: cmp.Or(l.Drain, d.Drain), Term: cmp.Or(l.Term, d.Term), Kill: cmp.Or(l.Kill, d.Kill),
	}
}
