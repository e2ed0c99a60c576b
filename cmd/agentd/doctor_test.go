package main

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// expect has one check of a name, a status and a text, which tells what to do unless
// all is well.
func (d diagnosis) expect(t *testing.T, status checkStatus, name, text string) {
	t.Helper()
	for _, c := range d {
		if c.Status == status && c.Name == name && strings.Contains(c.Message+". "+c.Do, text) {
			if (c.Do == "") != (status == checkOK) {
				t.Errorf("%+v: what to do is not said, or of what is well", c)
			}
			return
		}
	}
	t.Errorf("no %s of %s with %q in %+v", status, name, text, d)
}

// doctor runs it as a process, and returns what it says as JSON.
func doctor(t *testing.T, o options, args ...string) (code int, d diagnosis) {
	t.Helper()
	code, out, said := runAgentd(t, o, append([]string{"doctor", "--json"}, args...)...)
	for line := range strings.Lines(out) {
		var c check
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		d = append(d, c)
	}
	if said != "" {
		t.Errorf("it says %s", said)
	}
	return code, d
}

// examined has a doctor ask a database.
func examined(t *testing.T, flags databaseFlags) (d diagnosis) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	doctorCmd{databaseFlags: flags}.lookAtDatabase(ctx, &d)
	return d
}

func TestDoctorTellsOfTheDatabase(t *testing.T) {
	t.Parallel()

	t.Run("ThatWillDo", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		d := examined(t, databaseFlags{DatabaseURL: db.URL})
		for _, name := range []string{"pooler", "database", "version", "writable", "clock", "schema", "runs", "connections"} {
			d.expect(t, checkOK, name, "")
		}
		d.expect(t, checkWarn, "durability", "fsync is off") // tests have no time for it
		d.expect(t, checkWarn, "durability", "full_page_writes is off")
		if n := d.count(checkFail); n != 0 {
			t.Errorf("%d failures in %+v", n, d)
		}
	})

	t.Run("ThatLacksItsTables", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Empty)
		d := examined(t, databaseFlags{DatabaseURL: db.URL})
		d.expect(t, checkFail, "schema", "the schema is older than this binary (the database is at version 0")
		d.expect(t, checkFail, "schema", "agentd migrate")
	})

	t.Run("ThatMayNotBeWrittenOrRead", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t, storetest.Unverified)
		config := db.Pool.Config().ConnConfig
		execute(t, db, `ALTER DATABASE "`+config.Database+`" SET default_transaction_read_only = on`)
		d := examined(t, databaseFlags{DatabaseURL: db.URL})
		d.expect(t, checkFail, "writable", "default_transaction_read_only is on")
		d.expect(t, checkOK, "schema", "")
		execute(t, db, `SET default_transaction_read_only = off; DROP VIEW agentd.stuck`)
		examined(t, databaseFlags{DatabaseURL: db.URL}).expect(t, checkFail, "runs", "agentd.stuck")
		execute(t, db, `SET default_transaction_read_only = off; ALTER TABLE agentd.workers RENAME TO w`)
		examined(t, databaseFlags{DatabaseURL: db.URL}).expect(t, checkFail, "runs", "agentd.workers")
		execute(t, db, `SET default_transaction_read_only = off; ALTER TABLE agentd.goose_db_version RENAME COLUMN version_id TO v`)
		examined(t, databaseFlags{DatabaseURL: db.URL}).expect(t, checkFail, "schema", "version_id")
	})

	t.Run("ThatIsNotThere", func(t *testing.T) {
		t.Parallel()
		d := examined(t, databaseFlags{DatabaseURL: "postgres://u:hunter2@127.0.0.1:1/x"})
		d.expect(t, checkFail, "database", "no Postgres can be reached at 127.0.0.1:1 (connection refused). check that it runs")
		d = append(d, examined(t, databaseFlags{DatabaseURL: "postgres://u:hunter2@:no"})...)
		d.expect(t, checkFail, "database", "AGENTD_DATABASE_URL is not the address of a Postgres")
		d = append(d, examined(t, databaseFlags{})...)
		d.expect(t, checkFail, "database", "No `agentd dev` runs in this directory")
		d = append(d, examined(t, databaseFlags{DirectDatabaseURL: "postgres://u:hunter2@" + hangingUp(t) + "/x"})...)
		d.expect(t, checkFail, "database", "no Postgres can be reached")
		for _, c := range d {
			if strings.Contains(c.Message+c.Do, "hunter2") {
				t.Errorf("a password is told: %+v", c)
			}
		}
	})

	t.Run("WhereTooMuchIsOpen", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		d := examined(t, databaseFlags{DatabaseURL: withParameter(t, db.URL, "pool_max_conns", "1000")})
		d.expect(t, checkWarn, "connections", "a process may open 1003; 0 workers are alive")
	})
}

func withParameter(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestDoctorJudgesWhatAServerSays(t *testing.T) {
	t.Parallel()
	well := store.Server{Version: 16, Encoding: "UTF8", SynchronousCommit: "on", Fsync: "on", FullPageWrites: "on", Connections: 5, MaxConnections: 97}
	var d diagnosis
	lookAtServer(&d, well)
	if d.count(checkOK) != 4 || len(d) != 4 {
		t.Errorf("%+v", d)
	}
	bad := well
	bad.Version, bad.Recovery, bad.Ahead, bad.SynchronousCommit, bad.Connections = 14, true, -3*time.Second, "off", 97
	d = nil
	lookAtServer(&d, bad)
	doctorCmd{}.lookAtConnections(&d, bad, 1)
	d.expect(t, checkFail, "version", "Postgres 14 is older")
	d.expect(t, checkFail, "writable", "follows another one")
	d.expect(t, checkWarn, "clock", "3s off")
	d.expect(t, checkWarn, "durability", "synchronous_commit is off")
	d.expect(t, checkFail, "connections", "all 97 are in use")
	bad.Version, bad.Encoding = 15, "SQL_ASCII"
	lookAtServer(&d, bad)
	d.expect(t, checkFail, "version", "SQL_ASCII")
	bad.Trip = time.Minute // whoever takes so long to ask does not know
	d = nil
	lookAtServer(&d, bad)
	d.expect(t, checkOK, "clock", "")
}

// TestDoctorSaysWhatAStartWouldRefuse of flags, variables and files, and tells no key.
func TestDoctorSaysWhatAStartWouldRefuse(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{"agentd.yaml": "hooks:\n  - deny_tools: {tols: x}\n  - webhook: {url: \"https://a\", gates: BeforeInput, secret_env: NOPE}\nrules:\n  - {}\n"})
	code, d := doctor(t, options{dir: dir, env: []string{
		"AGENTD_LISTEN=0.0.0.0:8080", "AGENTD_TOOL_PERMISSIONS=x", "AGENTD_MAX_TURNS=-1", "OPENAI_BASE_URL=https://api.openai.com/v1", "ANTHROPIC_API_KEY=hush",
	}})
	d.expect(t, checkFail, "config", `agentd.yaml:2:18: deny_tools has no key "tols"`)
	d.expect(t, checkFail, "config", `agentd.yaml:3:65: the environment has no variable NOPE`)
	d.expect(t, checkFail, "settings", `"x" is none: give a glob`)
	d.expect(t, checkFail, "settings", "--max-turns")
	d.expect(t, checkFail, "api key", "0.0.0.0:8080 is not a loopback address")
	d.expect(t, checkFail, "model", "gpt-4.1-mini of api.openai.com would be asked without a key. set OPENAI_API_KEY")
	d.expect(t, checkWarn, "model", "ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL are not used")
	d.expect(t, checkOK, "plugins", "0 plugins in .agentd/plugins (not there)")
	if code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	code, d = doctor(t, options{dir: t.TempDir(), env: []string{
		"AGENTD_API_KEY=hush", "AGENTD_API_KEY_FILE=x", "ANTHROPIC_API_KEY=hush hush", "AGENTD_MAX_INPUT_BYTES=-1",
	}}, "--config", "nope.yaml")
	d.expect(t, checkFail, "config", "--max-input-bytes")
	d.expect(t, checkFail, "api key", "given twice")
	d.expect(t, checkFail, "model", "characters other than visible ASCII")
	if code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	_, d = doctor(t, options{dir: t.TempDir(), env: []string{"AGENTD_API_KEY=hush", "ANTHROPIC_API_KEY=hush", "AGENTD_LISTEN=0.0.0.0:1"}}, "--config", "nope.yaml")
	d.expect(t, checkFail, "config", "nope.yaml: the file cannot be read")
	d.expect(t, checkOK, "api key", "guards what is served on 0.0.0.0:1")
	d.expect(t, checkOK, "model", "of api.anthropic.com answers, and ANTHROPIC_API_KEY is set")
	for _, c := range d {
		if strings.Contains(c.Message+c.Do, "hush") {
			t.Errorf("a key is told: %+v", c)
		}
	}
	var many diagnosis
	dir = configFiles(t, map[string]string{"agentd.yaml": "hooks:\n" + strings.Repeat("  - {}\n", 23)})
	doctorCmd{gateFlags: gateFlags{hookFlags: hookFlags{configFlags: configFlags{Config: filepath.Join(dir, "agentd.yaml")}}}}.lookAtConfig(&many)
	many.expect(t, checkFail, "config", "wrong in 3 more places")
	dir = configFiles(t, map[string]string{"agentd.yaml": "observers:\n  - redact: {patterns: secrets}\n  - normalize_tool_dialect:\n"})
	_, d = doctor(t, options{dir: dir, env: []string{"OPENAI_BASE_URL=http://127.0.0.1:9"}})
	d.expect(t, checkWarn, "config", "put it before")
	d.expect(t, checkOK, "config", "0 hooks at gates, 2 observers")
	d.expect(t, checkOK, "model", "127.0.0.1:9 answers, which is asked without a key")
}

// TestAPluginThatChangedIsNotStartedAndDoctorSaysWhy with real processes, of which the
// doctor's changes nothing.
func TestAPluginThatChangedIsNotStartedAndDoctorSaysWhy(t *testing.T) {
	t.Parallel()
	dirs, db := newPluginDirs(t), storetest.New(t)
	env := append(dirs.env(), "AGENTD_DATABASE_URL="+db.URL)
	dirs.put(t, "policy", "1", "nothing")
	dirs.put(t, "other", "1", "nothing")
	o := options{dir: t.TempDir(), env: env}

	code, d := doctor(t, o)
	d.expect(t, checkWarn, "plugin policy", "would be started as it is: there is no "+filepath.Join(dirs.plugins, "plugins.lock"))
	if code != 0 {
		t.Errorf("exit code %d: %+v", code, d)
	}
	if entries, err := filepath.Glob(dirs.run); err != nil || len(entries) != 0 {
		t.Errorf("doctor has made %v, %v", entries, err)
	}
	if code, _, said := runAgentd(t, o, "plugins", "lock"); code != 0 {
		t.Fatal(said)
	}
	s := startServe(t, db, dirs.env())
	code, d = doctor(t, o, "--url", s.url)
	d.expect(t, checkOK, "plugin policy", "policy@1 in "+filepath.Join(dirs.plugins, "policy")+" is as it was locked")
	d.expect(t, checkOK, "process", "is ready")
	d.expect(t, checkOK, "running policy", "policy@1 is up since 2")
	if code != 0 {
		t.Errorf("exit code %d: %+v", code, d)
	}

	// Somebody changes the program, and leaves its version as it is.
	program := filepath.Join(dirs.plugins, "policy", "run.sh")
	text, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(program, append(text, "# harmless\n"...), 0o755) //nolint:gosec // it is executed
	}
	if err != nil {
		t.Fatal(err)
	}
	code, d = doctor(t, o, "--url", s.url)
	const why = "not as locked: "
	changed := filepath.Join(dirs.plugins, "policy") + " has changed since it was locked: it is sha256:"
	d.expect(t, checkFail, "plugin policy", why+changed)
	d.expect(t, checkFail, "plugin policy", "agentd plugins lock")
	d.expect(t, checkOK, "plugin other", "")
	d.expect(t, checkWarn, "running policy", "it is not what is in "+filepath.Join(dirs.plugins, "policy")+" now")
	if code != exitFailure {
		t.Errorf("exit code %d: %+v", code, d)
	}
	s.signal(t, 15)
	s.wait(t)

	s = startServe(t, db, dirs.env())
	code, out, _ := runAgentd(t, o, "doctor", "--url", s.url)
	for _, want := range []string{
		"fail  plugin policy   it would not be started, and gates are closed without it: " + why + changed,
		"fail  running policy  policy@1 is down since 2", "started 0 times, ended by itself 0 times: plugin policy: " + why + changed,
		". What to do: look at the plugin; if it is what it should be: agentd plugins lock, then agentd plugins reload\n",
		"ok    running other", "2 failures, 3 warnings\n",
	} {
		if code != exitFailure || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s", code, want, out)
		}
	}
	if out := remember(t, s); strings.Contains(out, remembered) {
		t.Errorf("the call went through: %s", out)
	}
}

func TestDoctorTellsOfPluginsAndTheirDirectories(t *testing.T) {
	t.Parallel()
	dirs := newPluginDirs(t)
	dirs.put(t, "missing", "1", "nothing")
	dirs.put(t, "broken", "1", "nothing")
	dirs.put(t, "open", "1", "nothing")
	for _, err := range []error{
		os.Remove(filepath.Join(dirs.plugins, "missing", "run.sh")),
		os.WriteFile(filepath.Join(dirs.plugins, "broken", "plugin.yaml"), []byte("id: broken\nversion: '1'\nexec: run.sh\nprotocol: 2\n"), 0o600),
		os.Chmod(filepath.Join(dirs.plugins, "open", "run.sh"), 0o777),
		os.Mkdir(filepath.Join(dirs.plugins, "data"), 0o755),
		os.Mkdir(dirs.run, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var d diagnosis
	cmd := doctorCmd{pluginRunFlags: pluginRunFlags{pluginFlags: pluginFlags{PluginDir: dirs.plugins}, PluginRunDir: dirs.run}}
	cmd.lookAtPlugins(&d, nil)
	d.expect(t, checkFail, "plugin missing", "there is no program "+filepath.Join(dirs.plugins, "missing", "run.sh"))
	d.expect(t, checkFail, "plugin broken", "protocol is 2; this agentd speaks 1")
	d.expect(t, checkFail, "plugin open", "run.sh may be written by everybody: chmod o-w")
	d.expect(t, checkWarn, "plugins", "data: it has no plugin.yaml")
	d.expect(t, checkFail, "plugin dir", "mode 0700")
	cmd.RequirePluginLock = true
	dirs.put(t, "fine", "1", "nothing")
	d = nil
	cmd.lookAtPlugins(&d, nil)
	d.expect(t, checkFail, "plugin fine", "there is no "+filepath.Join(dirs.plugins, "plugins.lock"))
}

func TestDoctorTellsOfAProcess(t *testing.T) {
	t.Parallel()
	look := func(url string) (d diagnosis) {
		doctorCmd{URL: url}.lookAtProcess(t.Context(), &d)
		return d
	}
	look("http://127.0.0.1:1").expect(t, checkFail, "process", "connection refused")
	look("::").expect(t, checkFail, "process", "does not answer")
	s := startServe(t, storetest.New(t), nil)
	d := look(s.url)
	d.expect(t, checkOK, "process", "")
	d.expect(t, checkOK, "its plugins", "it has none")
	d = look(s.url + "/nowhere")
	d.expect(t, checkFail, "process", "is not ready: 404")
	d.expect(t, checkFail, "its plugins", "404 Not Found")

	d = nil
	for _, p := range []listedPlugin{
		{ID: "a", State: "starting"}, {ID: "b", State: "draining", Starts: 1},
		{ID: "c", State: "down", Starts: 2, Deaths: 2, Reason: "it ended with exit code 3; it is started again in 2s"}, {ID: "d", State: "up", Health: "it is not ready: no"},
	} {
		lookAtRunning(&d, p)
	}
	d.expect(t, checkWarn, "running a", "a is starting, started 0 times")
	d.expect(t, checkWarn, "running b", "is draining, started 1 time")
	d.expect(t, checkFail, "running c", "ended by itself 2 times: it ended with exit code 3; it is started again in 2s")
	d.expect(t, checkWarn, "running d", "it is not ready: no")
}
