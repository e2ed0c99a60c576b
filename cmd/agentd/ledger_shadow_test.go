package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestRowsOfShadowsAreProofToo: all three that verify a ledger take them, beside
// rows that were there before, and find one that is passed off as another's.
func TestRowsOfShadowsAreProofToo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := decidingStack(t, db)
	id := decidedSession(t, s)
	before := scalar[int](t, db, `SELECT count(*) FROM agentd.hook_decisions`)
	s.checked(t, s.Engine.Hooks.Then(hooks.Hooks{
		BeforeInput: hooks.Named("tried", "1", func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			louder := "LOUDER"
			return hooks.BeforeInputResult{Action: hooks.ActionTransform, Text: &louder}, nil
		}, hooks.Shadow()),
	}))
	s.Advance(t, s.Start(t, id, "again"))
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.hook_decisions WHERE failure_policy = 'shadow'`); before == 0 || n != 1 {
		t.Fatalf("%d rows, then %d of shadows", before, n)
	}
	python := findPython(t)
	check := func(wrong bool) {
		t.Helper()
		code, out, _ := ledgerCommand(t, db, "verify", "--all")
		if (code != 0) != wrong || wrong && !strings.Contains(out, "row_hash") {
			t.Errorf("agentd ledger verify: %d, %s", code, out)
		}
		if n := scalar[int](t, db, `SELECT count(*) FROM agentd.verify_ledgers()`); (n > 0) != wrong {
			t.Errorf("verify_ledgers: %d", n)
		}
		if python == "" {
			return
		}
		found := verifiedByPython(t, python, exported(t, db, id))
		if (len(found) > 0) != wrong || wrong && !slices.ContainsFunc(places(found), func(p string) bool { return strings.HasPrefix(p, "row_hash@") }) {
			t.Errorf("the script: %v", found)
		}
	}
	check(false)
	execute(t, db, `SET LOCAL session_replication_role = replica; UPDATE agentd.hook_decisions SET failure_policy = 'closed' WHERE failure_policy = 'shadow'`)
	check(true)
}
