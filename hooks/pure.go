package hooks

// Pure declares a hook that does nothing but answer: what it says depends on
// what it is handed alone, it has no effect outside of itself, waits for
// nothing and nobody, and cannot take the process down. Rules, checks and
// redaction are such; whatever opens a file, a connection or a transaction,
// counts, or asks anybody is not.
//
// The loop asks about facts that are not durable yet only where all hooks of
// the gate that are asked are pure. Then the facts, the decisions and what follows
// from them are one append, where other hooks cost one more. All else is the same:
// limits, copies, the ledger, and that nothing is done before the decisions
// about it are durable.
//
// The price is paid by a process that dies, or loses the run, in between: what
// the hook was asked about never happened, and the ledger does not know that it
// was asked. A model call is made again, and hooks are asked about the new
// answer under new ids of calls; a tool that had returned is of unknown
// outcome. Nobody notices of a hook that keeps the promise. One that breaks it
// may have acted on a call that no log has, and one that takes its time leaves
// facts in memory for as long.
//
// A hook made of others, by [Named], is as pure as it is declared, whatever is
// inside it.
func Pure() Option { return func(r *Registration) { r.Pure = true } }

// IsPure reports whether every hook behind f was declared [Pure]. A nil f has
// none, so it is. It calls no hook.
func IsPure[In Input[In, Out], Out Result](f Func[In, Out]) bool {
	for _, h := range chainOf(f) {
		if !h.Pure {
			return false
		}
	}
	return true
}

// IsPureAbout is [IsPure] without the hooks that are about something else, which are
// not asked: see [Only]. At a gate that is about calls, tools are those of the calls;
// none are any.
func IsPureAbout[In Input[In, Out], Out Result](f Func[In, Out], run RunRef, tools ...string) bool {
	for _, h := range chainOf(f) {
		if !h.Pure && h.Only.coversOne(subjectOf(run), tools) {
			return false
		}
	}
	return true
}

func (s *Scope) coversOne(about subject, tools []string) bool {
	for _, tool := range tools {
		if s.covers(about.calling(tool)) {
			return true
		}
	}
	return len(tools) == 0 && s.covers(about)
}
