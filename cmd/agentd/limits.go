package main

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/api"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// limitFlags say when a run has gone on for too long, when a failed model call
// is made again, what becomes of a tool call of unknown outcome, and who is asked
// about calls for how long.
type limitFlags struct {
	MaxTurns         int           `default:"50" env:"AGENTD_MAX_TURNS" placeholder:"N" help:"End a run after so many turns; 0 is no limit."`
	MaxRepeatedCalls int           `default:"10" env:"AGENTD_MAX_REPEATED_CALLS" placeholder:"N" help:"End a run whose model asks for the same tool with the same arguments in so many turns in a row; 0 is no limit."`
	MaxRunTime       time.Duration `default:"0s" env:"AGENTD_MAX_RUN_TIME" placeholder:"DURATION" help:"End a run that workers have held for so long; waiting for people does not count. 0 is no limit."`
	MaxToolCalls     int           `default:"0" env:"AGENTD_MAX_TOOL_CALLS" placeholder:"N" help:"End a run whose model asks for more tool calls than that, those not counted that were never started. 0 is no limit."`
	MaxTokens        int64         `default:"0" env:"AGENTD_MAX_TOKENS" placeholder:"N" help:"End a run that has taken so many tokens, input and output, before its next step. 0 is no limit."`
	MaxCost          amount        `default:"0" env:"AGENTD_MAX_COST" placeholder:"AMOUNT" help:"End a run that has cost so much, before its next step; needs the prices. 0 is no limit."`
	InputPrice       amount        `default:"0" env:"AGENTD_INPUT_PRICE" placeholder:"AMOUNT" help:"What a million input tokens cost, such as 2.50, in any unit."`
	OutputPrice      amount        `default:"0" env:"AGENTD_OUTPUT_PRICE" placeholder:"AMOUNT" help:"What a million output tokens cost, in the same unit."`
	OnUnknown        string        `default:"report" enum:"report,ask,fail" env:"AGENTD_ON_UNKNOWN" help:"What becomes of a tool call that was interrupted, may have taken effect and must not run twice: report (tell the model), ask (a person says whether it happened; if not, it runs again) or fail (end the run)."`
	ModelAttempts    int           `default:"4" env:"AGENTD_MODEL_ATTEMPTS" placeholder:"N" help:"How many model calls of a turn may fail before the run does, if they fail before they show anything."`
	ModelMaxWait     time.Duration `default:"1m" env:"AGENTD_MODEL_MAX_WAIT" placeholder:"DURATION" help:"The longest wait before a failed model call is made again, whatever the provider asks for."`
	Unattended       bool          `env:"AGENTD_UNATTENDED" help:"There is nobody to ask: block tool calls that need a person's yes."`
	Approvers        []string      `env:"AGENTD_APPROVERS" placeholder:"GLOB" help:"Who may answer what people are asked about tool calls: whose id such a glob fits, which is default for callers with the API key and local for those without one. Without it everybody who reaches the API may."`
	ApprovalTimeout  time.Duration `default:"0s" env:"AGENTD_APPROVAL_TIMEOUT" placeholder:"DURATION" help:"Refuse a tool call if nobody has said for so long whether it may run. 0 waits for ever."`
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
	case f.MaxToolCalls < 0:
		return nil, badFlag("--max-tool-calls", "%d is negative: give 0 for no limit, or a positive number", f.MaxToolCalls)
	case f.MaxTokens < 0:
		return nil, badFlag("--max-tokens", "%d is negative: give 0 for no limit, or a positive number", f.MaxTokens)
	case f.MaxCost > 0 && f.InputPrice == 0 && f.OutputPrice == 0:
		return nil, badFlag("--max-cost", "needs to know what tokens cost: give --input-price and --output-price")
	case f.OnUnknown == string(loop.UnknownAsk) && f.Unattended:
		return nil, badFlag("--on-unknown", "ask needs somebody to ask, and --unattended says that there is nobody")
	case f.ModelAttempts < 1:
		return nil, badFlag("--model-attempts", "%d is no number of attempts: give 1 or more", f.ModelAttempts)
	case f.ModelMaxWait <= 0:
		return nil, badFlag("--model-max-wait", "%s is no time to wait: give one such as 1m", f.ModelMaxWait)
	}
	approvers, err := f.approvers()
	if err != nil {
		return nil, err
	}
	return func(a *loop.Agent) {
		a.Limits = loop.Limits{
			Turns: f.MaxTurns, RepeatedCalls: f.MaxRepeatedCalls, RunTime: f.MaxRunTime,
			ToolCalls: f.MaxToolCalls, Tokens: f.MaxTokens, CostMicros: int64(f.MaxCost),
		}
		a.Prices = loop.Prices{Input: int64(f.InputPrice), Output: int64(f.OutputPrice)}
		a.OnUnknown = loop.UnknownPolicy(f.OnUnknown)
		a.Retry = loop.Retry{Attempts: f.ModelAttempts, MaxWait: f.ModelMaxWait}
		a.Unattended, a.Approvers, a.ApprovalTimeout = f.Unattended, approvers, f.ApprovalTimeout
	}, nil
}

// approvers are the globs, once it is sure that they and the rest can be meant.
func (f limitFlags) approvers() ([]string, error) {
	globs := present(f.Approvers)
	for _, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil {
			return nil, badFlag("--approvers", "%q is no glob, such as ops-*", glob)
		}
	}
	callers := api.Callers()
	may := func(a event.Actor) bool { return loop.MayDecide(globs, a) }
	switch {
	case f.ApprovalTimeout < 0:
		return nil, badFlag("--approval-timeout", "%s is negative: give 0 to wait for ever, or a time such as 24h", f.ApprovalTimeout)
	case f.ApprovalTimeout > 0 && f.ApprovalTimeout < time.Millisecond:
		return nil, badFlag("--approval-timeout", "%s is no time to answer: give 0 to wait for ever, or a time such as 24h", f.ApprovalTimeout)
	case len(globs) > 0 && f.Unattended:
		return nil, badFlag("--approvers", "names who is asked, and --unattended says that there is nobody")
	case f.ApprovalTimeout > 0 && f.Unattended:
		return nil, badFlag("--approval-timeout", "is for people who are asked, and --unattended says that there is nobody")
	case !slices.ContainsFunc(callers, may):
		return nil, badFlag("--approvers", "%s fits nobody who can call: their ids are %s (with the API key) and %s (without one)",
			strings.Join(globs, ","), callers[1].ID, callers[0].ID)
	}
	return globs, nil
}
