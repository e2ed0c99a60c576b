package loop

// Point names an instruction at which a test may kill the process. In an
// ordinary build a point is nothing at all; a build with the tag "faults"
// arms them by environment.
type Point string

// The points.
const (
	// PointStepCommitted: a step's events are durable, its action has not
	// begun.
	PointStepCommitted Point = "step_committed"
	// PointStepDone: a step's action is over, its outcome may not be durable.
	PointStepDone Point = "step_done"
	// PointModelStreaming: a part of an answer is durable.
	PointModelStreaming Point = "model_streaming"
	// PointToolExecuting: tool.started is durable, the tool is about to be
	// entered.
	PointToolExecuting Point = "tool_executing"
)
