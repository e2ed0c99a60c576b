package main

import (
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
)

// limitFlags say when a run has gone on for too long, and when a failed model
// call is made again.
type limitFlags struct {
	MaxTurns         int           `default:"50" env:"AGENTD_MAX_TURNS" placeholder:"N" help:"End a run after so many turns; 0 is no limit."`
	MaxRepeatedCalls int           `default:"10" env:"AGENTD_MAX_REPEATED_CALLS" placeholder:"N" help:"End a run whose model asks for the same tool with the same arguments in so many turns in a row; 0 is no limit."`
	MaxRunTime       time.Duration `default:"0s" env:"AGENTD_MAX_RUN_TIME" placeholder:"DURATION" help:"End a run that workers have held for so long; waiting for people does not count. 0 is no limit."`
	ModelAttempts    int           `default:"4" env:"AGENTD_MODEL_ATTEMPTS" placeholder:"N" help:"How many model calls of a turn may fail before the run does, if they fail before they show anything."`
	ModelMaxWait     time.Duration `default:"1m" env:"AGENTD_MODEL_MAX_WAIT" placeholder:"DURATION" help:"The longest wait before a failed model call is made again, whatever the provider asks for."`
	Unattended       bool          `env:"AGENTD_UNATTENDED" help:"There is nobody to ask: block tool calls that need a person's yes."`
}

// limits returns what the flags do to an agent.
func (f limitFlags) limits() (func(*loop.Agent), error) {
	switch {
	case f.MaxTurns < 0:
		return nil, badFlag("--max-turns", "%d is negative: give 0 for no limit, or a positive number", f.MaxTurns)
	case f.MaxRepeatedCalls < 0 || f.MaxRepeatedCalls == 1:
		return nil, badFlag("--max-repeated-calls", "%d would end every run: give 0 for no limit, or at least 2", f.MaxRepeatedCalls)
	case f.MaxRunTime < 0:
		return nil, badFlag("--max-run-time", "%s is negative: give 0 for no limit, or a time such as 10m", f.MaxRunTime)
	case f.ModelAttempts < 1:
		return nil, badFlag("--model-attempts", "%d is no number of attempts: give 1 or more", f.ModelAttempts)
	case f.ModelMaxWait <= 0:
		return nil, badFlag("--model-max-wait", "%s is no time to wait: give one such as 1m", f.ModelMaxWait)
	}
	return func(a *loop.Agent) {
		a.Limits = loop.Limits{Turns: f.MaxTurns, RepeatedCalls: f.MaxRepeatedCalls, RunTime: f.MaxRunTime}
		a.Retry = loop.Retry{Attempts: f.ModelAttempts, MaxWait: f.ModelMaxWait}
		a.Unattended = f.Unattended
	}, nil
}
