package observe

import (
	"log/slog"
	"sync"
	"time"
)

// logEvery is how often the same report is logged: a plugin that is broken fails in
// every request.
const logEvery = time.Minute

// LogReports returns what logs reports, the same one once a minute. It is safe for
// concurrent use.
func LogReports(log *slog.Logger) func(Report) {
	var mu sync.Mutex
	said := map[Report]time.Time{}
	return func(r Report) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if last, ok := said[r]; ok && now.Sub(last) < logEvery {
			return
		}
		said[r] = now
		log.Warn("a lifecycle plugin was left out of a request", "plugin", r.Plugin, "hook", r.Hook, "reason", r.Reason)
	}
}
