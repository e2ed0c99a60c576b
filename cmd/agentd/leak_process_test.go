package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// vaultVariable names the file with what the tool vault tells.
const vaultVariable = "AGENTD_TEST_VAULT"

func init() {
	if path := os.Getenv(vaultVariable); path != "" {
		extraTools = append(extraTools, vaultTool(path))
	}
}

// vaultTool tells secrets, as its answer or as an error.
func vaultTool(path string) loop.Tool {
	return looptest.Tool{Name: "vault", Idempotent: true, Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		var args struct{ N string }
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(in.Arguments, &args)
		}
		if err != nil {
			return loop.ToolOutput{}, err
		}
		var told map[string]vaultAnswer
		if err := json.Unmarshal(text, &told); err != nil {
			return loop.ToolOutput{}, err
		}
		a := told[args.N]
		if a.Fails {
			return loop.ToolOutput{}, errors.New(a.Text)
		}
		return loop.ToolOutput{Content: a.Text}, nil
	}}
}

type vaultAnswer struct {
	Text  string
	Fails bool
}

const (
	leakMarker = "key-test-"
	leakConfig = `
hooks:
  - redact:
      matching: ['key-test-[0-9a-f]{16}', 'long-test-[0-9a-f]{100,200};']
      with: "[gone]"
observers:
  - redact:
      matching: ['key-test-[0-9a-f]{16}', 'long-test-[0-9a-f]{100,200};']
      with: "[gone]"
      hold_bytes: 128 # a secret of which all characters are escapes has more
  - metrics:
`
)

// leakCases are all kinds of cases, each so often. The texts are cut everywhere, or
// at random into 1 to 6 pieces.
func leakCases(times int) (cases []*leakCase) {
	add := func(kind leakKind, cuts ...int) {
		c := &leakCase{n: len(cases), kind: kind, cuts: cuts, reached: make(chan string, 1), started: make(chan struct{}, 2)}
		c.secret = fmt.Sprintf("%s%016x", leakMarker, rand.Uint64())
		if kind == leakFixture {
			c.secret = leakMarker + "0123456789abcdef"
		}
		c.open = fmt.Sprintf("open%08x", rand.Uint32())
		// Every one of these at full size, and else two of them.
		c.dies = kind == leakText || kind == leakEscaped || fullSize() && kind < leakEscaped
		c.dies = c.dies && len(cuts) > 1 && len(cases)%3 == 0
		cases = append(cases, c)
	}
	for range times {
		for kind := range leakKinds {
			cuts := []int{12 + rand.IntN(24), rand.IntN(60)}
			for range rand.IntN(4) {
				cuts = append(cuts, rand.IntN(60))
			}
			add(kind, cuts...)
		}
	}
	if fullSize() {
		for kind := range leakEscaped + 1 {
			for at := range len(leakMarker) + 16 {
				add(kind, len("token is ")+at)
			}
		}
	}
	return cases
}

// TestASecretIsNowhere: whoever writes it, wherever it stands and wherever it is cut, in
// no file of the database, log, stream, answer of the API or later request. Workers
// die in the middle of it.
func TestASecretIsNowhere(t *testing.T) {
	t.Parallel()
	times := 1
	if fullSize() {
		times = 3
	}
	l := newLeakTest(t, leakCases(times))
	servers := map[string]*server{"/v1/chat/completions": l.serve(t, true, false), "/v1/messages": l.serve(t, true, true)}
	work := make(chan *leakCase)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for c := range work {
				l.play(t, servers["/v1/messages"], c)
			}
		})
	}
	var dying []*leakCase
	for _, c := range l.cases {
		if c.dies {
			dying = append(dying, c)
			continue
		}
		work <- c
	}
	close(work)
	all.Wait()
	for _, c := range dying {
		front := servers["/v1/messages"]
		all.Go(func() { l.play(t, front, c) })
		wire := <-c.reached
		<-c.started // or the answer to its client would be lost with the server
		servers[wire].kill(t)
		servers[wire] = l.serve(t, true, wire == "/v1/messages")
		all.Wait()
	}
	for _, s := range servers {
		l.metrics(t, s)
		s.signal(t, syscall.SIGTERM)
		s.wait(t)
	}
	said, found := l.search(t)
	for _, f := range found {
		t.Error(f)
	}
	for _, c := range l.cases {
		if c.kind != leakRefusal && c.kind != leakFixture && !strings.Contains(said, c.open) {
			t.Errorf("case %d: %s is nowhere: the search finds nothing because it looks at nothing", c.n, c.open)
		}
	}
	if t.Failed() {
		return
	}
	// Without the observer and the hook it is everywhere.
	bare := l.serve(t, false, false)
	l.play(t, bare, l.cases[leakText])
	bare.signal(t, syscall.SIGTERM)
	bare.wait(t)
	_, found = l.search(t)
	for _, where := range []string{"the streams", "the requests", "exports", "/pg_wal/", "/base/"} {
		if !strings.Contains(strings.Join(found, "\n"), where) {
			t.Errorf("nothing is found in %s where nothing is redacted: %q", where, found)
		}
	}
}

// leakTest is a database of its own, and everything that was said.
type leakTest struct {
	dir      string
	db       *storetest.DB
	cases    []*leakCase
	provider *leakProvider
	env      []string
	config   string

	mu      sync.Mutex
	servers []*server
	told    map[string]*strings.Builder // by where it was told
}

func newLeakTest(t *testing.T, cases []*leakCase) *leakTest {
	t.Helper()
	dir := openDir(t)
	// What is behind the log is written over at once otherwise.
	pg := storetest.NewServer(t, dir, map[string]string{"wal_recycle": "off", "log_statement": "all", "log_parameter_max_length": "-1"})
	l := &leakTest{dir: dir, db: pg.DB(t), cases: cases, provider: newLeakProvider(t, cases), told: map[string]*strings.Builder{}}
	told := map[string]vaultAnswer{}
	for _, c := range cases {
		told[fmt.Sprint(c.n)] = vaultAnswer{Text: c.marked() + " " + c.open, Fails: c.kind == leakToolError}
	}
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir() // which is not searched
	vault := filepath.Join(outside, "vault.json")
	if err := os.WriteFile(vault, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l.config = filepath.Join(outside, "agentd.yaml")
	replaceConfig(t, l.config, leakConfig)
	l.env = []string{
		vaultVariable + "=" + vault, "AGENTD_LOG_LEVEL=debug", "AGENTD_LEASE=" + killLease.String(), "AGENTD_PROVIDER_METRICS=true",
		"OPENAI_MODEL=tiny", "ANTHROPIC_MODEL=tiny",
	}
	return l
}

// serve starts a server that asks the provider in one of the protocols.
func (l *leakTest) serve(t *testing.T, redacts, messages bool) *server {
	t.Helper()
	env := append([]string{"OPENAI_BASE_URL=" + l.provider.URL + "/v1"}, l.env...)
	if messages {
		env[0] = "ANTHROPIC_BASE_URL=" + l.provider.URL
	}
	if redacts {
		env = append(env, "AGENTD_CONFIG="+l.config)
	}
	s := startServe(t, l.db, env)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers = append(l.servers, s)
	return s
}

func (l *leakTest) tell(where, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told[where] == nil {
		l.told[where] = &strings.Builder{}
	}
	l.told[where].WriteString(text + "\n")
}

// get keeps what a URL answers, as far as it comes.
func (l *leakTest) get(t *testing.T, where, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(patient(t), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return
	}
	res, err := freshClient().Do(req)
	if err != nil {
		return // it was killed
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body) // of a stream that breaks off, what came
	l.tell(where, string(text))
}

// play runs a case to its end, and keeps what clients, explain and export show.
func (l *leakTest) play(t *testing.T, s *server, c *leakCase) {
	session := newSession(t, s)
	run, _ := startRun(t, s, session, fmt.Sprintf("case %d: %s", c.n, c.secret))
	c.started <- struct{}{}
	stream := s.url + "/v1/sessions/" + session + "/events?until=idle"
	var clients sync.WaitGroup
	clients.Go(func() { l.get(t, "the streams", stream) })
	clients.Go(func() { l.get(t, "the streams", stream+"&types=assistant.delta,emission") })
	status := awaitRow(t, l.db, `SELECT status FROM agentd.runs WHERE ended_at IS NOT NULL AND id = '`+run+`'`)
	clients.Wait()
	if failed := c.kind == leakError || c.kind == leakRefusal; failed != (status == "failed") {
		t.Errorf("case %d, of kind %d: the run is %s", c.n, c.kind, status)
	}
	l.mu.Lock()
	alive := l.servers[len(l.servers)-1]
	l.mu.Unlock()
	l.get(t, "the streams", alive.url+"/v1/sessions/"+session+"/events?until=idle")
	_, out, said := here(t, "explain", run, "--url", alive.url)
	l.tell("explanations", out+said)
	_, out, said = here(t, "export", session, "--database-url", l.db.URL)
	l.tell("exports", out+said)
}

func (l *leakTest) metrics(t *testing.T, s *server) {
	t.Helper()
	l.get(t, "the metrics", s.url+"/metrics")
}

// leaks finds more of a secret than the marker and three digits, as it is and as
// escapes, and the first and the last digits of each. It leaves the loops to package
// bytes: there are 100 MB to look at, and the race detector.
type leaks struct{ digits [][]byte }

func (l leaks) in(text []byte) (at int) {
	for _, d := range l.digits {
		if at = bytes.Index(text, d); at >= 0 {
			return at
		}
	}
	for _, sign := range []struct {
		text string
		more *regexp.Regexp
	}{
		{"key-test-", regexp.MustCompile(`^key-test-[0-9a-f]{4}`)},
		{"long-test-", regexp.MustCompile(`^long-test-[0-9a-f]{4}`)},
		{`\u00`, regexp.MustCompile(`^(?:\\+u00[0-9a-f]{2}){4}`)},
	} {
		for at = 0; ; at++ {
			next := bytes.Index(text[at:], []byte(sign.text))
			if next < 0 {
				break
			}
			if at += next; sign.more.Match(text[at:]) {
				return at
			}
		}
	}
	return -1
}

// search looks at everything, and returns all that was said and what was found where.
func (l *leakTest) search(t *testing.T) (said string, found []string) {
	t.Helper()
	var sought leaks
	for _, c := range l.cases {
		if c.kind != leakFixture { // whose digits are in every list of hexadecimal digits
			digits := []byte(strings.TrimPrefix(c.secret, leakMarker))
			sought.digits = append(sought.digits, digits[:10], digits[len(digits)-10:])
		}
	}
	look := func(where string, text []byte) {
		if at := sought.in(text); at >= 0 {
			found = append(found, fmt.Sprintf("in %s: %q", where, text[max(at-300, 0):min(at+60, len(text))]))
		}
	}
	execute(t, l.db, `CHECKPOINT`)
	files := 0
	err := filepath.WalkDir(l.dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it goes on
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			files++
			look(path, text)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files: %v", files, err)
	}
	look("the requests", []byte(l.provider.requests()))
	l.mu.Lock()
	defer l.mu.Unlock()
	for where, text := range l.told {
		look(where, []byte(text.String()))
		said += text.String()
	}
	for _, s := range l.servers {
		look("a log", []byte(s.out.String()+s.err.String()))
	}
	return said, found
}
