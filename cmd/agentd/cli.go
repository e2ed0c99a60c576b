package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kong"
)

// cli are the commands. Each field is a struct of flags with a Run method.
type cli struct {
	Dev       devCmd       `cmd:"" help:"Run everything in one process: a private Postgres, the API, a worker and a demo agent."`
	Serve     serveCmd     `cmd:"" help:"Serve the API, or work on runs, or both, over a Postgres of yours."`
	Migrate   migrateCmd   `cmd:"" help:"Bring a database to the schema of this binary."`
	Chat      chatCmd      `cmd:"" help:"Talk to an agent. From a pipe: one message a line in, the answers out."`
	Sessions  sessionsCmd  `cmd:"" help:"List sessions, show what was said in one, give it a title."`
	Runs      runsCmd      `cmd:"" help:"List runs, show, cancel, fail or retry one."`
	Approvals approvalsCmd `cmd:"" help:"List the tool calls that wait for a person, and answer."`
	Explain   explainCmd   `cmd:"" help:"Tell what happened in a run: who decided what at each gate, and what followed."`
	Export    exportCmd    `cmd:"" help:"Write all that is stored of a session as lines of JSON: decisions, events, messages."`
	Hooks     hooksCmd     `cmd:"" help:"List the hooks that are asked, and test the rules."`
	Plugins   pluginsCmd   `cmd:"" help:"List, inspect and lock the plugins on this machine; see and reload those of a process."`
	Ledger    ledgerCmd    `cmd:"" help:"Read, verify, export and erase what hooks decided."`
	Stuck     stuckCmd     `cmd:"" help:"List the runs that do not go on, why, and what to do about each."`
	Pause     pauseCmd     `cmd:"" help:"Let no step of these runs begin, on whatever worker, until they are resumed."`
	Resume    resumeCmd    `cmd:"" help:"End a pause."`
	Drain     drainCmd     `cmd:"" help:"Have workers hand back their runs and take no more, without reaching their hosts."`
	Psql      psqlCmd      `cmd:"" help:"Ask the database in SQL, with psql if it is installed."`
	Verify    verifyCmd    `cmd:"" help:"Fold the log of every session and compare it with the tables; check the chain of the ledger."`
	Doctor    doctorCmd    `cmd:"" help:"Look at all that agentd needs, the config, the database, plugins, and say what is wrong and what to do. It changes nothing."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
}

const description = `A chat backend for agents over one Postgres.

Start with: agentd dev. Every flag that names a variable can be set by it.`

// defaults are those of commands that set no others.
var defaults = kong.Vars{"patience": "60s"}

// runCommand parses args and runs the command that they name.
func runCommand(ctx context.Context, args []string, io *std) error {
	var c cli
	said := false // kong's help says what it has to say and wants to exit
	parser, err := kong.New(&c,
		kong.Name("agentd"), kong.Description(description),
		kong.Writers(io.out, io.err), kong.Exit(func(int) { said = true }),
		defaults,
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(io),
	)
	if err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	switch {
	case said:
		return nil
	case err != nil:
		return &exitError{code: exitUsage, err: fmt.Errorf("%w (agentd --help lists what there is)", err)}
	}
	return aboutServer(aboutDatabase(parsed.Run()))
}
