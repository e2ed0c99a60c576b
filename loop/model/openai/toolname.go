package openai

import "github.com/seed-2ca4966b/agentd/loop/model/wire"

// ToolNames are the names of tools that a provider takes.
type ToolNames = wire.ToolNames
