package main

import (
	"strings"
	"testing"
)

func TestRunsWaitsForAServerAndSaysSo(t *testing.T) {
	t.Parallel()
	code, out, said := ofServer("http://127.0.0.1:1", "1s")(t, "runs")
	away, end, _ := strings.Cut(said, "\n")
	if code != 1 || out != "" || away != "the server is away, waiting up to 1s…" || !strings.HasPrefix(end, "agentd: http://127.0.0.1:1 has not answered for 1s") {
		t.Errorf("exit code %d, printed %q, said %q", code, out, said)
	}
}

func TestPatienceIsAMatterOfTheCommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env  []string
		args []string
		want string
	}{
		{args: []string{"chat"}, want: "1m0s"},
		{args: []string{"runs"}, want: "5s"},
		{args: []string{"runs", "--patience", "7s"}, want: "7s"},
		{env: []string{"AGENTD_PATIENCE=8s"}, args: []string{"runs"}, want: "8s"},
		{env: []string{"AGENTD_PATIENCE=9s"}, args: []string{"chat"}, want: "9s"},
	} {
		p := start(t, options{dir: t.TempDir(), env: append(test.env, "AGENTD_URL=http://127.0.0.1:1"), stdin: strings.NewReader("ping\n")}, test.args...)
		if got := p.await(t, &p.err, `the server is away, waiting up to (\S+)…`); got != test.want {
			t.Errorf("%v %v: waits %s, want %s", test.env, test.args, got, test.want)
		}
	}
}
