package store

import "time"

// ListenQuiet sets, before Start, after how long a silence the listener looks
// whether its connection is still there.
func ListenQuiet(s *Store, d time.Duration) { s.delivery.listener.quiet = d }
