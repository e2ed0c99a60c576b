package builtin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
)

// Surroundings are what the builtin tools act on.
type Surroundings struct {
	// Now is the clock that get_time reads; nil means time.Now.
	Now func() time.Time
	// Memories keeps what agents remember. Without it the memory tools are
	// not there.
	Memories Memories
}

// Tools returns ping and get_time, and with a store for them memory_read,
// memory_write, memory_search, memory_delete and memory_clear. All are
// idempotent. get_time needs the time
// zone database: a binary that may run without one imports time/tzdata.
// An error is a broken argument type in this package.
func Tools(s Surroundings) ([]loop.Tool, error) {
	if s.Now == nil {
		s.Now = time.Now
	}
	makers := []func(Surroundings) (loop.Tool, error){ping, getTime}
	if s.Memories != nil {
		makers = append(makers, memoryRead, memoryWrite, memorySearch, memoryDelete, memoryClear)
	}
	tools := make([]loop.Tool, len(makers))
	var errs error
	for i, maker := range makers {
		t, err := maker(s)
		tools[i], errs = t, errors.Join(errs, err)
	}
	return tools, errs
}

// define makes a tool of this package.
func define[In any](
	name, description string, run func(context.Context, loop.ToolInput, In) (loop.ToolOutput, error),
) (loop.Tool, error) {
	return Define(loop.ToolSpec{Name: name, Description: description, Idempotent: true}, run)
}

type pingArguments struct {
	Message string `json:"message,omitempty" jsonschema:"a text that comes back"`
}

func ping(Surroundings) (loop.Tool, error) {
	return define("ping",
		"Answers pong, followed by the message if there is one. Use it to check that tools work.",
		func(_ context.Context, _ loop.ToolInput, args pingArguments) (loop.ToolOutput, error) {
			if args.Message == "" {
				return loop.ToolOutput{Content: "pong"}, nil
			}
			return loop.ToolOutput{Content: "pong: " + args.Message}, nil
		})
}

type timeArguments struct {
	Zone string `json:"zone,omitempty" jsonschema:"an IANA time zone such as Europe/Oslo; UTC if it is left out"`
}

func getTime(s Surroundings) (loop.Tool, error) {
	return define("get_time",
		"Tells the current date and time in a time zone.",
		func(_ context.Context, _ loop.ToolInput, args timeArguments) (loop.ToolOutput, error) {
			zone, err := loadZone(args.Zone)
			if err != nil {
				return loop.ToolOutput{}, err
			}
			return loop.ToolOutput{Content: s.Now().In(zone).Format("Monday, 2006-01-02 15:04:05 MST (-07:00)")}, nil
		})
}

func loadZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	// Local is the machine's zone, which is nobody's answer.
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("time zone %q is unknown: use an IANA name such as Europe/Oslo", name)
	}
	return zone, nil
}
