package store

import "time"

// TryFor sets, before the first append, for how long the committer tries.
func TryFor(s *Store, d time.Duration) { s.committer.tryFor = d }

// Pending is how many appends wait for a group.
func Pending(s *Store) int {
	s.committer.mu.Lock()
	defer s.committer.mu.Unlock()
	return len(s.committer.pending)
}

// Accepting says whether appends are still accepted.
func Accepting(s *Store) bool {
	s.committer.mu.Lock()
	defer s.committer.mu.Unlock()
	return s.committer.accepting
}

// Aside is how many appends wait for a lock of somebody else.
func Aside(s *Store) int {
	s.committer.mu.Lock()
	defer s.committer.mu.Unlock()
	return len(s.committer.alone)
}

// Failed is what every method of a [Store] makes of an error.
var Failed = failed

// PlanByIndex is what every group sets.
const PlanByIndex = planByIndex

// Troubles are the SQLSTATE codes of the table, each as it begins.
func Troubles() (codes []string) {
	for _, t := range troubles {
		codes = append(codes, t.code)
	}
	return codes
}

// What limits and budgets ask.
const (
	TakeSlotSQL      = takeSlot
	SpentByTenantSQL = spentByTenant
)
