package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// ledgerCmd is about what hooks decided.
type ledgerCmd struct {
	Show   ledgerShowCmd   `cmd:"" help:"List the decisions of a run or of a session, a line each."`
	Verify ledgerVerifyCmd `cmd:"" help:"Compute the hashes of the ledger again, and say what is wrong with it."`
	Export ledgerExportCmd `cmd:"" help:"Write the ledger as lines of JSON that can be verified without agentd."`
	Erase  ledgerEraseCmd  `cmd:"" help:"Erase what hooks said in a session. The decisions stay, and so does the proof."`
	Purge  ledgerPurgeCmd  `cmd:"" help:"Delete a session for ever, the log and the ledger included. A tombstone stays."`
}

type ledgerShowCmd struct {
	clientFlags `set:"patience=5s"`

	ID   string `arg:"" name:"id" help:"A run, or a session: its id, or a name of yours."`
	Text bool   `help:"Print the texts of the hooks and what they changed, too."`
}

// Run prints the decisions in the order of the ledger.
func (cmd ledgerShowCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	list, err := decisionsOf(ctx, c, cmd.ID)
	if err != nil {
		return err
	}
	if err := printDecisions(streams.out, list.list); err != nil || !cmd.Text {
		return err
	}
	return printTexts(streams.out, list)
}

// decided are decisions, and the hooks that made them.
type decided struct {
	list  []*agentdv1.Decision
	hooks hooksByName
}

// hooksByName are hooks as decisions name them; a server of an older version
// knows none.
type hooksByName map[hookKey]*agentdv1.Hook

type hookKey struct{ set, gate, id, version, digest string }

// of is the hook that made a decision, nil if it is not known.
func (h hooksByName) of(d *agentdv1.Decision) *agentdv1.Hook {
	return h[hookKey{d.GetHookSetDigest(), d.GetGate(), d.GetHookId(), d.GetHookVersion(), d.GetHookDigest()}]
}

// decisionsOf takes what a person has at hand: the id of a run or a session.
func decisionsOf(ctx context.Context, c *client.Client, name string) (decided, error) {
	if looksOurs(name) {
		run, err := c.GetRun(ctx, name)
		switch {
		case err == nil:
			return decisionsOfRun(ctx, c, run)
		case client.ReasonOf(err) != "not_found":
			return decided{}, err
		}
	}
	id, err := findSession(ctx, c, name, false)
	if err != nil {
		return decided{}, err
	}
	return decisions(ctx, c, id)
}

// decisionsOfRun are those of the run and those about its message.
func decisionsOfRun(ctx context.Context, c *client.Client, run *agentdv1.Run) (decided, error) {
	all, err := decisions(ctx, c, run.GetSessionId())
	if err != nil {
		return decided{}, err
	}
	events, err := eventsOfRun(ctx, c, run)
	if err != nil {
		return decided{}, err
	}
	all.list = aboutRun(all.list, run, events)
	return all, nil
}

// aboutRun leaves the decisions of a run, and those about its message, which were
// made before there was one: they were stored with an event of the run.
func aboutRun(all []*agentdv1.Decision, run *agentdv1.Run, events []*agentdv1.Event) []*agentdv1.Decision {
	stored := map[uint64]bool{}
	for _, e := range events {
		stored[e.GetSeq()] = true
	}
	return slices.DeleteFunc(all, func(d *agentdv1.Decision) bool {
		return d.GetRunId() != run.GetId() && (d.GetRunId() != "" || !stored[d.GetEventSeq()])
	})
}

// decisions are all of a session.
func decisions(ctx context.Context, c *client.Client, sessionID string) (decided, error) {
	all := decided{hooks: hooksByName{}}
	req := &agentdv1.ListDecisionsRequest{Of: &agentdv1.ListDecisionsRequest_SessionId{SessionId: sessionID}, PageSize: 500, WithHooks: true}
	for page, err := range c.DecisionPages(ctx, req) {
		if err != nil {
			return decided{}, err
		}
		all.list = append(all.list, page.GetDecisions()...)
		for _, h := range page.GetHooks() {
			key := hookKey{h.GetHookSetDigest(), h.GetGate(), h.GetId(), h.GetVersion(), h.GetDigest()}
			if all.hooks[key] == nil { // the same hook may be on several pages
				all.hooks[key] = h
			}
		}
	}
	return all, nil
}

func printDecisions(out io.Writer, list []*agentdv1.Decision) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tEVENT\tTURN\tGATE\tTOOL\tHOOK\tANSWER\tREASON\tTOOK")
	for _, d := range list {
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", d.GetLedgerSeq(), d.GetEventSeq(), d.GetTurn(), d.GetGate(),
			orElse(oneLine(d.GetToolName(), 40), "-"), hookName(d), answerOf(d), orElse(oneLine(reasonOfDecision(d), 60), "-"), latency(d))
	}
	return t.Flush()
}

// printTexts prints what the rows of the table were decided by, and what they
// changed.
func printTexts(out io.Writer, all decided) error {
	var b strings.Builder
	told := map[*agentdv1.Hook]bool{}
	for _, d := range all.list {
		if h := all.hooks.of(d); h.GetText() != "" && !told[h] {
			told[h] = true
			fmt.Fprintf(&b, "%s at %s: %s\n", hookName(d), d.GetGate(), textLine(h))
		}
	}
	for _, d := range all.list {
		if d.GetPatchJson() != "" {
			fmt.Fprintf(&b, "row %d %s: %s\n", d.GetLedgerSeq(), changeWord(d), oneLine(d.GetPatchJson(), 400))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(out, "\n"+b.String())
	return err
}

// hookName is the hook with its version.
func hookName(d *agentdv1.Decision) string {
	name := oneLine(d.GetHookId(), 80)
	if v := d.GetHookVersion(); v != "" {
		name += "@" + oneLine(v, 40)
	}
	return name
}

// answerOf is the action, and what makes it less than it seems.
func answerOf(d *agentdv1.Decision) string {
	answer := d.GetAction()
	if len(d.GetFieldsChanged()) > 0 {
		answer += " " + oneLine(strings.Join(d.GetFieldsChanged(), ","), 60)
	}
	switch {
	case d.GetFailedOpen():
		answer += " (failed open: " + d.GetOutcome() + ")"
	case d.GetOutcome() != "ok":
		answer += " (failed: " + d.GetOutcome() + ")"
	}
	switch {
	case isShadow(d):
		answer = "would " + answer + " (shadow)"
	case !d.GetEffective():
		answer += " (without effect)"
	}
	return answer
}

// reasonOfDecision is the code, the rule and the words.
func reasonOfDecision(d *agentdv1.Decision) string {
	var parts []string
	if d.GetReasonCode() != "" {
		parts = append(parts, d.GetReasonCode())
	}
	if d.GetRuleId() != "" {
		parts = append(parts, "rule "+d.GetRuleId())
	}
	switch {
	case d.GetReason() != "":
		parts = append(parts, d.GetReason())
	case d.GetPayloadErased():
		parts = append(parts, "(erased)")
	}
	return strings.Join(parts, ": ")
}

func latency(d *agentdv1.Decision) string {
	return (time.Duration(d.GetLatencyUs()) * time.Microsecond).String()
}
