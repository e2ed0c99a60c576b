package main

import (
	"context"
	"fmt"
)

type runsFailCmd struct {
	clientFlags `set:"patience=5s"`

	Reason string `required:"" placeholder:"TEXT" help:"Why, for people; it is kept in the run."`
	ID     string `arg:"" name:"run" help:"The run's id."`
}

// Run returns when the run has ended.
func (cmd runsFailCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	if err := c.FailRun(ctx, cmd.ID, cmd.Reason); err != nil {
		return err
	}
	_, err = fmt.Fprintln(streams.out, "the run has failed: forced")
	return err
}
