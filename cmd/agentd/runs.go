package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop"
)

// runsCmd are the runs.
type runsCmd struct {
	List   runsListCmd   `cmd:"" default:"withargs" help:"List runs, or show one."`
	Cancel runsCancelCmd `cmd:"" help:"Stop a run; what it has shown is kept."`
	Fail   runsFailCmd   `cmd:"" help:"End a run by force, whatever state it is in. Cancel is the gentle way."`
	Retry  runsRetryCmd  `cmd:"" help:"Take up a failed run again, as the same run."`
}

type runsListCmd struct {
	// Somebody waits for a list.
	clientFlags `set:"patience=5s"`

	Session string `placeholder:"ID" help:"Only runs of this session: its id, or a name of yours."`
	Limit   int    `default:"20" help:"List at most so many."`
	ID      string `arg:"" optional:"" name:"run" help:"Show this run alone."`
}

// Run prints runs, the newest first.
func (cmd runsListCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	if cmd.ID != "" {
		run, err := c.GetRun(ctx, cmd.ID)
		if err != nil {
			return err
		}
		return printRun(streams.out, run)
	}
	if err := checkLimit(cmd.Limit); err != nil {
		return err
	}
	request := &agentdv1.ListRunsRequest{}
	if cmd.Session != "" {
		if request.SessionId, err = findSession(ctx, c, cmd.Session, false); err != nil {
			return err
		}
	}
	request.PageSize = int32(min(cmd.Limit, 100))
	list, err := collect(first(cmd.Limit, c.Runs(ctx, request)))
	if err != nil {
		return err
	}
	return printRuns(streams.out, list)
}

func checkLimit(n int) error {
	if n < 1 {
		return &exitError{code: exitUsage, err: fmt.Errorf("--limit %d lists nothing: give a positive number", n)}
	}
	return nil
}

type runsCancelCmd struct {
	clientFlags `set:"patience=5s"`

	Reason string `placeholder:"TEXT" help:"Why, for people."`
	ID     string `arg:"" name:"run" help:"The run's id."`
}

// Run returns when the cancel is stored: the run is over a moment later.
func (cmd runsCancelCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	if err := c.CancelRun(ctx, cmd.ID, cmd.Reason); err != nil {
		return err
	}
	_, err = fmt.Fprintln(streams.out, "the run is told to stop")
	return err
}

type runsRetryCmd struct {
	clientFlags `set:"patience=5s"`

	ID string `arg:"" name:"run" help:"The run's id."`
}

// Run queues the run again.
func (cmd runsRetryCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	again, err := c.RetryRun(ctx, cmd.ID)
	if err != nil {
		return err
	}
	said := "the run is queued again"
	if again.GetAlreadyRetried() {
		said = "the run is under way again already"
	}
	_, err = fmt.Fprintln(streams.out, said)
	return err
}

// longestField is more than agentd writes, and less than would fill a screen.
const longestField = 1000

func printRuns(out io.Writer, list []*agentdv1.Run) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tSTATUS\tREASON\tAGENT\tTURNS\tTOKENS\tCREATED\tTOOK\tSESSION")
	for _, r := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d+%d\t%s\t%s\t%s\n",
			r.GetId(), statusWord(r.GetStatus()), orElse(oneLine(r.GetReason(), 40), "-"), r.GetAgent(), r.GetTurns(),
			r.GetInputTokens(), r.GetOutputTokens(), moment(r.GetCreatedAt()), took(r), r.GetSessionId())
	}
	return t.Flush()
}

func printRun(out io.Writer, r *agentdv1.Run) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	cancel := "no"
	if r.GetCancelRequested() {
		cancel = "yes"
	}
	for _, field := range [][2]string{
		{"run", r.GetId()},
		{"session", r.GetSessionId()},
		{"agent", r.GetAgent()},
		{"status", statusWord(r.GetStatus())},
		{"reason", r.GetReason()},
		{"error", r.GetError()},
		{"cancel requested", cancel},
		{"turns", fmt.Sprint(r.GetTurns())},
		{"retries", fmt.Sprint(r.GetRetries())},
		{"input tokens", fmt.Sprint(r.GetInputTokens())},
		{"output tokens", fmt.Sprint(r.GetOutputTokens())},
		{"cost", loop.FormatMicros(int64(r.GetCostMicros()))},
		{"created", moment(r.GetCreatedAt())},
		{"started", moment(r.GetStartedAt())},
		{"ended", moment(r.GetEndedAt())},
		{"message", r.GetMessageId()},
		{"assistant message", r.GetAssistantMessageId()},
	} {
		fmt.Fprintf(t, "%s:\t%s\n", field[0], orElse(oneLine(field[1], longestField), "-"))
	}
	return t.Flush()
}

func statusWord(s agentdv1.RunStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "RUN_STATUS_"))
}

func moment(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Format(time.DateTime)
}

// took is how long the person waited.
func took(r *agentdv1.Run) string {
	if r.GetEndedAt() == nil {
		return "-"
	}
	return r.GetEndedAt().AsTime().Sub(r.GetCreatedAt().AsTime()).Round(time.Millisecond).String()
}
