package stream

// Clean returns what is to be kept of something that the provider said and that is
// no part of its answer; false if nobody can say that. It is for before End.
func (a *Attempt) Clean(text string) (clean string, ok bool) {
	a.work()
	defer a.asked.Store(0)
	return a.clean(text)
}

func (a *Attempt) clean(text string) (string, bool) {
	for i := range a.watchers {
		w := &a.watchers[i]
		if text == "" {
			break
		}
		c, can := w.observer.(Cleaner)
		if !can {
			if w.report.Registration.Redacting {
				return "", false
			}
			continue
		}
		a.at.Store(int32(w.report.Index))
		clean, ok := a.cleaned(w, c, text)
		w.report.Took += a.tick()
		if !ok {
			return "", false
		}
		text = clean
	}
	return text, true
}

// cleaned asks w, and reports false if it panicked too.
func (a *Attempt) cleaned(w *watcher, c Cleaner, text string) (clean string, ok bool) {
	returned := false
	defer func() {
		// As where it is asked about a chunk.
		if !returned && recover() == nil {
			a.abandoned(w)
		}
	}()
	clean, ok = c.Clean(text)
	returned = true
	return clean, ok
}
