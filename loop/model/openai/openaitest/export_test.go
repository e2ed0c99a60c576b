package openaitest

import "time"

// SetPatience limits how long Await waits.
func (p *Provider) SetPatience(d time.Duration) { p.patience = d }
