package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// spenderVariable gives an agentd the hook that knows the key.
const spenderVariable = "AGENTD_TEST_SPENDER"

func init() {
	if os.Getenv(spenderVariable) != "" {
		extraHooks = extraHooks.Then(spender())
	}
}

// TestTheKeyOfAServerIsNowhere: in nothing that the process says up to its last
// word, a dump of all stacks, and in no table of its database.
func TestTheKeyOfAServerIsNowhere(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startServe(t, db, []string{
		"OPENAI_BASE_URL=" + repeating(t).URL, "OPENAI_API_KEY=" + providerKey, "OPENAI_MODEL=tiny",
		"AGENTD_LOG_LEVEL=debug", "GOTRACEBACK=all", spenderVariable + "=1",
	})
	said := []string{spendNot, spendCustom, spendReserved, spendHostile, spendLong, spendPanic, spendError, spendTimeout, "hi"}
	c := chat(t, s.url, strings.NewReader(strings.Join(said, "\n")+"\n"))
	if code := c.wait(t); code != 1 || c.out.String() != "Hello.\n" {
		t.Errorf("exit code %d, printed %q, said %q", code, c.out.String(), c.err.String())
	}
	holdsNothing(t, "the chat", c.out.String()+c.err.String(), "The check spender gave no usable answer (panic)")
	session := awaitRow(t, db, `SELECT id::text FROM agentd.sessions`)
	for _, run := range lines(t, db, `SELECT id::text FROM agentd.runs ORDER BY created_seq`) {
		holdsNothing(t, "the API", apiTells(t, s.url, session, run), run)
	}
	s.signal(t, syscall.SIGQUIT)
	s.wait(t)
	holdsNothing(t, "the log", s.out.String()+s.err.String(), "level=DEBUG", "model call failed", "SIGQUIT: quit", "goroutine ")
	holdsNothing(t, "the tables", everyTable(t, db), "agentd.hook_decisions: ", "/headers/X-Gateway", "river_job: ", `"text":"`+spendCustom)
}
