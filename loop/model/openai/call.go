package openai

import (
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// call is one model call for one consumer.
type call struct {
	wire.Call
	model *Model
	acc   accumulator
}

var _ wire.Answer = (*call)(nil)

// Usage implements [wire.Answer].
func (c *call) Usage() stream.Usage { return c.acc.usage }
