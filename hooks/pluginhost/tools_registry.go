package pluginhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

var toolPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// registry has the tools of the processes that are there. It is safe for concurrent
// use.
type registry struct {
	// reserved are globs of names, compile makes the check of arguments.
	reserved []string
	compile  func(schema json.RawMessage) (validate func(json.RawMessage) error, err error)

	mu sync.Mutex
	// processes are those that are being greeted or are up, by number.
	processes map[int64]*toolset
}

// toolset is what one process has.
type toolset struct {
	plugin string
	// own are from the beginning. There are none before the process was greeted, and
	// it may register others by then.
	own        []definition
	registered []definition
}

// expect takes a process in.
func (r *registry) expect(process int64, plugin string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.processes == nil {
		r.processes = map[int64]*toolset{}
	}
	r.processes[process] = &toolset{plugin: plugin}
}

// add is what a process has from the beginning.
func (r *registry) add(process int64, tools []*pluginv1.ToolSpec) error {
	set := r.of(process)
	if set == nil {
		return errGone
	}
	own, err := r.defineAll(set.plugin, tools)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range own {
		if set.has(d.Name) {
			return fmt.Errorf("tool %q: the plugin has registered it, too", d.local)
		}
	}
	set.own = own
	return nil
}

// defineAll looks at all tools of a plugin.
func (r *registry) defineAll(plugin string, tools []*pluginv1.ToolSpec) ([]definition, error) {
	if len(tools) > maxTools {
		return nil, fmt.Errorf("it has %d tools, of %d that a plugin may have", len(tools), maxTools)
	}
	set := &toolset{}
	for _, t := range tools {
		d, err := r.define(plugin, t)
		if err != nil {
			return nil, err
		}
		if set.has(d.Name) {
			return nil, fmt.Errorf("tool %q: there are two", d.local)
		}
		set.own = append(set.own, d)
	}
	return set.own, nil
}

// of is what a process has, nil if it is not there.
func (r *registry) of(process int64) *toolset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.processes[process]
}

// registered are the tools that a process has registered.
func (r *registry) registered(process int64) []definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	if set := r.processes[process]; set != nil {
		return set.registered[:len(set.registered):len(set.registered)]
	}
	return nil
}

// gone forgets a process.
func (r *registry) gone(process int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.processes, process)
}

var errGone = errors.New("the plugin is about to be ended")

// register adds a tool of a process that is there.
func (r *registry) register(process int64, t *pluginv1.ToolSpec) (name string, err error) {
	set := r.of(process)
	if set == nil {
		return "", errGone
	}
	r.mu.Lock()
	err = set.room(ToolName(set.plugin, t.GetName()), t.GetName())
	r.mu.Unlock()
	if err != nil {
		return "", err // and no schema is compiled
	}
	d, err := r.define(set.plugin, t)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := set.room(d.Name, d.local); err != nil {
		return "", err // there may be more by now
	}
	set.registered = append(set.registered, d)
	return d.Name, nil
}

// room says why one more tool of that name cannot be registered. The caller holds the
// registry's lock.
func (s *toolset) room(name, local string) error {
	switch {
	case s.has(name):
		return fmt.Errorf("tool %q: the plugin has it already", local)
	case len(s.own)+len(s.registered) >= maxTools:
		return fmt.Errorf("a plugin may have %d tools", maxTools)
	}
	return nil
}

// has says whether there is a tool of that name. Of a set that is in the registry the
// caller holds its lock.
func (s *toolset) has(name string) bool {
	same := func(d definition) bool { return d.Name == name }
	return slices.ContainsFunc(s.own, same) || slices.ContainsFunc(s.registered, same)
}
