package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop"
)

// approvalsCmd are the tool calls that wait for a person.
type approvalsCmd struct {
	List        approvalsListCmd `cmd:"" default:"withargs" help:"List the calls that wait for an answer, the oldest first."`
	Show        approvalsShowCmd `cmd:"" help:"Show a call with its exact arguments."`
	Approve     approveCmd       `cmd:"" help:"Let a call run."`
	Edit        editCmd          `cmd:"" help:"Let a call run with other arguments, once the hooks have let them through."`
	Deny        denyCmd          `cmd:"" help:"Do not let a call run; the model is told."`
	Happened    happenedCmd      `cmd:"" help:"Say that a call of unknown outcome has taken effect; it is not run again."`
	NotHappened notHappenedCmd   `cmd:"" help:"Say that a call of unknown outcome has not taken effect; it is run again."`
}

type approvalsListCmd struct {
	clientFlags `set:"patience=5s"`

	Session string `placeholder:"ID" help:"Only calls of this session: its id, or a name of yours."`
}

// Run prints what is open.
func (cmd approvalsListCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	request := &agentdv1.ListApprovalsRequest{}
	if cmd.Session != "" {
		if request.SessionId, err = findSession(ctx, c, cmd.Session, false); err != nil {
			return err
		}
	}
	open, err := openApprovals(ctx, c, request)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(streams.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "APPROVAL\tTOOL\tARGUMENTS\tQUESTION\tASKED BY\tSINCE\tRUN")
	for _, a := range open {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.GetId(), oneLine(a.GetToolName(), 40), oneLine(a.GetArguments(), 60),
			question(a), a.GetRequestedBy(), moment(a.GetRequestedAt()), a.GetRunId())
	}
	return t.Flush()
}

type approvalsShowCmd struct {
	clientFlags `set:"patience=5s"`

	ID string `arg:"" name:"approval" help:"The approval's id."`
}

// Run prints one approval.
func (cmd approvalsShowCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	a, err := c.GetApproval(ctx, cmd.ID)
	if err != nil {
		return err
	}
	return printApproval(streams.out, a)
}

func printApproval(out io.Writer, a *agentdv1.Approval) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, field := range [][2]string{
		{"approval", a.GetId()},
		{"status", approvalWord(a.GetStatus())},
		{"question", question(a)},
		{"tool", a.GetToolName()},
		{"asked for by", a.GetRequestedBy()},
		{"reason", a.GetReason()},
		{"session", a.GetSessionId()},
		{"run", a.GetRunId()},
		{"call", a.GetCallId()},
		{"asked", moment(a.GetRequestedAt())},
		{"expires", moment(a.GetExpiresAt())},
		{"for", orElse(strings.Join(a.GetApprovers(), ", "), "everybody")},
		{"decided", moment(a.GetDecidedAt())},
		{"decided by", strings.Trim(a.GetDecidedBy().GetKind()+" "+a.GetDecidedBy().GetId(), " ")},
		{"they said", a.GetDecisionReason()},
		{"arguments sha256", a.GetArgumentsSha256()},
	} {
		fmt.Fprintf(t, "%s:\t%s\n", field[0], orElse(oneLine(field[1], longestField), "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "arguments:\n%s\n", printable(a.GetArguments()))
	if a.ChangedFrom != nil {
		fmt.Fprintf(&b, "which a hook made of what a person gave:\n%s\nby the patch:\n%s\n", printable(a.GetChangedFrom()), printable(a.GetChangePatchJson()))
	}
	if a.GetStatus() == agentdv1.ApprovalStatus_APPROVAL_STATUS_EDITED {
		fmt.Fprintf(&b, "edited to:\n%s\nby the patch:\n%s\nsha256 of that: %s\n",
			printable(a.GetEditedArguments()), printable(a.GetEditPatchJson()), a.GetEditedSha256())
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func approvalWord(s agentdv1.ApprovalStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "APPROVAL_STATUS_"))
}

// answerFlags are what all answers have.
type answerFlags struct {
	clientFlags `set:"patience=5s"`

	Reason string `placeholder:"TEXT" help:"Why; the model is told why a call was denied."`
	ID     string `arg:"" name:"approval" help:"The approval's id."`
}

// question is what is asked, in a word or two.
func question(a *agentdv1.Approval) string {
	if ofOutcome(a) {
		return "did it happen"
	}
	return "may it run"
}

type approveCmd struct{ answerFlags }

// Run lets the call run.
func (cmd approveCmd) Run(ctx context.Context, streams *std) error {
	return cmd.answer(ctx, streams, agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE)
}

type editCmd struct {
	answerFlags

	Arguments string `required:"" placeholder:"JSON" help:"What is to run: a JSON object, @FILE, or - for standard input."`
}

// Run lets the call run with other arguments.
func (cmd editCmd) Run(ctx context.Context, streams *std) error {
	arguments, err := cmd.read(streams.in)
	if err != nil {
		return err
	}
	return cmd.send(ctx, streams, agentdv1.ApprovalDecision_APPROVAL_DECISION_EDIT, arguments)
}

// read returns the arguments byte for byte, but for a line end that a file ends
// with. What is too long is read no further than the server needs to say so.
func (cmd editCmd) read(in io.Reader) (string, error) {
	from := strings.TrimPrefix(cmd.Arguments, "@")
	switch {
	case cmd.Arguments == "-":
	case from == cmd.Arguments:
		return cmd.Arguments, nil
	default:
		file, err := os.Open(from)
		if err != nil {
			return "", fmt.Errorf("read the arguments: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, loop.MaxArguments+2))
	if err != nil {
		return "", fmt.Errorf("read the arguments: %w", err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r"), nil
}

type denyCmd struct{ answerFlags }

// Run refuses the call.
func (cmd denyCmd) Run(ctx context.Context, streams *std) error {
	return cmd.answer(ctx, streams, agentdv1.ApprovalDecision_APPROVAL_DECISION_DENY)
}

type happenedCmd struct{ answerFlags }

// Run says that the call has taken effect.
func (cmd happenedCmd) Run(ctx context.Context, streams *std) error {
	return cmd.answer(ctx, streams, agentdv1.ApprovalDecision_APPROVAL_DECISION_HAPPENED)
}

type notHappenedCmd struct{ answerFlags }

// Run says that the call has not taken effect.
func (cmd notHappenedCmd) Run(ctx context.Context, streams *std) error {
	return cmd.answer(ctx, streams, agentdv1.ApprovalDecision_APPROVAL_DECISION_DID_NOT_HAPPEN)
}

// answer says what it answered to: the answer holds for these arguments alone.
func (f answerFlags) answer(ctx context.Context, streams *std, decision agentdv1.ApprovalDecision) error {
	return f.send(ctx, streams, decision, "")
}

func (f answerFlags) send(ctx context.Context, streams *std, decision agentdv1.ApprovalDecision, arguments string) error {
	c, err := f.telling(streams.err)
	if err != nil {
		return err
	}
	a, err := c.GetApproval(ctx, f.ID)
	if err != nil {
		return err
	}
	if a, err = decide(ctx, c, a, &agentdv1.DecideApprovalRequest{Decision: decision, Reason: f.Reason, Arguments: arguments}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.out, "%s: %s %s\n", approvalWord(a.GetStatus()), printable(a.GetToolName()),
		printable(orElse(a.GetEditedArguments(), a.GetArguments())))
	return err
}
