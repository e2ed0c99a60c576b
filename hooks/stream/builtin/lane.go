package builtin

import (
	"fmt"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

var allLanes = []stream.Lane{stream.LaneText, stream.LaneReasoning, stream.LaneToolArguments}

// lanesOf are those of a config, the ones that are meant if it names none.
func lanesOf(kind string, given []stream.Lane, meant ...stream.Lane) ([]stream.Lane, error) {
	if len(given) == 0 {
		return meant, nil
	}
	for i, l := range given {
		if !slices.Contains(allLanes, l) {
			return nil, setting.Errorf(kind, fmt.Sprintf("lanes[%d]", i), "%.80q is none of text, reasoning and tool_arguments", l)
		}
	}
	return slices.Clone(given), nil
}

// laneOf is the lane of a chunk; an adapter may leave out that of a call.
func laneOf(c *stream.Chunk) stream.Lane {
	if c.Kind == stream.KindToolCall {
		return stream.LaneToolArguments
	}
	return c.Lane
}
