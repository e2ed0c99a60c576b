package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// sessionsCmd are the conversations.
type sessionsCmd struct {
	List  sessionsListCmd  `cmd:"" default:"withargs" help:"List sessions, the newest first."`
	Show  sessionsShowCmd  `cmd:"" help:"Show a session and what was said in it."`
	Title sessionsTitleCmd `cmd:"" help:"Give a session a title; an empty one takes it away."`
}

type sessionsListCmd struct {
	clientFlags `set:"patience=5s"`

	User   string `placeholder:"NAME" help:"Only sessions of this end user."`
	Search string `placeholder:"WORDS" help:"Only sessions whose title has all these words."`
	Active bool   `help:"Only sessions with a run that has not ended."`
	Limit  int    `default:"20" help:"List at most so many."`
}

// Run prints the sessions that pass.
func (cmd sessionsListCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	if err := checkLimit(cmd.Limit); err != nil {
		return err
	}
	list, err := collect(first(cmd.Limit, c.Sessions(ctx, &agentdv1.ListSessionsRequest{
		User: cmd.User, Query: cmd.Search, ActiveOnly: cmd.Active, PageSize: int32(min(cmd.Limit, 100)),
	})))
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(streams.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SESSION\tTITLE\tUSER\tNAME\tCREATED\tLAST EVENT\tACTIVE RUN")
	for _, s := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.GetId(), orElse(oneLine(s.GetTitle(), 40), "-"), orElse(oneLine(s.GetUser(), 20), "-"),
			orElse(oneLine(s.GetExternalId(), 20), "-"), moment(s.GetCreatedAt()), moment(s.GetUpdatedAt()), orElse(s.GetActiveRunId(), "-"))
	}
	return t.Flush()
}

type sessionsShowCmd struct {
	clientFlags `set:"patience=5s"`

	ID string `arg:"" name:"session" help:"The session: its id, or a name of yours."`
}

// Run prints a session and its conversation.
func (cmd sessionsShowCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	id, err := findSession(ctx, c, cmd.ID, false)
	if err != nil {
		return err
	}
	session, err := c.GetSession(ctx, id)
	if err != nil {
		return err
	}
	said, err := collect(c.Messages(ctx, &agentdv1.ListMessagesRequest{SessionId: id, PageSize: 100}))
	if err != nil {
		return err
	}
	if err := printSession(streams.out, session); err != nil {
		return err
	}
	return printConversation(streams.out, said)
}

func printSession(out io.Writer, s *agentdv1.Session) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fields := [][2]string{
		{"session", s.GetId()},
		{"title", s.GetTitle()},
		{"user", s.GetUser()},
		{"name", s.GetExternalId()},
		{"created", moment(s.GetCreatedAt())},
		{"last event", fmt.Sprintf("#%d, %s", s.GetLastSeq(), moment(s.GetUpdatedAt()))},
		{"active run", s.GetActiveRunId()},
	}
	for _, k := range slices.Sorted(maps.Keys(s.GetMetadata())) {
		fields = append(fields, [2]string{"metadata " + oneLine(k, 80), s.GetMetadata()[k]})
	}
	for _, field := range fields {
		fmt.Fprintf(t, "%s:\t%s\n", field[0], orElse(oneLine(field[1], longestField), "-"))
	}
	return t.Flush()
}

// printConversation prints what was said as it was, a paragraph each.
func printConversation(out io.Writer, said []*agentdv1.Message) error {
	var b strings.Builder
	for _, m := range said {
		fmt.Fprintf(&b, "\n%s", strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "ROLE_")))
		if m.GetPartial() {
			b.WriteString(" (cut off)")
		}
		if m.GetEnqueued() {
			b.WriteString(" (enqueued)")
		}
		fmt.Fprintf(&b, ", %s:\n", moment(m.GetCreatedAt()))
		for _, p := range m.GetParts() {
			switch {
			case p.GetToolCall() != nil:
				fmt.Fprintf(&b, "→ %s %s\n", printable(p.GetToolCall().GetName()), printable(p.GetToolCall().GetArguments()))
			case p.GetToolResult() != nil:
				fmt.Fprintf(&b, "%s\n", printable(p.GetToolResult().GetContent()))
			case p.GetReasoning() != "":
				fmt.Fprintf(&b, "(%s)\n", printable(p.GetReasoning()))
			default:
				fmt.Fprintf(&b, "%s\n", printable(p.GetText()))
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

type sessionsTitleCmd struct {
	clientFlags `set:"patience=5s"`

	ID    string `arg:"" name:"session" help:"The session: its id, or a name of yours."`
	Title string `arg:"" name:"title" help:"The title."`
}

// Run changes the title.
func (cmd sessionsTitleCmd) Run(ctx context.Context, streams *std) error {
	c, err := cmd.telling(streams.err)
	if err != nil {
		return err
	}
	id, err := findSession(ctx, c, cmd.ID, false)
	if err != nil {
		return err
	}
	s, err := c.UpdateSession(ctx, &agentdv1.UpdateSessionRequest{SessionId: id, Title: &cmd.Title})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(streams.out, "session %s: %s\n", s.GetId(), orElse(oneLine(s.GetTitle(), longestField), "no title"))
	return err
}
