package anthropic

import (
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// call is one model call for one consumer.
type call struct {
	wire.Call
	model  *Model
	answer answer
}

var _ wire.Answer = (*call)(nil)

// Usage implements [wire.Answer].
func (c *call) Usage() stream.Usage { return c.answer.usage }
