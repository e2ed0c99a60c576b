package store

// Wake makes those who watch these sessions in this process look at the log.
// It does not block, and waking somebody for nothing does no harm.
func (l *Leases) Wake(sessionIDs ...string) {
	for _, id := range sessionIDs {
		l.hub.wake(id)
	}
}

func (h *hub) wake(sessionID string) {
	t := h.find(sessionID)
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.watchers {
		tell(w, 0)
	}
}
