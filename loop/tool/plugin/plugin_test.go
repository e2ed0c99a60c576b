package plugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// TestModelsAreToldWhatTheyHaveToKnow of a failure, and nothing that a plugin said.
func TestModelsAreToldWhatTheyHaveToKnow(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[hooks.Outcome]error{
		hooks.OutcomeUnavailable: errAway, hooks.OutcomeCrash: errCrash, hooks.OutcomeTimeout: errTimeout,
		hooks.OutcomeError: errFailed, hooks.OutcomeMalformed: errFailed, hooks.OutcomeOversize: errFailed,
	} {
		err := fmt.Errorf("execute: %w", &hooks.Failure{Outcome: outcome, Err: errors.New("secret")})
		if got := shown(err); !errors.Is(got, want) || strings.Contains(got.Error(), "secret") {
			t.Errorf("%s: %v", outcome, got)
		}
	}
	if got := shown(errors.New("secret")); !errors.Is(got, errFailed) {
		t.Error(got)
	}
}
