package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestADirectoryOfPluginsThatIsNamedHasToBeThere: who has named it counts on what is in
// it, and a process without would let everything pass.
func TestADirectoryOfPluginsThatIsNamedHasToBeThere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	below, absent := filepath.Join(file, "below"), filepath.Join(t.TempDir(), "absent")
	for dir, why := range map[string]string{
		absent: "AGENTD_PLUGIN_DIR=" + absent + ": there is no such directory: make one, or leave the variable empty",
		below:  "AGENTD_PLUGIN_DIR=" + below + ": not a directory: make one, or leave the variable empty",
		file:   "AGENTD_PLUGIN_DIR=" + file + ": it is no directory: make one, or leave the variable empty",
	} {
		o := options{dir: t.TempDir(), env: []string{"AGENTD_PLUGIN_DIR=" + dir}}
		for _, args := range []string{"plugins list", "plugins inspect policy", "plugins lock", "hooks list"} {
			if code, _, said := runAgentd(t, o, strings.Fields(args)...); code != exitUsage || said != "agentd: "+why+"\n" {
				t.Errorf("%s: exit code %d, said %s", args, code, said)
			}
		}
		_, d := doctor(t, o)
		d.expect(t, checkFail, "plugins", why)
	}
	o := options{dir: t.TempDir(), env: []string{"AGENTD_PLUGIN_DIR=" + absent, "AGENTD_DATABASE_URL=" + storetest.New(t).URL, "AGENTD_LISTEN=127.0.0.1:0"}}
	if code, _, said := runAgentd(t, o, "serve"); code != exitUsage || !strings.Contains(said, "there is no such directory") {
		t.Errorf("serve: exit code %d, said %s", code, said)
	}
}

// TestADirectoryOfPluginsThatIsGoneChangesNothing: what is in force stays so.
func TestADirectoryOfPluginsThatIsGoneChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlugged(t, "", func(d pluginDirs) { d.put(t, "policy", "1", "nothing") })
	if err := os.Rename(p.dirs.plugins, p.dirs.plugins+".away"); err != nil {
		t.Fatal(err)
	}
	if err := p.plugins.load(t.Context(), nil, false); err == nil || !strings.Contains(err.Error(), "there is no such directory") {
		t.Errorf("it says %v", err)
	}
	if now := p.only(t); now.ID != "policy" || now.State != string(pluginhost.StateUp) || now.Starts != 1 {
		t.Errorf("the plugin is %+v", now)
	}
}
