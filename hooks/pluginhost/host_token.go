package pluginhost

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// maxCallbacks is how many calls of the host a plugin may make with one token: none
// of them asks a plugin again, and so this bounds what one call leads to.
const maxCallbacks = 256

// pass is what a token stands for.
type pass struct {
	// process is the one that was given the token, and may show it: see Service.from.
	process int64
	// run is what the plugin is being asked about; RunID is "" where there is no run.
	// It is the zero value of the token of Bootstrap.
	run hooks.RunRef
	// tools are those that are set with the token.
	tools *setTools
	// greeting says that it is the token of Bootstrap.
	greeting bool
	left     int
}

// tokens are those that are good now. The zero value is ready. It is safe for
// concurrent use.
type tokens struct {
	mu     sync.Mutex
	passes map[string]*pass
}

// issue makes a token for the call with that context, which is good until done is
// called.
func (t *tokens) issue(ctx context.Context, process int64, run hooks.RunRef) (token string, done func()) {
	token = t.put(&pass{process: process, run: run, left: maxCallbacks, tools: &setTools{call: ctx}})
	return token, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.passes, token)
	}
}

// greet makes the token of Bootstrap, which is good until the process is gone.
func (t *tokens) greet(process int64) string {
	return t.put(&pass{process: process, greeting: true})
}

func (t *tokens) put(p *pass) string {
	token := rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.passes == nil {
		t.passes = map[string]*pass{}
	}
	t.passes[token] = p
	return token
}

// gone withdraws all tokens of a process.
func (t *tokens) gone(process int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for token, p := range t.passes {
		if p.process == process {
			delete(t.passes, token)
		}
	}
}

// use returns what a token stands for. Good says that there is such a token, left that
// it may be used once more; the token of Bootstrap always may.
func (t *tokens) use(token string) (p pass, good, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.passes[token]
	if !ok {
		return pass{}, false, false
	}
	if found.greeting {
		return *found, true, true
	}
	if found.left == 0 {
		return *found, true, false
	}
	found.left--
	return *found, true, true
}

// good is how many tokens there are.
func (t *tokens) good() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.passes)
}
