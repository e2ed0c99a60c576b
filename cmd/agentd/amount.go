package main

import "github.com/seed-2ca4966b/agentd/hooks"

// amount is what flags about money take.
type amount = hooks.Micros
