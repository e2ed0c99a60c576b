package main

import (
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
)

// maxFallbacks is how many models an agent may fall back to.
const maxFallbacks = 10

// fallbackFlags name who answers where an observer has stopped an answer and
// wants another model.
type fallbackFlags struct {
	FallbackModels []string `env:"AGENTD_FALLBACK_MODELS" placeholder:"NAME" help:"Models of the same provider that answer, one after the other, where an observer with on_stop fallback has stopped an answer. What a million tokens of one cost, if it is not --input-price and --output-price, stands behind it: NAME=INPUT/OUTPUT, such as small=0.15/0.60."`
}

// fallBack has the agent, which is complete but for that, fall back to the models.
func (f fallbackFlags) fallBack(a *loop.Agent) error {
	names := present(f.FallbackModels)
	if len(names) > maxFallbacks {
		return badFlag("--fallback-models", "names %d models: give at most %d", len(names), maxFallbacks)
	}
	for _, one := range names {
		next := loop.Fallback{Model: a.Model, ModelName: one, Prices: a.Prices}
		if i := strings.LastIndexByte(one, '='); i >= 0 {
			input, output, ok := strings.Cut(one[i+1:], "/")
			var in, out amount
			if !ok || in.UnmarshalText([]byte(input)) != nil || out.UnmarshalText([]byte(output)) != nil {
				return badFlag("--fallback-models", "%q does not end with what a million tokens cost, such as small=0.15/0.60", one)
			}
			next.ModelName, next.Prices = strings.TrimSpace(one[:i]), loop.Prices{Input: int64(in), Output: int64(out)}
		}
		if next.ModelName == "" {
			return badFlag("--fallback-models", "%q names no model", one)
		}
		a.Fallbacks = append(a.Fallbacks, next)
	}
	return nil
}
