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
}

// Only has the hook asked about what is in s, and about nothing else. Where it
// is not asked it has no decision, and no place in the chain either.
func Only(s Scope) Option { return func(r *Registration) { r.Only = &s } }

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
		(!about.call || oneMatches(s.Tools, about.tool))
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
