package loop

import (
	"maps"
	"slices"
)

// RunStatuses lists the rows of the run table.
func RunStatuses() []RunStatus { return slices.Collect(maps.Keys(runTransitions)) }

// TurnStatuses lists the rows of the turn table.
func TurnStatuses() []TurnStatus { return slices.Collect(maps.Keys(turnTransitions)) }

// CallStatuses lists the rows of the call table.
func CallStatuses() []CallStatus { return slices.Collect(maps.Keys(callTransitions)) }
