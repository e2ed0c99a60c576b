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

	ID string `arg:"" name:"id" help:"A run, or a session: its id, or a name of yours."`
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
	return printDecisions(streams.out, list)
}

// decisionsOf takes what a person has at hand: the id of a run or a session.
func decisionsOf(ctx context.Context, c *client.Client, name string) ([]*agentdv1.Decision, error) {
	if looksOurs(name) {
		run, err := c.GetRun(ctx, name)
		switch {
		case err == nil:
			return decisionsOfRun(ctx, c, run)
		case client.ReasonOf(err) != "not_found":
			return nil, err
		}
	}
	id, err := findSession(ctx, c, name, false)
	if err != nil {
		return nil, err
	}
	return decisions(ctx, c, id)
}

// decisionsOfRun are those of the run and those about its message.
func decisionsOfRun(ctx context.Context, c *client.Client, run *agentdv1.Run) ([]*agentdv1.Decision, error) {
	all, err := decisions(ctx, c, run.GetSessionId())
	if err != nil {
		return nil, err
	}
	events, err := eventsOfRun(ctx, c, run)
	if err != nil {
		return nil, err
	}
	return aboutRun(all, run, events), nil
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
func decisions(ctx context.Context, c *client.Client, sessionID string) ([]*agentdv1.Decision, error) {
	return collect(c.Decisions(ctx, &agentdv1.ListDecisionsRequest{Of: &agentdv1.ListDecisionsRequest_SessionId{SessionId: sessionID}, PageSize: 500}))
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
	if !d.GetEffective() {
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
