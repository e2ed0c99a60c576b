package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"
)

type psqlCmd struct {
	databaseFlags
	Command sqlText `short:"c" placeholder:"SQL" help:"Run this and exit."`
	Builtin bool    `help:"Do not look for psql; use what is built in."`
}

// sqlText may begin with a hyphen, as a comment does.
type sqlText string

// Decode implements [kong.MapperValue]: without it, "-- a comment" is taken for
// a flag.
func (s *sqlText) Decode(c *kong.DecodeContext) error {
	token := c.Scan.Pop()
	if token.IsEOL() {
		return errors.New("give it SQL to run")
	}
	*s = sqlText(token.String())
	return nil
}

// Run becomes psql, or does its work.
func (cmd psqlCmd) Run(ctx context.Context, streams *std) error {
	database, err := cmd.urlOrDev()
	if err != nil {
		return err
	}
	if path, err := exec.LookPath("psql"); err == nil && !cmd.Builtin {
		return cmd.become(path, database)
	}
	config, err := pgconn.ParseConfig(withoutPoolSettings(database))
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		fmt.Fprintf(streams.err, "%s:  %s\n", n.Severity, printable(n.Message))
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if cmd.Command != "" {
		return query(ctx, conn, string(cmd.Command), streams.out)
	}
	return repl(ctx, conn, streams)
}

// become replaces this process by psql.
func (cmd psqlCmd) become(path, database string) error {
	database, password := splitPassword(withoutPoolSettings(database))
	env := os.Environ()
	if password != "" {
		// Everybody on a machine can read the arguments of its processes.
		env = append(env, "PGPASSWORD="+password)
	}
	args := []string{"psql", database}
	if cmd.Command != "" {
		args = append(args, "-c", string(cmd.Command))
	}
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, args, env))
}

// splitPassword takes the password out of a URL. A connection string that is no
// URL stays as it is.
func splitPassword(database string) (rest, password string) {
	u, err := url.Parse(database)
	if err != nil || u.User == nil {
		return database, ""
	}
	password, ok := u.User.Password()
	if !ok {
		return database, ""
	}
	u.User = url.User(u.User.Username())
	return u.String(), password
}

// withoutPoolSettings drops the settings of the connection pool, which psql and
// single connections refuse.
func withoutPoolSettings(database string) string {
	before, query, ok := strings.Cut(database, "?")
	if !ok {
		return database
	}
	var kept []string
	for _, pair := range strings.Split(query, "&") {
		if !strings.HasPrefix(pair, "pool_") {
			kept = append(kept, pair)
		}
	}
	if len(kept) == 0 {
		return before
	}
	return before + "?" + strings.Join(kept, "&")
}

// repl runs statements that end with a semicolon at the end of a line. On a
// terminal it asks for them, and a wrong one is no failure.
func repl(ctx context.Context, conn *pgconn.PgConn, streams *std) error {
	interactive := asTerminal(streams) != nil
	prompt := func(p string) {
		if interactive {
			fmt.Fprint(streams.out, p)
		}
	}
	if interactive {
		fmt.Fprintln(streams.out, `psql is not installed; this runs statements that end with ; at the end of a line. \q leaves.`)
	}
	failed := false
	run := func(statement string) error {
		err := query(ctx, conn, statement, streams.out)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) {
			return err
		}
		failed = true
		fmt.Fprintln(streams.err, "ERROR: ", printable(refused.Message))
		return nil
	}
	in := bufio.NewReader(streams.in)
	statement := ""
	for {
		if statement == "" {
			prompt("agentd=> ")
		} else {
			prompt("agentd-> ")
		}
		text, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read a statement: %w", err)
		}
		last := err != nil
		switch word := strings.TrimSpace(text); {
		case statement == "" && strings.HasPrefix(word, `\`):
			if word == `\q` {
				last = true
				break
			}
			fmt.Fprintf(streams.err, "%s is a command of psql, which is not installed; only \\q is known here\n", word)
		case statement+word != "":
			statement += text
		}
		if ends := strings.HasSuffix(strings.TrimSpace(statement), ";"); ends || last && strings.TrimSpace(statement) != "" {
			if err := run(statement); err != nil {
				return err
			}
			statement = ""
		}
		if last {
			prompt("\n")
			if failed && !interactive {
				return &exitError{code: exitFailure}
			}
			return nil
		}
	}
}
