package observe

import (
	"fmt"
	"slices"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// Report says that a plugin is left out for the rest of a request. The next one
// asks it again.
type Report struct {
	Plugin string
	Hook   Hook
	Reason Reason
}

// Registry is the plugins of a process, in the order in which they are asked. It
// comes from [NewRegistry] and is safe for concurrent use. A nil one has none.
type Registry struct {
	report func(Report)

	mu      sync.Mutex
	plugins []*plugin
	sealed  bool
}

// NewRegistry returns a registry without plugins. It tells report, unless that is
// nil, of each plugin that is left out of a request, in the goroutine of the
// request: it is called from several at once, and a request waits for it.
func NewRegistry(report func(Report)) *Registry {
	return &Registry{report: report}
}

// Register adds a plugin behind those that are there. The error says what is wrong
// with the id, or with the plugin, and is one of this package's.
func (r *Registry) Register(id string, v any) error {
	if !hooks.ValidName(id) {
		return fmt.Errorf("register lifecycle plugin %.70q: %w", id, ErrID)
	}
	p, err := newPlugin(id, v)
	if err != nil {
		return fmt.Errorf("register lifecycle plugin %q: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.sealed:
		return fmt.Errorf("register lifecycle plugin %q: %w", id, ErrSealed)
	case slices.ContainsFunc(r.plugins, func(q *plugin) bool { return q.id == id }):
		return fmt.Errorf("register lifecycle plugin %q: %w", id, ErrDuplicate)
	}
	r.plugins = append(r.plugins, p)
	return nil
}

// Seal ends registration and returns how many plugins there are. Whoever leaves
// the registry out where there are none calls it first: what came later would never
// be asked, and nobody would know.
func (r *Registry) Seal() int { return len(r.seal()) }

func (r *Registry) seal() []*plugin {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
	return r.plugins
}

// Hung is how many goroutines there are that wait for a plugin which was given up.
func (r *Registry) Hung() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int64
	for _, p := range r.plugins {
		n += p.hung.Load()
	}
	return n
}

// tell reports. A request does not break because nobody could be told.
func (r *Registry) tell(reports []Report) {
	if r.report == nil {
		return
	}
	for _, report := range reports {
		func() {
			defer func() { _ = recover() }()
			r.report(report)
		}()
	}
}
