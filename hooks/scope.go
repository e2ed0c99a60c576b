package hooks

// Scope is what a hook is about. It is data and no code, so that the stored
// hook set tells what a hook was never asked about. The zero value, and an
// empty list, leave nothing out.
//
// Each list holds globs, of which [MatchName] has to match one. A glob that is not well-formed matches everything: a guard must not
// go unasked for a typing error.
type Scope struct {
	Tenants []string `json:"tenants,omitempty"`
	Agents  []string `json:"agents,omitempty"`
	// Tools are those of the call that the gate is about. At a gate that is
	// about no call they leave nothing out.
	Tools []string `json:"tools,omitempty"`
	// And has to cover what is asked about, too; nil leaves nothing out.
	And *Scope `json:"and,omitempty"`
}

// Only has the hook asked about what is in s, and about nothing else. Where it
// is not asked it has no decision, and no place in the chain either.
func Only(s Scope) Option { return func(r *Registration) { r.Only = &s } }

// AlsoOnly narrows what the hook is about: s has to cover it, beside what [Only] has
// said before. A list of s that the scope before does not have becomes its own, and
// the others are its And; what And s has itself is not looked at.
func AlsoOnly(s Scope) Option {
	return func(r *Registration) {
		var only, more Scope
		if r.Only != nil {
			only = *r.Only
		}
		only.Tenants, more.Tenants = joined(only.Tenants, s.Tenants)
		only.Agents, more.Agents = joined(only.Agents, s.Agents)
		only.Tools, more.Tools = joined(only.Tools, s.Tools)
		if len(more.Tenants)+len(more.Agents)+len(more.Tools) > 0 {
			more.And, only.And = only.And, &more
		}
		r.Only = &only
	}
}

// joined is a list of a scope, and what has to be looked at beside it.
func joined(own, more []string) (list, beside []string) {
	if len(own) == 0 {
		return more, nil
	}
	return own, more
}

// Binds reports whether the hook is asked about a call of that tool in run, and
// what it answers counts. Of a run only tenant and agent are looked at.
func (r Registration) Binds(run RunRef, tool string) bool {
	return !r.Shadow && r.Only.covers(subjectOf(run).calling(tool))
}

// Covers reports whether s is about runs of that agent of that tenant; its tools
// are not looked at. Nil is about everything.
func (s *Scope) Covers(tenant, agent string) bool {
	return s.covers(subject{tenant: tenant, agent: agent})
}

// subject is what a scope looks at.
type subject struct {
	tenant, agent string
	// tool is that of the call, and call false at a gate that is about none.
	tool string
	call bool
}

func subjectOf(r RunRef) subject { return subject{tenant: r.TenantID, agent: r.Agent} }

func (s subject) calling(tool string) subject {
	s.tool, s.call = tool, true
	return s
}

// covers reports whether s is about what is asked about. Nil is about
// everything.
func (s *Scope) covers(about subject) bool {
	if s == nil {
		return true
	}
	return oneMatches(s.Tenants, about.tenant) && oneMatches(s.Agents, about.agent) &&
		(!about.call || oneMatches(s.Tools, about.tool)) && s.And.covers(about)
}

func oneMatches(globs []string, name string) bool {
	if len(globs) == 0 {
		return true
	}
	for _, g := range globs {
		if hit, err := MatchName(g, name); hit || err != nil {
			return true
		}
	}
	return false
}
