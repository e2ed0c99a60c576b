package webhook

import (
	"sync"
	"time"
)

// breaker counts the failures of an endpoint in a row. It is closed (asks), open
// (does not) or, when its time is up, lets one question through.
type breaker struct {
	settings Breaker
	now      func() time.Time

	mu       sync.Mutex
	failures int
	opened   time.Time // zero: closed
	probing  bool
}

// pass is one question that was let through.
type pass struct {
	b     *breaker
	probe bool
}

// refuses reports how long nothing is asked yet; 0 is a question that may pass.
func (b *breaker) refuses() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left()
}

// left is how long it stays open. Who waits for the probe of somebody else
// waits for a moment at least.
func (b *breaker) left() time.Duration {
	switch {
	case b.opened.IsZero():
		return 0
	case b.probing:
		return time.Millisecond
	}
	return max(0, b.opened.Add(b.settings.Open).Sub(b.now()))
}

// enter lets a question through, or says how long none is. Every pass ends with
// one call of its settle.
func (b *breaker) enter() (pass, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := b.left(); left > 0 {
		return pass{}, left
	}
	p := pass{b: b, probe: !b.opened.IsZero()}
	b.probing = p.probe
	return p, 0
}

// came is what came of a question.
type came int

const (
	answered came = iota
	failed
	// givenUp says nothing about the endpoint: who asked did not wait.
	givenUp
)

// settle counts. An answer to a question from before the breaker opened does
// not close it: only the probe tells how the endpoint is now.
func (p pass) settle(c came) {
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.probing = false
		switch c {
		case answered:
			b.opened, b.failures = time.Time{}, 0
		case failed:
			b.opened = b.now()
		case givenUp:
		}
		return
	}
	switch {
	case !b.opened.IsZero(), c == givenUp:
	case c == answered:
		b.failures = 0
	default:
		b.failures++
		if b.settings.Failures > 0 && b.failures >= b.settings.Failures {
			b.opened = b.now()
		}
	}
}
